//! The event log: levels of sites, errors that clients may see, and limits for repeated events.

use std::time::{Duration, Instant};

use testkit::{Larder, Setup, wait};

use crate::LARDER;
use crate::admin::operator::{SITE, assert_operable, start};

fn two_sites() -> Larder {
    let site = |name: &str, more: &str| {
        SITE.replace("\"a\"", &format!("\"{name}\"")) + &format!("hosts = [\"{name}.example\"]\n{more}")
    };
    let talkative = site("talkative", "log_level = \"warn\"\nexpose_errors = true\n");
    start(&format!("[log]\nlevel = \"error\"\n{talkative}{}", site("quiet", "")))
}

fn get(larder: &Larder, host: &str) -> String {
    let head = format!("GET /page?token=secret HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let response = larder.client().send(head).response();
    assert_eq!(response.status(), 502);
    response.text()
}

#[test]
fn each_site_has_its_own_log_level_and_tells_clients_of_errors_where_it_says_so() {
    let larder = two_sites();
    assert_eq!(get(&larder, "quiet.example"), "502 Bad Gateway\n");
    assert!(get(&larder, "talkative.example").contains("connection-refused"));
    wait::until_true("the talkative site is logged", || larder.stderr().contains("site=talkative"));
    let log = larder.stderr();
    assert!(log.contains("connection-refused") && log.contains("/page"), "{log}");
    assert!(!log.contains("site=quiet") && !log.contains("secret"), "{log}");
}

/// Field bug: each request for which an origin failed wrote a line, which filled the disk.
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

/// Field bug: refused purges or looping requests displaced the failures of the origin from the log.
#[test]
fn one_kind_of_warnings_leaves_room_for_others() {
    let config = format!("[purge]\ntoken_file = \"token\"\n{SITE}");
    let larder = Setup::config(LARDER, &config).file("token", "0123456789abcdef0123456789abcdef").start();
    let warned = |what: &str| larder.stderr().matches(what).count();
    // More of each kind than are logged in a second.
    let fill = |method: &str, fields: &str| (0..40).for_each(|_| drop(larder.ask(method, "/", fields)));
    fill("PURGE", "");
    fill("GET", &"Via: 1.1 larder\r\n".repeat(9));
    larder.get("/failing");
    wait::until_true("the failure is logged", || warned("the origin gave no response") == 1);
    for what in ["a PURGE was refused", "client=127.0.0.1", "a request that was forwarded came back"] {
        assert!((1..40).contains(&warned(what)), "{what}: {}", larder.stderr());
    }
}

#[test]
fn an_event_log_that_nobody_reads_stops_nothing() {
    let words = ["sh", "-c", "mkfifo @dir@/pipe; exec \"$@\" 2<>@dir@/pipe", "sh"];
    let mut larder = Setup::config(LARDER, SITE).under(&words).start();
    let body = format!("{{\"url\":\"http://test.example/{}\"}}", "x".repeat(7_000));
    for _ in 0..250 {
        assert_eq!(larder.ask_admin("POST", "/purge", &body).status(), 200);
    }
    assert_eq!(larder.get("/").status(), 502);
    assert!(larder.metric("larder_log_dropped_total", &[]) > 0.0);
    assert_operable(&mut larder);
}

#[test]
fn connections_that_are_not_accepted_do_not_fill_the_log() {
    let limited = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
    let larder = Setup::config(LARDER, &format!("workers = 1\n{SITE}")).under(&limited).start();
    let clients: Vec<_> = (0..64).map(|_| larder.client()).collect();
    let told = |count: usize| {
        let lines = || larder.stderr().matches("connection not accepted").count();
        wait::until_true("it is logged", || lines() >= count);
        Instant::now()
    };
    let (first, third) = (told(1), told(3));
    assert!(third - first > Duration::from_millis(900), "{}", larder.stderr());
    assert!(larder.stderr().contains("left_out"), "{}", larder.stderr());
    drop(clients);
}
