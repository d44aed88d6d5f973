//! A reload: applied or refused as a whole, by command and by signal, under load, and with slow or odd files.

use std::fs;
use std::thread;

use testkit::{ScriptedOrigin, Signal, run, wait};

use crate::LARDER;
use crate::admin::operator::{
    SITE, check, echoing, lasting, mkfifo, named, operate, printed, reload, shell, site, soon, start,
};
use crate::admin::steady_clients::{Load, Refused};

#[test]
fn a_reload_by_command_and_by_signal_keeps_connections_and_the_cache() {
    let origin = lasting();
    let mut larder = start(&site(&origin, ""));
    let mut client = larder.client();
    assert_eq!(client.get("/x").field("x-cache"), "");
    larder.write_config(&site(&origin, "x_cache = true\n"));
    check(&operate(&larder, &["reload"]), 0, "configuration reloaded");
    assert_eq!(client.get("/x").field("x-cache"), "HIT");
    larder.write_config(&site(&origin, "x_cash = false\n"));
    check(&operate(&larder, &["reload"]), 1, "site[a].x_cash: unknown key; did you mean `x_cache`?");
    assert_eq!(client.get("/x").field("x-cache"), "HIT");
    larder.write_config(&site(&origin, "x_cache = false\n"));
    larder.signal(Signal::HUP);
    wait::until_true("the signal is obeyed", || larder.metric("larder_reloads_total", &["applied"]) == 2.0);
    assert_eq!(client.get("/x").field("x-cache"), "");
    assert_eq!(larder.metric("larder_reloads_total", &["refused"]), 1.0);
    assert_eq!(origin.total(), 1);
}

/// A reload refuses every file that a start would refuse, even if the wrong value doesn't take effect in a reload.
#[test]
fn a_reload_tells_what_it_leaves_and_refuses_what_a_start_refuses() {
    let mut larder = start(SITE);
    larder.write_config(&format!("{SITE}[store]\nmemory = \"300MiB\"\n"));
    let reloaded = operate(&larder, &["reload"]);
    check(&reloaded, 0, "warning: store.memory: changed, but takes effect only after a restart");
    check(&reloaded, 0, "configuration reloaded");
    for (more, told) in [
        ("[store]\nmemory = \"1\"\n", "error: store.memory: expected a size"),
        ("[admin]\nlisten = \"nowhere\"\n#@admin@\n", "error: admin.listen: expected an address and port"),
        ("store = \"b\"\n", "error: site[a].store: "),
    ] {
        larder.write_config(&format!("{SITE}{more}"));
        let file = larder.folder().join("larder.toml").display().to_string();
        check(&run(LARDER, ["check", &file]), 1, told);
        let refused = operate(&larder, &["reload"]);
        check(&refused, 1, told);
        let warnings = (refused.stderr + &larder.stderr()).matches("takes effect only").count();
        assert_eq!(warnings, 1, "only from the earlier reload: {}", larder.stderr());
    }
    larder.write_config(SITE);
    check(&operate(&larder, &["reload"]), 0, "configuration reloaded");
}

/// Connections to an origin server survive a reload unless the settings for reaching it change.
#[test]
fn a_reload_keeps_connections_while_the_server_is_the_same() {
    let (first, second) = (ScriptedOrigin::fixed("", "first"), ScriptedOrigin::fixed("", "second"));
    let text = |origin: &ScriptedOrigin, policy: &str, site: &str| {
        let origin = format!("[[origin]]\nname = \"o\"\nurl = \"{}\"\n{policy}", origin.url());
        format!("{origin}[[site]]\nname = \"a\"\norigin = \"o\"\n{site}")
    };
    let mut larder = start(&text(&first, "", ""));
    let mut body_after = |text: &str| {
        larder.write_config(text);
        reload(&larder);
        larder.get("/").text()
    };
    for (policy, site) in [
        ("", ""),
        ("", "timeouts = { first_byte = \"20s\" }\n"),
        ("[origin.pool]\nrequests_in_flight_max = 2\n", ""),
        ("host = \"inner.example\"\n", ""),
    ] {
        assert_eq!(body_after(&text(&first, policy, site)), "first", "{policy}{site}");
    }
    assert_eq!(first.received().last().expect("it was asked").field("host"), "inner.example");
    assert_eq!((first.total(), first.connections()), (4, 1));
    assert_eq!(body_after(&text(&second, "", "")), "second");
    assert_eq!((first.total(), second.total(), second.connections()), (4, 1, 1));
}

/// Returns `count` sites, which take long to read.
fn sites(count: usize) -> String {
    let site = |number| {
        SITE.replace("\"a\"", &format!("\"{number}\"")) + &format!("hosts = [\"{number}.example\"]\n")
    };
    (0..count).map(site).collect()
}

/// A reload that reads a large file delays neither probes nor clients.
#[test]
fn a_reload_that_reads_slowly_blocks_nobody() {
    let origin = echoing();
    let mut larder = start(&site(&origin, ""));
    larder.write_config(&(site(&origin, "hosts = [\"test.example\"]\n") + &sites(5_000)));
    thread::scope(|scope| {
        let reload = scope.spawn(|| reload(&larder));
        for _ in 0..20 {
            assert_eq!(larder.ask_admin("GET", "/ready", "").status(), 200);
            assert_eq!(larder.get("/miss").status(), 200);
        }
        reload.join().expect("it does not panic");
    });
}

