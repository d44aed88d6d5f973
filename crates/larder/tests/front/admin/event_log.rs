//! The event log: each site says how much of it is logged, and errors tell clients only what their site allows.

use std::time::Instant;

use testkit::{Larder, Setup, wait};

use crate::LARDER;

/// Two sites whose origin refuses connections.
fn two_sites() -> Larder {
    let config = r#"
        [log]
        level = "error"
        [[site]]
        name = "talkative"
        hosts = ["talkative.example"]
        origin = "http://127.0.0.1:1"
        log_level = "warn"
        expose_errors = true
        [[site]]
        name = "quiet"
        hosts = ["quiet.example"]
        origin = "http://127.0.0.1:1"
    "#;
    Setup::config(LARDER, config).start()
}

fn get(larder: &Larder, host: &str) -> String {
    let mut client = larder.client();
    client.send(format!("GET /page?token=secret HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = client.response_to("GET");
    assert_eq!(response.status(), 502);
    response.text()
}

#[test]
fn each_site_has_its_own_log_level_and_no_query_is_logged() {
    let larder = two_sites();
    get(&larder, "quiet.example");
    get(&larder, "talkative.example");
    wait::until_true("the talkative site is logged", || larder.stderr().contains("site=talkative"));
    let log = larder.stderr();
    assert!(log.contains("connection-refused") && log.contains("/page"), "{log}");
    assert!(!log.contains("site=quiet") && !log.contains("secret"), "{log}");
}

#[test]
fn errors_are_exposed_only_where_the_site_says_so() {
    let larder = two_sites();
    assert_eq!(get(&larder, "quiet.example"), "502 Bad Gateway\n");
    assert!(get(&larder, "talkative.example").contains("connection-refused"));
}

/// Field bug: each request that an origin failed wrote a line, so that whoever sent many filled the disk.
#[test]
fn requests_write_few_warnings() {
    let larder = two_sites();
    let started = Instant::now();
    (0..200).for_each(|_| drop(get(&larder, "talkative.example")));
    let seconds = usize::try_from(started.elapsed().as_secs()).expect("it is short") + 2;
    let written = larder.stderr().matches("the origin gave no response").count();
    assert!((1..=10 * seconds).contains(&written), "{written} in {seconds} s");
    let told = wait::until("the rest is counted", || {
        get(&larder, "talkative.example");
        larder.stderr().contains("left_out=").then(|| larder.stderr())
    });
    assert!(told.contains("site=talkative"), "{told}");
}

/// Field bug: whoever sent refused purges, or requests that had been here before, kept the failures of the origin out of the log.
#[test]
fn one_kind_of_warnings_leaves_room_for_others() {
    let config = "[purge]\ntoken_file = \"token\"\n[[site]]\nname = \"a\"\norigin = \"http://127.0.0.1:1\"\n";
    let larder = Setup::config(LARDER, config).file("token", "0123456789abcdef0123456789abcdef").start();
    let warned = |what: &str| larder.stderr().matches(what).count();
    // Each more than are written in a second.
    let fill = |method: &str, fields: &str| (0..40).for_each(|_| drop(larder.ask(method, "/", fields)));
    fill("PURGE", "");
    fill("GET", &"Via: 1.1 larder\r\n".repeat(9));
    larder.get("/failing");
    wait::until_true("the failure is logged", || warned("the origin gave no response") == 1);
    for what in ["a PURGE was refused", "client=127.0.0.1", "a request that was forwarded came back"] {
        assert!((1..40).contains(&warned(what)), "{what}: {}", larder.stderr());
    }
}
