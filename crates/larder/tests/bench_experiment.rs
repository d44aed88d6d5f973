//! `larder bench experiment` from outside.

use testkit::Output;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

fn experiment(arguments: &[&str]) -> Output {
    testkit::run(LARDER, ["bench", "experiment"].iter().chain(arguments))
}

#[test]
fn coalescing_runs_judges_and_leaves_its_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("page.html").display().to_string();
    let charts = folder.path().join("charts").display().to_string();
    let arguments = ["coalescing", "-d", "6", "--quiet", "--json", "-", "--html", &page, "--charts", &charts];
    let output = experiment(&arguments).succeeded();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: Vec<_> = report["runs"].as_array().expect("runs").iter().map(|run| &run["name"]).collect();
    assert_eq!(names, ["collapse = off", "collapse = process"]);
    let held: Vec<_> = report["expectations"].as_array().expect("expectations").iter().collect();
    assert!(held.len() == 3 && held.iter().all(|expectation| expectation["holds"] == true), "{held:#?}");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("collapse = process: one origin request per expiry"));
    for file in ["requests-off.svg", "requests-off.png", "requests-process.svg", "requests-process.png"] {
        let bytes = std::fs::metadata(format!("{charts}/{file}")).expect(file).len();
        assert!(bytes > 1000, "{file} has {bytes} bytes");
    }
}

#[test]
fn the_suites_of_poor_mans_cache_pass() {
    let output = experiment(&["kv", "-n", "3000", "-c", "8", "--quiet", "--json", "-"]).succeeded();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 27);
    assert!(runs.iter().all(|run| run["errors"]["wrong"] == 0 && run["requests"].as_u64() > Some(100)));
    let cores = report["expectations"].as_array().expect("expectations").iter();
    assert!(
        cores.filter(|line| line["what"].as_str().is_some_and(|what| what.contains("cores for"))).count() > 3
    );
}

#[test]
fn without_a_name_all_are_listed() {
    let output = experiment(&[]).succeeded();
    let text = output.text();
    let names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["coalescing", "edge", "proxy-cache", "cache-aside", "304", "kv"]);
}

#[test]
fn bad_arguments_are_told() {
    #[track_caller]
    fn check(arguments: &[&str], told: &str) {
        let output = experiment(arguments);
        assert!(output.status != 0 && output.stderr.contains(told), "{}", output.stderr);
    }
    check(
        &["breaker"],
        "there is no experiment \"breaker\"; there are coalescing, edge, proxy-cache, cache-aside, 304, kv",
    );
    check(&["coalescing", "-d", "0"], "0 is not in 1..=900");
    check(&["coalescing", "-d", "901"], "901 is not in 1..=900");
}
