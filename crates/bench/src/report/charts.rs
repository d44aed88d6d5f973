//! The charts of a report: its own, and those of its runs.

use super::drawing;
use super::number;
use super::text::{core_busy_us, have_rates, is_open};
use crate::result::{Axis, Chart, Interval, Point, Report, Run, Scale, Series};

/// All charts for which the report has figures, as SVG, starting with the report's own.
pub(super) fn charts(report: &Report) -> Vec<String> {
    let runs = &report.runs;
    let lines = report.charts.iter().cloned();
    let lines = lines.chain([percentiles(runs), latency(runs), throughput(runs), urls(runs)]);
    let bars = [rates(runs), costs(runs)].into_iter().flatten();
    lines.filter_map(|chart| drawing::lines(&chart)).chain(bars).collect()
}

/// A bar chart of the runs. `None` for a single run.
fn bars(title: &str, runs: &[Run], figure: impl Fn(&Run) -> Option<(f64, String)>) -> Option<String> {
    let bar = |run: &Run| figure(run).map(|(value, label)| (run.name.clone(), value, label));
    let bars: Vec<_> = runs.iter().filter_map(bar).collect();
    (bars.len() > 1).then(|| drawing::bars(title, &bars))
}

/// A chart of the rates. `None` for loads with a fixed rate, because that rate doesn't depend on the server.
fn rates(runs: &[Run]) -> Option<String> {
    let rate = |run: &Run| Some((run.requests_per_s, number::rate(run.requests_per_s)));
    if have_rates(runs) && !is_open(runs) { bars("Requests per second", runs, rate) } else { None }
}

fn costs(runs: &[Run]) -> Option<String> {
    let cost = |run: &Run| core_busy_us(run).map(|us| (us, number::time(us)));
    bars("Core time per request, shorter is better", runs, cost)
}

/// A line for each run that has points.
fn series(runs: &[Run], points: impl Fn(&Run) -> Vec<Point>) -> Vec<Series> {
    let of_run = |run: &Run| Series { name: run.name.clone(), points: points(run) };
    runs.iter().map(of_run).filter(|series| !series.points.is_empty()).collect()
}

/// From this ratio of the longest to the shortest time, a linear axis hides the short ones.
const LOG_RATIO: f64 = 20.0;

fn latency_chart(id: &str, title: &str, x: Axis, series: Vec<Series>) -> Chart {
    let times = || series.iter().flat_map(|series| &series.points).map(|point| point.y);
    let longest = times().fold(0.0, f64::max);
    let shortest = times().filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
    let scale = if longest > LOG_RATIO * shortest { Scale::Log } else { Scale::Linear };
    Chart { id: id.into(), title: title.into(), x, y: Axis { label: "Latency (ms)".into(), scale }, series }
}

/// A percentile is shown only if at least this many requests were slower, so that it isn't random: 1,000 requests have a p99, but no p99.9.
const SLOWER_MIN: f64 = 10.0;
/// Minimum number of requests for the p99 of an interval: lower, since there are many intervals.
const REQUESTS_OF_P99_MIN: u64 = 100;

fn percentiles(runs: &[Run]) -> Chart {
    let series = series(runs, |run| {
        let told = |percent: f64| run.latency.count as f64 * (1.0 - percent / 100.0) > SLOWER_MIN - 0.001;
        let curve = run.latency.curve.iter().filter(|point| told(point.percent));
        curve.map(|at| Point { x: at.percent, y: at.latency_us as f64 / 1e3, ribbon: None }).collect()
    });
    let x = Axis { label: "Percentile (%)".into(), scale: Scale::Percentile };
    latency_chart("percentiles", "Latency percentiles with at least 10 slower requests", x, series)
}

fn over_time(run: &Run, figure: impl Fn(&Interval) -> Option<f64>) -> Vec<Point> {
    let point = |interval: &Interval| Some(Point { x: interval.at_s, y: figure(interval)?, ribbon: None });
    run.intervals.iter().filter_map(point).collect()
}

