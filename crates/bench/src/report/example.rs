//! A report with fixed figures, for tests.

use std::path::Path;

use crate::result::{
    Axis, Chart, Errors, Expectation, Interval, LatencySummary, Machine, Outcome, Percentile, Point, Report,
    Run, Scale, Series, ServerCost, UrlFigures,
};

/// Compares with `golden/NAME`. With `UPDATE_GOLDEN=1`, writes the file, whose diff must then be reviewed.
#[track_caller]
pub(super) fn check_golden(name: &str, seen: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, seen).expect("the folder is there");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(seen, expected, "golden/{name} differs; if that is intended, set UPDATE_GOLDEN=1");
}

/// Two runs with three intervals and four URLs each, a chart and two expectations.
pub(super) fn report() -> Report {
    Report {
        title: "Pages with and without a cache".into(),
        description: "Four pages in front of a slow origin.".into(),
        started_at_unix_s: 1_760_000_000,
        machine: Machine {
            cpu: "Example CPU".into(),
            cores: 2,
            memory_bytes: 8 << 30,
            kernel: "Linux 6.12".into(),
        },
        larder: "larder 0.1.0 (0123abc)".into(),
        runs: vec![run("with cache", 1_000.0), run("without cache", 16_000.0)],
        charts: vec![chart()],
        expectations: vec![
            expectation("the cache cuts the time by more than 90 %", "93.8 %", true),
            expectation("no errors", "7", false),
        ],
        ..empty()
    }
}

/// An empty report.
pub(super) fn empty() -> Report {
    Report {
        title: "Nothing".into(),
        started_at_unix_s: 0,
        machine: Machine::default(),
        larder: "larder".into(),
        ..Report::begin()
    }
}

/// A run whose latencies are around `mean_us`.
pub(super) fn run(name: &str, mean_us: f64) -> Run {
    let requests = (3_000_000.0 / mean_us) as u64;
    Run {
        name: name.into(),
        target: "http://127.0.0.1:8080/".into(),
        load: "1 connection, closed loop, 3 s".into(),
        elapsed_s: 3.0,
        requests,
        requests_per_s: requests as f64 / 3.0,
        errors: Errors { broken: 3, timeout: 4, ..Errors::default() },
        outcomes: vec![Outcome { name: "200".into(), count: requests }],
        reconnects: 2,
        unsent: 0,
        read_bytes: requests * 1_024,
        written_bytes: requests * 100,
        read_bytes_per_s: (requests * 1_024) as f64 / 3.0,
        latency: latency(mean_us, requests),
        connect: Some(LatencySummary { curve: Vec::new(), ..latency(50.0, 1) }),
        first_byte: Some(LatencySummary { curve: Vec::new(), ..latency(mean_us / 2.0, requests) }),
        intervals: (0..3).map(|second| interval(second, mean_us)).collect(),
        urls: (0..4).map(|index| url(index, mean_us)).collect(),
        server: Some(ServerCost {
            process_cpu_us_per_request: Some(6.5),
            core_busy_us_per_request: Some(9.25),
            peak_rss_bytes: Some(20 << 20),
        }),
        generator_cpu_us_per_request: 4.5,
    }
}

fn latency(mean_us: f64, count: u64) -> LatencySummary {
    let at = |factor: f64| (mean_us * factor) as u64;
    let curve = [(0.0, 0.5), (50.0, 0.9), (90.0, 1.5), (99.0, 3.0), (99.9, 8.0), (100.0, 12.0)];
    LatencySummary {
        count,
        mean_us,
        sd_us: mean_us / 4.0,
        min_us: at(0.5),
        p50_us: at(0.9),
        p90_us: at(1.5),
        p95_us: at(2.0),
        p99_us: at(3.0),
        p999_us: at(8.0),
        max_us: at(12.0),
        curve: curve.map(|(percent, factor)| Percentile { percent, latency_us: at(factor) }).to_vec(),
    }
}

fn interval(second: u32, mean_us: f64) -> Interval {
    let slower = 1.0 + f64::from(second) / 4.0;
    let at = |factor: f64| (mean_us * slower * factor) as u64;
    Interval {
        at_s: f64::from(second),
        length_s: 1.0,
        requests: (1_000_000.0 / mean_us / slower) as u64,
        errors: 0,
        mean_us: mean_us * slower,
        p50_us: at(0.9),
        p99_us: at(3.0),
        max_us: at(12.0),
    }
}

fn url(index: u32, mean_us: f64) -> UrlFigures {
    let slower = if index == 2 { 2.5 } else { 1.0 };
    UrlFigures {
        url: format!("http://127.0.0.1:8080/pages/{index}?q=<a&b>"),
        requests: 10,
        errors: 0,
        mean_us: mean_us * slower,
        sd_us: mean_us * slower / 4.0,
        p50_us: (mean_us * slower * 0.9) as u64,
        p99_us: (mean_us * slower * 3.0) as u64,
        max_us: (mean_us * slower * 12.0) as u64,
    }
}

fn chart() -> Chart {
    let points = [(1.0, 2.0), (10.0, 3.0), (100.0, 5.0)];
    let points = points.map(|(x, y)| Point { x, y, ribbon: Some((y - 1.0, y + 1.0)) }).to_vec();
    Chart {
        id: "size".into(),
        title: "Time by size".into(),
        x: Axis { label: "Size (KiB)".into(), scale: Scale::Log },
        y: Axis { label: "Time (ms)".into(), scale: Scale::Linear },
        series: vec![Series { name: "with cache".into(), points }],
    }
}

fn expectation(what: &str, measured: &str, holds: bool) -> Expectation {
    Expectation { what: what.into(), measured: measured.into(), holds }
}
