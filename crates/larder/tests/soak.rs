//! The tests that take long: `make soak`.

mod churn;
mod compare;
mod crowd;
mod identical;
mod pressure;

use std::process::Command;
use std::time::Duration;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

#[test]
fn ten_thousand_clients_at_the_memory_limit_lose_no_reply() {
    crowd::run(10_000, Duration::from_secs(600), 256);
}

/// Ten minutes of random traffic over four times what the store may hold.
#[test]
fn memory_stays_within_its_limit_for_ten_minutes() {
    pressure::run(Duration::from_secs(600), 64 << 20);
}

#[test]
fn a_file_of_200_megabytes_is_identical_with_and_without_the_cache() {
    identical::Files::start(200 << 20, "1GiB").check();
}

/// The same for the server for clients of Redis: its limit is what it takes, no more and no less.
#[test]
fn memory_of_kv_stays_at_its_limit_for_ten_minutes() {
    churn::run(Duration::from_secs(600), 1 << 30);
}

/// As poor-man-s-cache has published its figures; half an hour.
#[test]
fn ten_million_requests_of_the_suites_of_poor_mans_cache_have_no_failure() {
    let arguments = ["bench", "experiment", "kv", "-n", "10000000", "-c", "96"];
    let status = Command::new(LARDER).args(arguments).status().expect("it starts");
    assert!(status.success());
}