/// p50, p99 and the slowest of each interval. With several runs, the chart shows only the p99.
fn latency(runs: &[Run]) -> Chart {
    let p99 = |interval: &Interval| {
        (interval.requests >= REQUESTS_OF_P99_MIN).then(|| interval.p99_us as f64 / 1e3)
    };
    let series = if let [run] = runs {
        let answered = |us: u64, interval: &Interval| (interval.requests > 0).then(|| us as f64 / 1e3);
        let named = |name: &str, points| Series { name: name.into(), points };
        vec![
            named("p50", over_time(run, |interval| answered(interval.p50_us, interval))),
            named("p99", over_time(run, p99)),
            named("max", over_time(run, |interval| answered(interval.max_us, interval))),
        ]
    } else {
        series(runs, |run| over_time(run, p99))
    };
    let x = Axis { label: "Time (s)".into(), scale: Scale::Linear };
    let title = "Latency over time; p99 of intervals with at least 100 requests";
    latency_chart("latency-over-time", title, x, series)
}

/// A rate over time. Leaves out the intervals in which a load or a round waits for its last answers: they are shorter, and their rates are near zero.
fn rate_over_time(run: &Run, count: impl Fn(&Interval) -> Option<u64>) -> Vec<Point> {
    let longest_s = run.intervals.iter().map(|interval| interval.length_s).fold(0.0, f64::max);
    over_time(run, |interval| {
        let is_whole = interval.length_s > longest_s * 0.9;
        is_whole.then_some(count(interval)? as f64 / interval.length_s)
    })
}

fn throughput(runs: &[Run]) -> Chart {
    let series = series(runs, |run| rate_over_time(run, |interval| Some(interval.requests)));
    Chart::over_time("throughput-over-time", "Throughput over time", "Requests per second", series)
}

fn urls(runs: &[Run]) -> Chart {
    let series = runs.iter().map(|run| Series::of_urls(&run.name, run));
    let series = series.filter(|series| !series.points.is_empty()).collect();
    let title = "Mean time per URL, within one standard deviation";
    Chart::linear("urls", title, ("URL", "Time (ms)"), series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn every_chart_that_has_figures_is_there() {
        let mut report = example::report();
        let titles = [
            "Time by size",
            "Latency percentiles with at least 10 slower requests",
            "Latency over time; p99 of intervals with at least 100 requests",
            "Throughput over time",
            "Mean time per URL, within one standard deviation",
            "Requests per second",
            "Core time per request, shorter is better",
        ];
        let drawn = charts(&report);
        assert_eq!(drawn.len(), titles.len());
        for (svg, title) in drawn.iter().zip(titles) {
            assert!(svg.starts_with("<svg") && svg.contains(title), "{title}: {svg}");
        }
        report.charts.clear();
        report.runs.truncate(1);
        report.runs[0].intervals.clear();
        assert_eq!(charts(&report).len(), 2, "percentiles and URLs");
        report.runs[0].load = "64 connections, open loop at 500 requests/s, 10 s".into();
        assert_eq!(rates(&[report.runs[0].clone(), report.runs[0].clone()]), None);
    }

    #[test]
    fn lower_edge_is_never_below_zero() {
        let mut run = example::run("a", 1_000.0);
        run.urls[0].sd_us = 10.0 * run.urls[0].mean_us;
        assert_eq!(urls(&[run]).series[0].points[0].ribbon.map(|(low, _)| low), Some(0.0));
    }

    #[test]
    fn a_percentile_needs_requests_behind_it() {
        let last = |count: u64| {
            let mut run = example::run("a", 1_000.0);
            run.latency.count = count;
            percentiles(&[run]).series[0].points.last().map(|point| point.x)
        };
        assert_eq!((last(1500), last(10_000)), (Some(99.0), Some(99.9)));
    }

    /// Two rounds with an interval between them in which the load waits for its last answers.
    #[test]
    fn the_end_of_a_round_has_no_rate() {
        let interval = |at_s: f64, length_s: f64, requests: u64| Interval {
            at_s,
            length_s,
            requests,
            ..Interval::default()
        };
        let mut run = example::run("a", 1_000.0);
        run.intervals = vec![interval(0.0, 1.0, 500), interval(1.0, 0.4, 1), interval(1.4, 1.0, 500)];
        let rates: Vec<f64> = throughput(&[run]).series[0].points.iter().map(|point| point.y).collect();
        assert_eq!(rates, [500.0, 500.0]);
    }
}
