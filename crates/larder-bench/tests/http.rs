//! `larder-bench http` and `null-http` from outside.

mod null;

use std::process::{Command, ExitStatus};

use testkit::{Output, ScriptedOrigin, Service, Signal};

const BENCH: &str = env!("CARGO_BIN_EXE_larder-bench");

#[track_caller]
fn bench(arguments: &str) -> Output {
    let words = ["http", "--quiet"].into_iter().chain(arguments.split_whitespace());
    testkit::run(BENCH, words)
}

fn report(arguments: &str) -> serde_json::Value {
    let output = bench(&format!("{arguments} --json -")).succeeded();
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_load_is_told_as_json_and_as_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, address) = null::start("null-http", folder.path(), &["--body-bytes", "10"]);
    let told = report(&format!("http://{address}/a http://{address}/b -n 1000 -c 4 --pipeline 3 --per-url"));
    let run = &told["runs"][0];
    assert_eq!((run["requests"].as_u64(), run["errors"]["broken"].as_u64()), (Some(1000), Some(0)), "{run}");
    assert_eq!(run["urls"][1]["requests"], 500, "{run}");
    assert_eq!(told["schema"], "larder-bench/1");
    assert!(told["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0), "{told}");
    let table = bench(&format!("http://{address}/ -n 10")).succeeded().text();
    assert!(table.contains(&address), "{table}");
}

/// The exit status reports a failure of any cause to scripts.
#[test]
fn a_failed_expectation_is_a_failed_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, address) = null::start("null-http", folder.path(), &[]);
    let redis = testkit::Redis::start("");
    let check = |arguments: &str, status: i32, reason: &str| {
        let output = bench(arguments);
        assert_eq!(output.status, status, "{arguments}: {}", output.stderr);
        assert!(output.stderr.contains(reason), "{arguments}: {}", output.stderr);
    };
    check(&format!("http://{address}/ -n 100 --expect-status 200"), 0, "");
    check(
        &format!("http://{address}/ -n 100 --expect-status 204"),
        1,
        "no request was answered as expected: wrong answer: 100",
    );
    check(
        &format!(
            "http://{address}/ http://{address}/ --compare http://{address}/ -n 10 --rounds 2 --expect-status 204"
        ),
        1,
        "wrong answer",
    );
    check(&format!("http://{}/ -d 1h", redis.address()), 1, "no request was answered as expected");
    check("http://127.0.0.1:1/ -n 1", 1, "can't connect to 127.0.0.1:1");
}

/// The report has the number of rounds.
#[test]
fn a_comparison_says_how_many_rounds_there_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, address) = null::start("null-http", folder.path(), &[]);
    let told = report(&format!("http://{address}/a --compare http://{address}/b -d 100ms --rounds 3"));
    for run in 0..2 {
        let load = told["runs"][run]["load"].as_str().unwrap_or_default();
        assert_eq!(load, "3 alternating rounds, each of 1 connection, closed loop, 0.1 s", "{told}");
    }
}

/// Runs `larder-bench http` at a rate that the test's origin can easily serve, and sends Ctrl-C after some responses.
#[track_caller]
fn interrupted(arguments: &str) -> (ExitStatus, String, String) {
    let origin = ScriptedOrigin::fixed("", "hello");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(BENCH);
    command.args(["http", "--quiet", "-d", "60s", "--rate", "100", &format!("{}/a", origin.url())]);
    command.args(arguments.replace("ORIGIN", &origin.url()).split_whitespace());
    let mut load = Service::start(&mut command, folder.path(), "bench");
    origin.wait_for("/a", 20);
    load.signal(Signal::INT);
    (load.end(), load.stdout(), load.stderr())
}

