//! What must not keep an operator from moving the process: outputs that nobody reads, disks that are full, files without an end, and clients
//! of the admin API that say nothing.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Client, Larder, Output, Port, ScriptedOrigin, Service, Setup, Signal, Successor, run, wait};

use crate::LARDER;

/// Far more than what is asked for takes, and less than the limits that would hide a wait.
const SOON: Duration = Duration::from_secs(8);

fn origin() -> ScriptedOrigin {
    ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body")
}

fn config(origin: &ScriptedOrigin, more: &str) -> String {
    format!("{more}\n[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url())
}

/// The words of a shell that runs the binary with this output. A pipe that it opens both ways has no reader but itself.
fn output_to(redirection: &str) -> [String; 4] {
    let script = format!("mkfifo @dir@/pipe; exec \"$@\" {redirection}");
    ["sh", "-c", &script, "sh"].map(str::to_owned)
}

fn start(config: &str, redirection: &str) -> Larder {
    let words = output_to(redirection);
    Setup::config(LARDER, config).under(&words.each_ref().map(String::as_str)).start()
}

fn mkfifo(path: &Path) {
    run("mkfifo", [path]).succeeded();
}

/// More lines than a pipe takes.
fn fill_access_log(larder: &Larder) {
    let target = format!("/{}", "x".repeat(1000));
    let mut client = larder.client();
    (0..200).for_each(|_| assert_eq!(client.get(&target).status(), 200));
}

fn shell(script: &str) -> Output {
    run("sh", ["-c", &script.replace("larder", LARDER)])
}

#[track_caller]
fn assert_soon<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let outcome = act();
    assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
    outcome
}

fn upgraded(larder: &Larder) -> Successor {
    let answer = larder.ask_admin("POST", "/upgrade", "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
    Successor::new(answer["process"].as_u64().expect("a process"))
}

#[test]
fn an_access_log_that_nobody_reads_does_not_keep_the_process() {
    let origin = origin();
    let text = config(&origin, "[log]\naccess = \"stdout\"\n");
    for is_upgraded in [false, true] {
        let mut larder = start(&text, "1<>@dir@/pipe");
        fill_access_log(&larder);
        let _successor = is_upgraded.then(|| upgraded(&larder));
        if !is_upgraded {
            larder.signal(Signal::TERM);
        }
        let status = assert_soon("the stop", || larder.service().end());
        assert!(status.success(), "{status}");
        assert!(larder.stderr().contains("the last lines are lost"), "{}", larder.stderr());
    }
}

/// A pipe that takes nothing more, and that somebody has open for reading.
const FULL_PIPE: &str =
    "mkfifo @pipe@; exec 3<>@pipe@; dd if=/dev/zero bs=4096 count=64 oflag=nonblock >&3 2>/dev/null";

/// Addresses are told there.
#[test]
fn a_standard_output_that_nobody_reads_does_not_keep_the_process() {
    let origin = origin();
    let script = format!("{FULL_PIPE}; exec \"$@\" >@pipe@").replace("@pipe@", "@dir@/pipe");
    let setup = Setup::config(LARDER, &config(&origin, "")).under(&["sh", "-c", &script, "sh"]);
    let mut larder = assert_soon("the start", || setup.start());
    wait::until_true("it is told", || larder.stderr().contains("can't write the address: timed out"));
    let successor = assert_soon("an upgrade", || upgraded(&larder));
    assert!(assert_soon("the end", || larder.service().end()).success(), "{}", larder.stderr());
    assert_eq!(larder.ask_admin("GET", "/ready", "").status(), 200);
    successor.signal(Signal::TERM);
    assert_soon("the stop", || successor.end());
}

/// A machine that is suspended in the middle of an upgrade, or a process: when it goes on, the new one serves.
#[test]
fn an_upgrade_outlives_a_standstill_of_the_old_process() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::copy(LARDER, path("larder")).expect("a copy of the program");
    let mut larder = Setup::config(&path("larder").display().to_string(), &config(&origin, "")).start();
    fs::remove_file(path("larder")).expect("the copy");
    let (started, go) = (path("started"), path("go"));
    let wait_for_go =
        format!("echo $$ > {}; until [ -e {} ]; do sleep 0.05; done", started.display(), go.display());
    fs::write(path("larder"), format!("#!/bin/sh\n{wait_for_go}\nexec {LARDER} \"$@\"\n")).expect("a script");
    run("chmod", ["+x", &path("larder").display().to_string()]).succeeded();
    larder.signal(Signal::USR2);
    let began = Instant::now();
    let id = wait::until("the program runs", || fs::read_to_string(&started).ok()?.trim().parse().ok());
    let successor = Successor::new(id);
    larder.signal(Signal::STOP);
    fs::write(&go, "").expect("a file");
    wait::until_true("the new process serves", || larder.stderr().matches("listening").count() > 1);
    wait::until_true("the limit for new processes is over", || began.elapsed() > Duration::from_secs(21));
    larder.signal(Signal::CONT);
    let status = assert_soon("the end of the old process", || larder.service().end());
    assert!(status.success(), "{status}: {}", larder.stderr());
    assert_eq!(larder.get("/").status(), 200, "the new process serves");
    successor.signal(Signal::TERM);
    successor.end();
}

