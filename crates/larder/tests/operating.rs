//! What operators do to the running binary: purge, reload, stop.

use std::process::{Command, Output};

use testkit::{Larder, Port, ScriptedOrigin, Setup, Signal, wait};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

fn config(origin: &ScriptedOrigin, more: &str) -> String {
    format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n{more}", origin.url())
}

fn operate(larder: &Larder, arguments: &[&str]) -> Output {
    let admin = larder.admin().to_string();
    Command::new(LARDER).args(arguments).args(["--admin", &admin]).output().expect("the binary runs")
}

#[track_caller]
fn check(output: &Output, status: i32, part: &str) {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

#[test]
fn purge_by_command() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\nETag: \"1\"\r\n", "body");
    let larder = Setup::origin(LARDER, &origin.url()).start();
    // The host that clients ask for counts, not the address that they connect to.
    let url = "http://test.example/x";
    assert!(larder.get("/x").cache_status().contains("stored"));
    check(
        &operate(&larder, &["purge", url]),
        0,
        "(hard): stored responses 1, fills in progress 0, cache keys 1",
    );
    assert!(larder.get("/x").cache_status().contains("fwd=uri-miss"));
    check(&operate(&larder, &["purge", "--soft", url]), 0, "(soft): stored responses 1");
    assert!(larder.get("/x").cache_status().contains("fwd=stale"));
    check(&operate(&larder, &["purge", "http://test.example/never-asked"]), 0, "stored responses 0");
    check(&operate(&larder, &["purge", "nonsense"]), 1, "refused (400 Bad Request)");
}

//= RFC 9111 section 7: stored content is sensitive
#[test]
fn purge_with_a_token() {
    let origin = ScriptedOrigin::fixed("", "body");
    let port = Port::reserve();
    // Readiness is asked for without a token, so it is on an address of its own here.
    let addresses = format!("listen = \"{}\"\nprobes_listen = \"@admin@\"", port.address());
    let text = config(&origin, &format!("[admin]\n{addresses}\ntoken_file = \"token\"\n"));
    let setup = Setup::config(LARDER, &text);
    let larder = setup.file("token", "0123456789abcdef\n").file("wrong", "0123456789abcdeF\n").start();
    let url = larder.url("/x");
    let purge = |more: &[&str]| {
        let admin = port.address().to_string();
        let arguments = ["purge", &url, "--admin", &admin].into_iter().chain(more.iter().copied());
        Command::new(LARDER).current_dir(larder.folder()).args(arguments).output().expect("the binary runs")
    };
    check(&purge(&["--token-file", "token"]), 0, "stored responses 0");
    check(&purge(&["--token-file", "wrong"]), 1, "refused (401 Unauthorized)");
    check(&purge(&[]), 1, "refused (401 Unauthorized)");
    check(&operate(&larder, &["purge", &url]), 1, "refused (404 Not Found)");
}

#[test]
fn reload_by_command_and_by_signal() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let mut larder = Setup::config(LARDER, &config(&origin, "")).start();
    let mut client = larder.client();
    assert_eq!(client.get("/x").field("x-cache"), "");

    larder.write_config(&config(&origin, "x_cache = true\n"));
    check(&operate(&larder, &["reload"]), 0, "the new configuration is in force");
    // The same connection, and what was stored before.
    assert_eq!(client.get("/x").field("x-cache"), "HIT");

    larder.write_config(&config(&origin, "x_cash = false\n"));
    check(&operate(&larder, &["reload"]), 1, "site[a].x_cash: unknown key; did you mean `x_cache`?");
    assert_eq!(client.get("/x").field("x-cache"), "HIT");

    larder.write_config(&config(&origin, "x_cache = false\n"));
    larder.signal(Signal::HUP);
    wait::until_true("the signal is obeyed", || larder.metric("larder_reloads_total", &["applied"]) == 2.0);
    assert_eq!(client.get("/x").field("x-cache"), "");
    assert_eq!(larder.metric("larder_reloads_total", &["refused"]), 1.0);
    assert_eq!(origin.total(), 1);
}

#[test]
fn a_stop_ends_with_status_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let origin = ScriptedOrigin::fixed("", "body");
        let mut larder = Setup::origin(LARDER, &origin.url()).start();
        larder.get("/");
        larder.signal(signal);
        assert_eq!(larder.service().end().code(), Some(0));
    }
}