#[test]
fn an_interrupted_load_is_told_as_far_as_it_went() {
    let (status, stdout, stderr) = interrupted("--json -");
    assert!(status.code() == Some(1) && stderr.contains("interrupted"), "{status} {stderr}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let run = &report["runs"][0];
    assert!(run["requests"].as_u64().is_some_and(|requests| requests >= 15), "{report}");
    assert!(run["elapsed_s"].as_f64().is_some_and(|elapsed_s| elapsed_s < 30.0), "{report}");
}

#[test]
fn an_interrupted_comparison_without_its_other_side_has_no_result() {
    let (status, stdout, stderr) = interrupted("--compare ORIGIN/b");
    assert!(status.code() == Some(1) && stdout.is_empty(), "{status} {stdout}");
    assert!(stderr.contains("ended before each side had its turn"), "{stderr}");
}

#[test]
fn sides_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, address) = null::start("null-http", folder.path(), &[]);
    let other = tempfile::tempdir().expect("a folder");
    let (_second, second) = null::start("null-http", other.path(), &[]);
    let list = folder.path().join("list");
    std::fs::write(&list, "# two\n/a/1\nHEAD /a/2\n").expect("a file");
    let list = list.display();
    let told = report(&format!(
        "--list {list} --base http://{address} -n 10 -c 2 --per-url --compare http://{second}"
    ));
    let urls = |side: usize| told["runs"][side]["urls"].as_array().expect("figures").clone();
    assert_eq!((urls(0).len(), urls(1).len()), (2, 2), "{told}");
    assert_eq!(
        (&urls(1)[0]["url"], &urls(1)[0]["requests"]),
        (&format!("http://{second}/a/1").into(), &25.into())
    );
    let told = report(&format!("http://{address}/a -n 10 --compare http://{address}/b --rounds 3"));
    assert_eq!(
        (&told["runs"][0]["requests"], &told["runs"][1]["requests"]),
        (&30.into(), &30.into()),
        "{told}"
    );
}

#[test]
fn what_a_server_spends_is_told() {
    let port = testkit::Port::reserve();
    let address = port.address();
    let command = format!("exec {BENCH} null-http --listen {address}");
    let url = format!("http://{address}/");
    let arguments = ["http", "--quiet", &url, "-n", "1000", "--server-cmd", &command, "--json", "-"];
    let output = testkit::run(BENCH, arguments).succeeded();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(told["runs"][0]["server"]["peak_rss_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{told}");
}

/// Otherwise, the measured CPU time would be that of a process without load.
#[test]
fn a_server_is_not_started_where_another_one_listens() {
    let other = ScriptedOrigin::fixed("", "another");
    let arguments = ["http", "--quiet", &other.url(), "-n", "1", "--server-cmd", "sleep 30", "--json", "-"];
    let output = testkit::run(BENCH, arguments);
    assert_eq!(output.status, 1, "{}", output.stderr);
    assert!(output.stderr.contains("another process listens on"), "{}", output.stderr);
}

#[test]
fn bad_input_is_told() {
    let unreachable = testkit::Port::reserve();
    let refused = format!("http://{}/ -n 1", unreachable.address());
    let cases = [
        ("", 2, "<URL|--list <FILE>>"),
        ("ftp://h/", 1, "its scheme is ftp"),
        ("http://h/ -n 1 -d 1s", 2, "cannot be used with"),
        ("http://h/ -d 0", 2, "expected a time above zero"),
        ("http://127.0.0.1:1/ -c 1 --threads 2", 1, "expected at least as many connections as threads"),
        ("http://127.0.0.1:1/ --rate 0", 2, "expected a number from 0.001 to 10000000"),
        ("--list no-such-file", 1, "no-such-file"),
        (refused.as_str(), 1, "can't connect to"),
        ("http://127.0.0.1:1/ http://127.0.0.1:2/", 1, "expected URLs of one server"),
        ("http://127.0.0.1:1/ -H nonsense", 2, "expected a header field"),
    ];
    for (arguments, status, expected) in cases {
        let output = bench(arguments);
        assert_eq!(output.status, status, "{arguments}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{arguments}: {}", output.stderr);
    }
}