#[test]
fn a_pipe_without_a_reader_is_no_access_log() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe);
    let log = pipe.display().to_string();
    let serve = ["serve", "--origin", &origin.url(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let arguments = [&serve[..], &["--access-log", &log]].concat();
    let refused = assert_soon("the start", || run(LARDER, arguments));
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("it is a pipe (FIFO) that no process reads"), "{}", refused.stderr);
    let refused = run(LARDER, [&serve[..], &["--access-log", "/proc/no-such"]].concat());
    assert_eq!(
        refused.stderr.matches("No such file").count(),
        1,
        "the reason is told once: {}",
        refused.stderr
    );

    let mut larder = Setup::config(LARDER, &config(&origin, "[log]\naccess = \"@dir@/log\"\n")).start();
    let log = larder.folder().join("log");
    fs::remove_file(&log).expect("it is there");
    mkfifo(&log);
    larder.signal(Signal::USR1);
    wait::until_true("it is refused", || larder.stderr().contains("can't reopen the access log"));
    assert_operable(&mut larder);
}

#[test]
fn an_access_log_whose_reader_has_stopped_is_reopened() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe);
    let _reader = File::options().read(true).write(true).open(&pipe).expect("it opens");
    let settings = format!("[log]\naccess = \"{}\"\n", pipe.display());
    let mut larder = Setup::config(LARDER, &config(&origin, &settings)).start();
    fill_access_log(&larder);
    larder.signal(Signal::USR1);
    assert_operable(&mut larder);
}

/// Probes, a reload and a stop.
#[track_caller]
fn assert_operable(larder: &mut Larder) {
    for (method, target) in [("GET", "/ready"), ("POST", "/reload"), ("GET", "/ready")] {
        let answer = assert_soon(target, || larder.ask_admin(method, target, ""));
        assert_eq!(answer.status(), 200, "{target}: {}", answer.text());
    }
    larder.signal(Signal::TERM);
    assert!(assert_soon("the stop", || larder.service().end()).success(), "{}", larder.stderr());
}

#[test]
fn a_reload_reads_regular_files_only() {
    let origin = origin();
    let mut larder = Setup::config(LARDER, &config(&origin, "")).start();
    mkfifo(&larder.folder().join("pipe"));
    let secret =
        "[[origin]]\nname = \"o\"\nurl = \"http://127.0.0.1:1\"\n[origin.credentials]\nbasic_file = ";
    for (more, told) in [
        (
            "include = [\"@dir@/pipe\"]\n".to_owned(),
            "pipe can't be read: it is a pipe (FIFO), not a regular file",
        ),
        (
            "include = [\"/dev/zero\"]\n".to_owned(),
            "/dev/zero can't be read: it is a device, not a regular file",
        ),
        (format!("{secret}\"@dir@/pipe\"\n"), "pipe can't be read: it is a pipe (FIFO), not a regular file"),
        (format!("{secret}\"@dir@\"\n"), "can't be read: it is a directory, not a regular file"),
    ] {
        larder.write_config(&config(&origin, &more));
        let refused = assert_soon(&more, || larder.ask_admin("POST", "/reload", ""));
        assert_eq!(refused.status(), 422, "{more}: {}", refused.text());
        assert!(refused.text().contains(told), "{more}: {}", refused.text());
    }
    let file = larder.folder().join("larder.toml");
    fs::remove_file(&file).expect("the file of before");
    mkfifo(&file);
    larder.signal(Signal::HUP);
    wait::until_true("the signal is obeyed", || larder.metric("larder_reloads_total", &["refused"]) == 5.0);
    let refused = assert_soon("an upgrade", || larder.ask_admin("POST", "/upgrade", ""));
    assert_eq!(refused.status(), 409, "{}", refused.text());
    let stderr = larder.stderr();
    assert!(
        stderr.contains("larder.toml: error: can't be read: it is a pipe (FIFO), not a regular file"),
        "{stderr}"
    );
    assert!(
        !stderr.contains("takes effect only after a restart"),
        "nothing was read, so nothing changed: {stderr}"
    );
    assert_eq!(larder.get("/").status(), 200);
}