/// A reload may take long because of a large file or a name look-up: a stop doesn't wait for it.
#[test]
fn a_stop_does_not_wait_for_a_reload() {
    let mut larder = start(SITE);
    larder.write_config(&(SITE.to_owned() + &sites(10_000)));
    for signal in [Signal::HUP, Signal::USR1, Signal::TERM] {
        larder.signal(signal);
    }
    assert_eq!(larder.service().end().code(), Some(0));
    let stderr = larder.stderr();
    assert!(stderr.contains("stopping: requests in flight may finish"), "{stderr}");
    assert!(!stderr.contains("configuration reloaded"), "{stderr}");
}

#[test]
fn reloads_under_load_fail_no_request_and_keep_the_cache() {
    let origin = echoing();
    let mut larder = start(&named(&origin, "before"));
    let load = Load::start(&larder, 8, Refused::Fails);
    for round in 0..10 {
        let name = format!("round-{round}");
        larder.write_config(&named(&origin, &name));
        larder.signal(Signal::HUP);
        wait::until_true("the new name is used", || larder.get("/hit").cache_status().starts_with(&name));
        load.wait_for_answers(50);
    }
    for (broken, count) in
        ["not = [toml", "unknown_key = 1\n", "", "[[site]]\nname = \"a\"\n"].iter().zip(0..)
    {
        larder.write_config(broken);
        larder.signal(Signal::HUP);
        larder.wait_for("larder_reloads_total", &["refused"], |refused| refused > f64::from(count * 2));
        let output = operate(&larder, &["reload"]);
        check(&output, 1, "");
        assert!(output.stderr.contains("larder.toml"), "it names the file: {}", output.stderr);
        assert!(larder.get("/hit").cache_status().starts_with("round-9"));
        load.wait_for_answers(50);
    }
    larder.write_config(&named(&origin, "better"));
    operate(&larder, &["reload"]).succeeded();
    assert!(larder.get("/hit").cache_status().starts_with("better"));
    load.finish();
    assert_eq!(origin.count("/hit"), 1, "the stored response is kept");
}

#[test]
fn a_reload_reads_regular_files_only() {
    let origin = lasting();
    let mut larder = start(&site(&origin, ""));
    mkfifo(&larder.folder().join("pipe"));
    let secret = |path: &str| {
        let named = "[[origin]]\nname = \"o\"\nurl = \"http://127.0.0.1:1\"\n";
        format!("{named}[origin.credentials]\nbasic_file = \"{path}\"\n")
    };
    let include = |path: &str| format!("include = [\"{path}\"]\n");
    let pipe = "pipe can't be read: it is a pipe (FIFO), not a regular file";
    for (more, told) in [
        (include("@dir@/pipe"), pipe),
        (include("/dev/zero"), "/dev/zero can't be read: it is a device, not a regular file"),
        (secret("@dir@/pipe"), pipe),
        (secret("@dir@"), "can't be read: it is a directory, not a regular file"),
    ] {
        larder.write_config(&(more.clone() + &site(&origin, "")));
        let refused = soon(&more, || larder.ask_admin("POST", "/reload", ""));
        assert_eq!(refused.status(), 422, "{more}: {}", refused.text());
        assert!(refused.text().contains(told), "{more}: {}", refused.text());
    }
    let file = larder.folder().join("larder.toml");
    fs::remove_file(&file).expect("the file of before");
    mkfifo(&file);
    larder.signal(Signal::HUP);
    wait::until_true("the signal is obeyed", || larder.metric("larder_reloads_total", &["refused"]) == 5.0);
    let refused = soon("an upgrade", || larder.ask_admin("POST", "/upgrade", ""));
    assert_eq!(refused.status(), 409, "{}", refused.text());
    let stderr = larder.stderr();
    assert!(stderr.contains(&format!("larder.toml: error: {}", &pipe["pipe ".len()..])), "{stderr}");
    assert!(!stderr.contains("takes effect only"), "nothing was read, so nothing changed: {stderr}");
    assert_eq!(larder.get("/").status(), 200);
}

#[test]
fn check_reads_pipes_and_has_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| fs::write(path(name), text).expect("a file");
    write("good", SITE);
    write("large", &"#".repeat((16 << 20) + 1));
    write("secret", &format!("0123456789abcdef\n{}", "x".repeat(64 << 10)));
    write("token", &format!("{SITE}[admin]\ntoken_file = \"secret\"\n"));
    write("zero", &format!("{SITE}[admin]\ntoken_file = \"/dev/zero\"\n"));
    for (script, status, told) in [
        ("cat @/good | larder check /dev/stdin", 0, "/dev/stdin: usable"),
        ("larder check - < @/good", 0, "stdin: usable"),
        ("larder check @/large", 1, "can't be read: larger than 16MiB"),
        ("larder check /dev/zero", 1, "can't be read: larger than 16MiB"),
        ("larder check @/token", 1, "secret can't be read: larger than 64KiB"),
        ("larder check @/zero", 1, "/dev/zero can't be read: it is a device, not a regular file"),
    ] {
        let output = shell(&script.replace('@', &folder.path().display().to_string()));
        assert_eq!(output.status, status, "{script}: {}", output.stderr);
        assert!(printed(&output).contains(told), "{script}: {}", printed(&output));
    }
}
