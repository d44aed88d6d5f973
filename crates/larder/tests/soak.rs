//! Tests that take minutes to hours: `make soak`.

#[path = "front/kv/churn.rs"]
mod churn;
#[path = "front/kv/crowd.rs"]
mod crowd;
#[path = "soak/overload.rs"]
mod overload;
#[path = "front/cache/pressure.rs"]
mod pressure;
#[path = "soak/purges.rs"]
mod purges;
#[path = "front/cache/users.rs"]
mod users;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::Kv;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

#[test]
fn ten_thousand_clients_at_the_memory_limit_lose_no_reply() {
    crowd::run(10_000, Duration::from_secs(600), 256);
}

/// Sends random traffic for ten minutes; all responses together are four times as large as the store's limit.
#[test]
fn memory_stays_within_its_limit_for_ten_minutes() {
    pressure::run(Duration::from_secs(600), 64 << 20);
}

/// Does the same with the Redis-compatible server, which must use its limit fully but not exceed it.
#[test]
fn memory_of_kv_stays_at_its_limit_for_ten_minutes() {
    churn::run(Duration::from_secs(600), 1 << 30);
}

/// The largest value fits into the default memory: the received bytes become the value, which replaces another one.
#[test]
fn the_largest_value_fits_into_the_default_memory() {
    const VALUE: usize = 512 << 20;
    let kv = Kv::start(LARDER, &[]);
    let value: Vec<u8> = (0..VALUE).map(|at| ((at * 31) >> 7) as u8).collect();
    let bulk = [format!("${VALUE}\r\n").as_bytes(), &value, b"\r\n"].concat();
    for name in ["one", "one", "other"] {
        let set = [format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n", name.len()).as_bytes(), &bulk].concat();
        let given = testkit::converse(kv.address(), &set, 1 << 20);
        assert_eq!(String::from_utf8_lossy(&given), "+OK\r\n", "{name}");
        let get = format!("GET {name}\r\n");
        assert!(testkit::converse(kv.address(), get.as_bytes(), usize::MAX) == bulk, "{name} differs");
    }
    let peak = kv.service.peak_bytes() >> 20;
    // The process may use the limit, plus a tenth of it, plus 64 MiB.
    assert!(peak <= 1024 + 103 + 64, "{peak} MiB");
    eprintln!("at most {peak} MiB");
}

/// 500 users in bursts of 250, with origins of 35 styles that are healthy, slow, overloaded and down in turn: 105,000 responses.
#[test]
fn none_of_100_000_responses_is_made_for_somebody_else() {
    let outcome = users::Trial { users: 500, burst: 250, rounds: 12 }.run("");
    eprintln!("{outcome:#?}");
    assert_eq!(outcome.foreign.len(), 0);
    assert!(outcome.responses >= 100_000 && outcome.shared > 0 && outcome.collapsed > 0 && outcome.stale > 0);
}

/// Ten thousand purges, or slightly fewer on a busy machine.
#[test]
fn purges_of_a_fleet_with_a_wrong_clock_leave_nothing_older() {
    purges::run(Duration::from_secs(250));
}

#[test]
fn an_overloaded_origin_keeps_its_limit_and_hits_go_on() {
    overload::run(Duration::from_secs(300));
}

/// The workload of the figures that poor-man-s-cache has published. Takes half an hour.
#[test]
fn ten_million_requests_of_the_suites_of_poor_mans_cache_have_no_failure() {
    // Built by scripts/soak.
    let bench = Path::new(LARDER).with_file_name("larder-bench");
    let arguments = ["experiment", "kv", "-n", "10000000", "-c", "96"];
    let status = Command::new(bench).args(arguments).status().expect("it starts");
    assert!(status.success());
}