#[test]
fn check_reads_pipes_and_has_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let site = "[[site]]\nname = \"a\"\norigin = \"http://127.0.0.1:1\"\n";
    let write = |name: &str, text: String| fs::write(path(name), text).expect("a file");
    write("good", site.to_owned());
    write("large", "#".repeat((16 << 20) + 1));
    write("secret", format!("0123456789abcdef\n{}", "x".repeat(64 << 10)));
    write("token", format!("{site}[admin]\ntoken_file = \"secret\"\n"));
    write("zero", format!("{site}[admin]\ntoken_file = \"/dev/zero\"\n"));
    for (script, status, told) in [
        (format!("cat {} | larder check /dev/stdin", path("good")), 0, "/dev/stdin: usable"),
        (format!("larder check - < {}", path("good")), 0, "stdin: usable"),
        (format!("larder check {}", path("large")), 1, "can't be read: larger than 16MiB"),
        ("larder check /dev/zero".to_owned(), 1, "can't be read: larger than 16MiB"),
        (format!("larder check {}", path("token")), 1, "secret can't be read: larger than 64KiB"),
        (
            format!("larder check {}", path("zero")),
            1,
            "/dev/zero can't be read: it is a device, not a regular file",
        ),
    ] {
        let output = shell(&script);
        assert_eq!(output.status, status, "{script}: {}", output.stderr);
        assert!(output.text().contains(told), "{script}: {}", output.text());
    }
}

#[test]
fn one_upgrade_at_a_time() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("larder");
    fs::copy(LARDER, &program).expect("a copy of the program");
    let text = config(&origin, "drain_delay = \"2s\"\n");
    let mut larder = Setup::config(&program.display().to_string(), &text).start();
    let started = folder.path().join("started");
    fs::remove_file(&program).expect("the copy");
    let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 600\n", started.display());
    fs::write(&program, script).expect("a script");
    run("chmod", ["+x", &program.display().to_string()]).succeeded();
    larder.signal(Signal::USR2);
    let id = wait::until("the program runs", || fs::read_to_string(&started).ok()?.trim().parse().ok());
    let never_serves = Successor::new(id);
    let refused = assert_soon("the second", || larder.ask_admin("POST", "/upgrade", ""));
    assert_eq!(refused.status(), 409);
    assert!(refused.text().contains("an upgrade is under way"), "{}", refused.text());
    larder.signal(Signal::TERM);
    let began = Instant::now();
    wait::until_true("the drain has begun", || larder.ask_admin("GET", "/ready", "").status() == 503);
    let refused = assert_soon("during the drain", || larder.ask_admin("POST", "/upgrade", ""));
    assert_eq!(refused.status(), 409);
    assert!(refused.text().contains("the process ends"), "{}", refused.text());
    assert!(larder.service().end().success());
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    never_serves.end();
}

#[test]
fn clients_that_are_refused_do_not_lock_others_out() {
    let origin = origin();
    let probes = Port::reserve();
    let admin = format!(
        "[admin]\nlisten = \"@admin@\"\ntoken_file = \"@dir@/token\"\nprobes_listen = \"{}\"\n",
        probes.address()
    );
    let setup = Setup::config(LARDER, &config(&origin, &admin)).file("token", "s3cret-s3cret-s3cret\n");
    let larder = setup.start_when(probes.address());
    let silent: Vec<Client> = (0..64)
        .map(|_| {
            let mut client = Client::connect(larder.admin());
            client.send("POST /purge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nx");
            client
        })
        .collect();
    let answer = assert_soon("a client with the token", || {
        wait::until("it is answered", || {
            let mut client = Client::connect(larder.admin());
            let fields = "Host: localhost\r\nAuthorization: Bearer s3cret-s3cret-s3cret\r\n";
            client.try_send(format!("GET /ready HTTP/1.1\r\n{fields}\r\n")).ok()?;
            client.try_response_to("GET").ok()
        })
    });
    assert_eq!(answer.status(), 200);
    drop(silent);
}

