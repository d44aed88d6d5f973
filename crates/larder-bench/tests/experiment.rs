//! `larder-bench experiment` from outside, with the `larder` in the same build folder: `cargo build --package larder`.

use std::sync::{Mutex, PoisonError};

use testkit::Output;

const BENCH: &str = env!("CARGO_BIN_EXE_larder-bench");

fn experiment(arguments: &[&str]) -> Output {
    testkit::run(BENCH, ["experiment"].iter().chain(arguments))
}

#[test]
fn coalescing_runs_judges_and_leaves_its_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("page.html").display().to_string();
    let arguments = ["coalescing", "-d", "6", "--quiet", "--json", "-", "--html", &page];
    let output = experiment(&arguments).succeeded();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: Vec<_> = report["runs"].as_array().expect("runs").iter().map(|run| &run["name"]).collect();
    assert_eq!(names, ["collapse = off", "collapse = process"]);
    let held: Vec<_> = report["expectations"].as_array().expect("expectations").iter().collect();
    assert!(held.len() == 4 && held.iter().all(|expectation| expectation["holds"] == true), "{held:#?}");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("collapse = process: one origin request per expiry"));
    assert!(page.contains("Requests at clients and at the origin, collapse = off") && page.contains("<svg"));
}

/// Serialises the experiments, each of which runs several servers.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a short experiment, and returns the names of its runs. All expectations must hold, except those that contain a text in
/// `but`: they depend on time, and need a longer run on an idle machine.
fn for_a_moment(arguments: &[&str], but: &[&str]) -> Vec<String> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = experiment(&[arguments, &["--quiet", "--json", "-"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&output.stderr);
    let expectations = report["expectations"].as_array().expect("expectations");
    let is_of_time = |what: &str| but.iter().any(|words| what.contains(words));
    let judged =
        expectations.iter().filter(|line| line["what"].as_str().is_some_and(|what| !is_of_time(what)));
    let failed: Vec<_> = judged.filter(|line| line["holds"] != true).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let all_hold = expectations.iter().all(|line| line["holds"] == true);
    assert_eq!(output.status == 0, all_hold, "{}", output.stderr);
    let runs = report["runs"].as_array().expect("runs").iter();
    runs.filter_map(|run| run["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_gateway_that_shares_a_store_is_as_good_as_one_alone() {
    let runs = for_a_moment(&["proxy-cache", "-d", "1"], &["at least", "at most", "reach the API"]);
    assert_eq!(runs, ["no cache", "memory", "shared store"]);
}

/// Runs suites of poor-man-s-cache, and returns the runs and their expectations.
fn suites(arguments: &[&str]) -> (Vec<serde_json::Value>, Vec<String>) {
    let output = experiment(&[&["kv", "--quiet", "--json", "-"], arguments].concat()).succeeded();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs = report["runs"].as_array().expect("runs").clone();
    assert!(runs.iter().all(|run| run["errors"]["wrong"] == 0 && run["requests"].as_u64() > Some(100)));
    let told = report["expectations"].as_array().expect("expectations").iter();
    (runs, told.map(|line| format!("{}: {}", line["what"], line["measured"])).collect())
}

#[test]
fn the_suites_of_poor_mans_cache_pass() {
    let (runs, told) = suites(&["-n", "3000", "-c", "8"]);
    assert_eq!(runs.len(), 24);
    let count = |part: &str| told.iter().filter(|line| line.contains(part)).count();
    assert_eq!((count(" 0 failures"), count("against Redis's")), (24, 16), "{told:#?}");
    let workflows =
        runs.iter().filter(|run| run["name"].as_str().is_some_and(|name| name.starts_with("workflow:")));
    assert!(workflows.clone().all(|run| run["requests"] == 9000), "three for each key");
    assert_eq!(workflows.count(), 3);
}

#[test]
fn flags_of_the_test_of_poor_mans_cache_choose() {
    #[track_caller]
    fn check(arguments: &[&str], expected: &[&str]) {
        let (runs, _) = suites(&[&["-n", "2000", "-c", "4"], arguments].concat());
        let names = runs.iter().filter_map(|run| run["name"].as_str()?.strip_suffix(": Redis"));
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let pipeline = runs[0]["load"].as_str().expect("words");
        assert!(
            pipeline.contains(if arguments.contains(&"-p") { "pipeline 16," } else { "pipeline 1," }),
            "{pipeline}"
        );
    }
    let in_batches = ["SET in batches", "GET in batches", "DEL in batches", "workflow in batches"];
    check(&["-p", "-b", "16"], &in_batches);
    check(&["--one-by-one"], &["SET", "GET", "DEL", "workflow"]);
}

#[test]
fn without_a_name_and_by_the_help_all_are_listed() {
    let (listed, help) = (experiment(&[]).succeeded().text(), experiment(&["--help"]).text());
    let names: Vec<_> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["coalescing", "edge", "proxy-cache", "cache-aside", "kv"]);
    listed.lines().for_each(|line| assert!(help.contains(line), "{line} is missing:\n{help}"));
}

#[test]
fn bad_arguments_are_told() {
    #[track_caller]
    fn check(arguments: &[&str], told: &str) {
        let output = experiment(arguments);
        assert!(output.status != 0 && output.stderr.contains(told), "{}", output.stderr);
    }
    check(
        &["other"],
        "invalid value 'other' for '[NAME]'\n  [possible values: coalescing, edge, proxy-cache, cache-aside, kv]",
    );
    check(&["coalescing", "-d", "0"], "expected a time from 1s to 15m");
    check(&["coalescing", "-d", "901"], "expected a time from 1s to 15m");
    check(&["kv", "--pipeline", "--one-by-one"], "cannot be used with");
}
