//! Conditions under which operators must still have control: outputs that aren't read, full disks, few open files, and silent clients of
//! the admin API.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Port, Service, Setup, run, wait};

use crate::LARDER;
use crate::admin::operator::{
    SITE, assert_operable, ends, lasting, shell, site, soon, stop_successor, upgrade,
};

/// Fills a pipe that is open for reading until it accepts nothing more.
const FULL_PIPE: &str =
    "mkfifo @pipe@; exec 3<>@pipe@; dd if=/dev/zero bs=4096 count=64 oflag=nonblock >&3 2>/dev/null";

/// Addresses are printed there.
#[test]
fn a_standard_output_that_nobody_reads_does_not_keep_the_process() {
    let origin = lasting();
    let script = format!("{FULL_PIPE}; exec \"$@\" >@pipe@").replace("@pipe@", "@dir@/pipe");
    let setup = Setup::config(LARDER, &site(&origin, "")).under(&["sh", "-c", &script, "sh"]);
    let mut larder = soon("the start", || setup.start());
    wait::until_true("it is logged", || larder.stderr().contains("can't write the address: timed out"));
    let successor = soon("an upgrade", || upgrade(&larder));
    soon("the end", || ends(&mut larder));
    assert_eq!(larder.ask_admin("GET", "/ready", "").status(), 200);
    soon("the stop", || stop_successor(&successor));
}

#[test]
fn clients_that_are_refused_do_not_lock_others_out() {
    let probes = Port::reserve();
    let listen = format!("listen = \"@admin@\"\nprobes_listen = \"{}\"\n", probes.address());
    let text = format!("[admin]\n{listen}token_file = \"@dir@/token\"\n{SITE}");
    let setup = Setup::config(LARDER, &text).file("token", "s3cret-s3cret-s3cret\n");
    let larder = setup.start_when(probes.address());
    let mut silent: Vec<Client> = (0..64).map(|_| Client::connect(larder.admin())).collect();
    for client in &mut silent {
        client.send("POST /purge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nx");
    }
    let token = "Authorization: Bearer s3cret-s3cret-s3cret";
    let answer = soon("a client with the token", || {
        wait::until("it is answered", || {
            let mut client = Client::connect(larder.admin());
            client.try_send(format!("GET /ready HTTP/1.1\r\nHost: localhost\r\n{token}\r\n\r\n")).ok()?;
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
    fs::write(&good, SITE).expect("a file");
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
        let output = shell(&script.replace("@good@", &good.display().to_string()));
        assert_eq!(output.status, status, "{script}: {}", output.stderr);
    }
    let words = ["sh", "-c", "exec \"$@\" 2>/dev/full >/dev/full", "sh"];
    let setup = Setup::origin(LARDER, "http://127.0.0.1:1").environment("LARDER_SERVE_FOO", "1");
    assert_operable(&mut setup.under(&words).start());
}

/// Field bug: each problem had an excerpt, which searched all the others.
#[test]
fn problems_that_are_many_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let unknown = |end: &str| (0..5_000).map(|number| format!("unknown_{number} = {number}{end}")).collect();
    let [lines, inline]: [String; 2] = ["\n", ", "].map(unknown);
    let inline = format!("{SITE}[log]\nredact = {{ {} }}\n", inline.trim_end_matches(", "));
    for (name, text) in [("lines", lines + SITE), ("inline", inline)] {
        let path = folder.path().join(name).display().to_string();
        fs::write(&path, text).expect("a file");
        let output = soon(name, || run(LARDER, ["check", &path]));
        assert_eq!(output.status, 1, "{}", output.stderr);
        assert!(output.text().len() < 64 << 10, "excerpts of long lines are cut: {}", output.text().len());
        let script = format!("{FULL_PIPE}; exec larder serve {path} 2>@pipe@");
        let unread = soon(name, || shell(&script.replace("@pipe@", &format!("{path}.pipe"))));
        assert_eq!(unread.status, 1, "{}", unread.stderr);
        if name == "lines" {
            assert_eq!(output.text().matches("unknown key").count(), 100);
            assert!(output.text().ends_with("and 4900 more\n5000 errors, 0 warnings\n"), "{}", output.text());
            let report = run(LARDER, ["check", "--json", &path]).text();
            let report: Value = serde_json::from_str(&report).expect("JSON");
            assert_eq!(report["problems"].as_array().map(Vec::len), Some(100));
            assert_eq!(report["left_out"], json!({ "errors": 4_900, "warnings": 0 }));
        }
    }
}

#[test]
fn a_start_with_few_open_files_serves_or_says_why_not() {
    let origin = lasting();
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
        let reasons = ["Too many open files", "the limit of open files leaves"];
        assert!(reasons.iter().any(|told| stderr.contains(told)), "with {limit} open files: {stderr}");
        refused += 1;
    }
    assert!((1..10).contains(&refused), "{refused} of 10 are refused");
}