#[test]
fn outputs_that_are_full_end_nothing_by_a_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good.toml");
    fs::write(&good, "[[site]]\nname = \"a\"\norigin = \"http://127.0.0.1:1\"\n").expect("a file");
    for (script, status) in [
        ("larder version >/dev/full", 1),
        ("larder completions bash >/dev/full", 1),
        ("larder --help >/dev/full", 1),
        ("larder help serve >/dev/full", 1),
        ("larder --version >/dev/full", 1),
        ("larder --help | head -c 0", 0),
        ("larder check --json @good@ >/dev/full", 1),
        ("larder check @good@ >/dev/full 2>/dev/full", 1),
        ("larder version 2>/dev/full", 0),
        ("larder status --admin 127.0.0.1:1 2>/dev/full", 1),
        ("larder purge http://a/ --admin 127.0.0.1:1 2>/dev/full", 1),
        ("larder explain --request nothing --response nothing 2>/dev/full", 1),
        ("larder version 2>&-", 0),
        ("larder version | head -c 0", 0),
    ] {
        let script = script.replace("@good@", &good.display().to_string());
        let output = shell(&script);
        assert_eq!(output.status, status, "{script}: {}", output.stderr);
    }
    let origin = origin();
    let words = output_to("2>/dev/full >/dev/full");
    let setup = Setup::origin(LARDER, &origin.url()).environment("LARDER_SERVE_FOO", "1");
    let mut larder = setup.under(&words.each_ref().map(String::as_str)).start();
    assert_operable(&mut larder);
}

#[test]
fn an_event_log_that_nobody_reads_stops_nothing() {
    let origin = origin();
    let mut larder = start(&config(&origin, ""), "2<>@dir@/pipe");
    let body = format!("{{\"url\":\"http://test.example/{}\"}}", "x".repeat(7_000));
    for _ in 0..250 {
        assert_eq!(larder.ask_admin("POST", "/purge", &body).status(), 200);
    }
    assert_eq!(larder.get("/").status(), 200);
    assert!(larder.metric("larder_log_dropped_total", &[]) > 0.0);
    assert_operable(&mut larder);
}

/// Each had an excerpt, which looked at all the others.
#[test]
fn problems_that_are_many_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = "[[site]]\nname = \"a\"\norigin = \"http://127.0.0.1:1\"\n";
    let lines: String = (0..5_000).map(|number| format!("unknown_{number} = {number}\n")).collect();
    let inline: Vec<_> = (0..5_000).map(|number| format!("unknown_{number} = {number}")).collect();
    for (name, text) in
        [("lines", lines + site), ("inline", format!("{site}[log]\nredact = {{ {} }}\n", inline.join(", ")))]
    {
        let path = folder.path().join(name).display().to_string();
        fs::write(&path, text).expect("a file");
        let output = assert_soon(name, || run(LARDER, ["check", &path]));
        assert_eq!(output.status, 1, "{}", output.stderr);
        assert!(output.text().len() < 64 << 10, "excerpts of long lines are cut: {}", output.text().len());
        let script = format!("{FULL_PIPE}; exec larder serve {path} 2>@pipe@");
        let script =
            script.replace("@pipe@", &folder.path().join(format!("{name}.pipe")).display().to_string());
        let unread = assert_soon(name, || shell(&script));
        assert_eq!(unread.status, 1, "{}", unread.stderr);
        if name == "lines" {
            assert_eq!(output.text().matches("unknown key").count(), 100);
            assert!(output.text().ends_with("and 4900 more\n5000 errors, 0 warnings\n"), "{}", output.text());
            let output = run(LARDER, ["check", "--json", &path]);
            let report: Value = serde_json::from_str(&output.text()).expect("JSON");
            assert_eq!(report["problems"].as_array().map(Vec::len), Some(100));
            assert_eq!(report["left_out"], serde_json::json!({ "errors": 4_900, "warnings": 0 }));
        }
    }
}

