//! `larder-bench resp` and `null-resp` from outside.

mod null;

use testkit::{Output, Redis, ScriptedOrigin};

const BENCH: &str = env!("CARGO_BIN_EXE_larder-bench");

#[track_caller]
fn bench(arguments: &str) -> Output {
    testkit::run(BENCH, ["resp", "--quiet"].into_iter().chain(arguments.split_whitespace()))
}

#[track_caller]
fn run(arguments: &str) -> serde_json::Value {
    let output = bench(&format!("{arguments} --json -")).succeeded();
    let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["runs"][0].take()
}

#[test]
fn a_load_on_redis_is_told_as_json_and_as_a_table() {
    let redis = Redis::start("");
    let address = redis.address();
    let told = run(&format!("{address} --workload get --preload --keys 100 -n 1000 -c 4 --pipeline 10"));
    assert_eq!(
        (told["requests"].as_u64(), told["errors"]["wrong"].as_u64()),
        (Some(1000), Some(0)),
        "{told}"
    );
    assert_eq!(told["outcomes"][0]["name"], "value", "{told}");
    let table = bench(&format!("{address} --zipf 0.99 -n 30")).succeeded().text();
    assert!(table.contains(&address.to_string()), "{table}");
}

/// The form in which `larder kv` prints its address.
#[test]
fn an_address_may_be_a_url() {
    let redis = Redis::start("");
    for end in ["", "/"] {
        bench(&format!("redis://{}{end} -n 10", redis.address())).succeeded();
    }
    let refused = bench(&format!("rediss://{} -n 10", redis.address()));
    assert!(refused.status == 2 && refused.stderr.contains("TLS isn't supported"), "{}", refused.stderr);
}

#[test]
fn the_null_server_answers_a_load_with_fixed_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, address) = null::start("null-resp", folder.path(), &["--value-size", "100"]);
    let get = format!("{address} --workload get --value-size 100 --pipeline 30");
    let told = run(&format!("{get} --fixed-values -n 3000 -c 3"));
    assert_eq!(
        (told["requests"].as_u64(), told["errors"]["wrong"].as_u64()),
        (Some(3000), Some(0)),
        "{told}"
    );
    // Without --fixed-values, the load expects values that the server can't know.
    let output = bench(&format!("{get} --in-turn --keys 1000 -n 300 -c 1 --json -"));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["runs"][0]["errors"]["wrong"], 299, "{told}");
    assert_eq!(output.status, 1, "{}", output.stderr);
    assert!(output.stderr.contains("299 of 300 requests failed: wrong answer: 299"), "{}", output.stderr);
}

/// The load ends after a second, not after the requested duration.
#[test]
fn a_server_of_another_protocol_is_a_failed_run() {
    let origin = ScriptedOrigin::fixed("", "hello");
    let output = bench(&format!("{} -d 1h", origin.address()));
    assert_eq!(output.status, 1, "{}", output.stderr);
    assert!(output.stderr.contains("no request was answered as expected"), "{}", output.stderr);
}

#[test]
fn settings_that_no_load_can_follow_are_told() {
    let output = bench("127.0.0.1:1 --pipeline 2000 -n 1");
    assert_eq!(output.status, 2, "{}", output.stderr);
    assert!(output.stderr.contains("expected a whole number from 1 to 1000"), "{}", output.stderr);
    let output = bench("127.0.0.1:1 --keys 1000 --key-size 3 -n 1");
    assert_eq!(output.status, 1, "{}", output.stderr);
    assert!(output.stderr.contains("expected 1 to 100 with 3 bytes per key"), "{}", output.stderr);
    let output = bench("127.0.0.1:1 -n 1");
    assert!(output.stderr.contains("127.0.0.1:1 can't be reached"), "{}", output.stderr);
}