#[test]
fn a_line_that_a_full_disk_cuts_is_finished() {
    let origin = origin();
    let text = config(&origin, "[log]\naccess = \"@dir@/log\"\n");
    // In blocks of 512 bytes, or of twice as many: files may not grow beyond, as if the disk were full.
    let limited = ["sh", "-c", "ulimit -S -f 5; exec \"$@\"", "sh"];
    let mut larder = Setup::config(LARDER, &text).under(&limited).start();
    let log = larder.folder().join("log");
    let mut client = larder.client();
    (0..40).for_each(|_| assert_eq!(client.get("/").status(), 200));
    wait::until_true("lines are dropped", || larder.metric("larder_access_log_dropped_total", &[]) > 0.0);
    let id = larder.service().id().to_string();
    run("prlimit", ["--pid", &id, "--fsize=unlimited"]).succeeded();
    (0..40).for_each(|_| assert_eq!(client.get("/").status(), 200));
    let dropped = larder.metric("larder_access_log_dropped_total", &[]);
    larder.signal(Signal::TERM);
    assert!(larder.service().end().success());
    let text = fs::read_to_string(&log).expect("it is there");
    let cut: Vec<_> = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_err()).collect();
    assert!(cut.is_empty(), "{cut:?}");
    assert_eq!(text.lines().count() as f64 + dropped, 80.0);
}

/// It was cut in a process before, which could not finish it.
#[test]
fn a_line_that_another_process_left_cut_stands_alone() {
    let origin = origin();
    let setup = Setup::config(LARDER, &config(&origin, "[log]\naccess = \"@dir@/log\"\n"));
    let mut larder = setup.file("log", "{\"of\":\"before\"}\n{\"cut").start();
    assert_eq!(larder.get("/").status(), 200);
    larder.signal(Signal::TERM);
    assert!(larder.service().end().success());
    let text = fs::read_to_string(larder.folder().join("log")).expect("it is there");
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str::<Value>(line).is_ok()).collect();
    assert_eq!(lines, [true, false, true], "{text}");
}

#[test]
fn a_line_that_is_no_text_refuses_itself_alone() {
    let origin = origin();
    let larder = Setup::config(LARDER, &config(&origin, "")).start();
    larder.get("/");
    let script =
        format!("printf '\\377\\nhttp://test.example/\\n' | larder purge - --admin {}", larder.admin());
    let output =
        Command::new("sh").args(["-c", &script.replace("larder", LARDER)]).output().expect("a shell");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("line 1") && text.contains("URLs: 1 purged, 0 without a stored response, 1 refused"),
        "{text}"
    );
}

/// As many as there may be: it serves, or says why it does not.
#[test]
fn a_start_with_few_open_files_serves_or_says_why_not() {
    let origin = origin();
    let mut refused = 0;
    for limit in (10..40).step_by(3) {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::reserve());
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", LARDER, "serve", "--origin", &origin.url(), "--workers", "1"]);
        command.args(["--listen", &port.address().to_string(), "--admin", "127.0.0.1:0"]);
        let mut service = Service::start(&mut command, folder.path(), "larder");
        let ended = wait::until("it listens, or ends", || match service.status() {
            None if service.listening().is_empty() => None,
            status => Some(status),
        });
        let Some(status) = ended else {
            assert_eq!(Client::connect(port.address()).get("/").status(), 200, "with {limit} open files");
            continue;
        };
        let stderr = service.stderr();
        assert_eq!(status.code(), Some(1), "with {limit} open files: {stderr}");
        let is_told = ["Too many open files", "the limit of open files leaves"]
            .iter()
            .any(|told| stderr.contains(told));
        assert!(is_told, "with {limit} open files: {stderr}");
        refused += 1;
    }
    assert!((1..10).contains(&refused), "{refused} of 10 are refused");
}

#[test]
fn connections_that_are_not_accepted_do_not_fill_the_log() {
    let origin = origin();
    let limited = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
    let setup = Setup::config(LARDER, &config(&origin, "workers = 1\n")).under(&limited);
    let larder = setup.start();
    let clients: Vec<_> = (0..64).map(|_| larder.client()).collect();
    let told = |count: usize| {
        wait::until_true("it is told", || {
            larder.stderr().matches("connection not accepted").count() >= count
        });
        Instant::now()
    };
    let (first, third) = (told(1), told(3));
    assert!(third - first > Duration::from_millis(900), "{}", larder.stderr());
    assert!(larder.stderr().contains("left_out"), "{}", larder.stderr());
    drop(clients);
}
