//! The charts of a report: those that its runs make, and those that it brings.

use std::collections::BTreeSet;

use super::draw::{Colour, Dash};
use super::merge::{file_name, unique};
use super::number::{self, TimeUnit};
use super::text::{core_busy_us, have_rates, is_open};
use crate::result::{Axis, Chart, Interval, Point, Report, Run, Scale};

/// A chart with all that its drawing needs.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Names its files.
    pub(super) id: String,
    pub(super) title: String,
    /// What it shows, in a sentence.
    pub(super) description: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) content: Content,
    /// Names of the places 0, 1, ... of the x axis, for the pointer; may be empty.
    pub(super) names: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Lines(Vec<Curve>),
    Bars(Vec<Bar>),
}

#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
    pub(super) colour: Colour,
    pub(super) dash: Dash,
}

#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    /// The value for readers.
    pub(super) label: String,
    pub(super) colour: Colour,
}

/// Runs that are told apart by more than one line each.
const DETAILED_RUNS_MAX: usize = 3;
/// From this ratio of the largest to the smallest time on, a linear axis hides the small ones.
const LOG_RATIO: f64 = 20.0;

/// All charts that the report has figures for, those of the report itself first.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let runs = &report.runs;
    let (times, amounts) = ([percentiles(runs), latency(runs)], [throughput(runs), origin(runs), urls(runs)]);
    // Of a load with a given rate, the rate says nothing about the server.
    let derived: Vec<Option<Figure>> = if is_open(runs) {
        times.into_iter().chain([costs(runs)]).chain(amounts).collect()
    } else {
        [rates(runs), costs(runs)].into_iter().chain(times).chain(amounts).collect()
    };
    let mut ids = BTreeSet::new();
    let mut figures: Vec<Figure> =
        report.charts.iter().map(own).chain(derived.into_iter().flatten()).collect();
    figures.iter_mut().for_each(|figure| figure.id = unique(&figure.id, "chart", "-", &mut ids));
    figures
}

/// A chart of the report. Where it has ribbons, every second line is dashed, since ribbons cover each other's colours.
fn own(chart: &Chart) -> Figure {
    let ribbons = chart.series.iter().flat_map(|series| &series.points).any(|point| point.ribbon.is_some());
    let curves = chart.series.iter().enumerate().map(|(index, series)| Curve {
        name: series.name.clone(),
        points: series.points.clone(),
        colour: Colour::of_series(index),
        dash: if ribbons && index % 2 == 1 { Dash::Dashed } else { Dash::Solid },
    });
    let description = format!("{} over {}.", chart.y.label, chart.x.label);
    let axes = (chart.x.clone(), chart.y.clone());
    figure(&file_name(&chart.id), &chart.title, description, axes, Content::Lines(curves.collect()))
}

fn figure(id: &str, title: &str, description: String, (x, y): (Axis, Axis), content: Content) -> Figure {
    Figure { id: id.into(), title: title.into(), description, x, y, content, names: Vec::new() }
}

fn linear(label: &str) -> Axis {
    Axis { label: label.into(), scale: Scale::Linear }
}

fn bars(runs: &[Run], figure: impl Fn(&Run) -> Option<(f64, String)>) -> Vec<Bar> {
    let bar = |(index, run): (usize, &Run)| {
        let (value, label) = figure(run)?;
        Some(Bar { name: run.name.clone(), value, label, colour: Colour::of_series(index) })
    };
    runs.iter().enumerate().filter_map(bar).collect()
}

/// A bar chart; nothing for a single bar, which compares nothing.
fn bar_figure(id: &str, title: &str, bars: Vec<Bar>) -> Option<Figure> {
    let description = format!("{title}, a bar for each run.");
    let axes = (linear(""), linear(""));
    (bars.len() > 1).then(|| figure(id, title, description, axes, Content::Bars(bars)))
}

fn with_ratio(value: f64, label: &str, first: Option<f64>) -> String {
    match first.map(|first| value / first).filter(|ratio| ratio.is_finite()) {
        Some(ratio) => format!("{label}  ({ratio:.2}×)"),
        None => label.to_owned(),
    }
}

fn rates(runs: &[Run]) -> Option<Figure> {
    if !have_rates(runs) {
        return None;
    }
    let first = runs.first().map(|run| run.requests_per_s);
    let made = bars(runs, |run| {
        let rate = run.requests_per_s;
        Some((rate, with_ratio(rate, &number::rate(rate), first)))
    });
    bar_figure("requests-per-second", "Requests per second", made)
}

fn costs(runs: &[Run]) -> Option<Figure> {
    let first = runs.first().and_then(core_busy_us);
    let made = bars(runs, |run| core_busy_us(run).map(|us| (us, with_ratio(us, &number::time(us), first))));
    bar_figure("core-time", "Core time per request (less is better)", made)
}

/// A line for each run that `points` finds any points for.
fn curves(runs: &[Run], dash: Dash, points: impl Fn(&Run) -> Vec<Point>) -> Vec<Curve> {
    let curve = |(index, run): (usize, &Run)| Curve {
        name: run.name.clone(),
        points: points(run),
        colour: Colour::of_series(index),
        dash,
    };
    runs.iter().enumerate().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

fn line_figure(id: &str, title: &str, (x, y): (Axis, Axis), curves: Vec<Curve>) -> Option<Figure> {
    let description = format!("{title}: {} over {}.", y.label, x.label);
    (!curves.is_empty()).then(|| figure(id, title, description, (x, y), Content::Lines(curves)))
}

/// Turns times in microseconds into the unit that fits the longest; the axis says which, and is logarithmic where the
/// times are far from each other.
fn time_axis(curves: &mut [Curve]) -> Axis {
    let points = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.y);
    let longest = points().fold(0.0, f64::max);
    let shortest = points().filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
    let unit = TimeUnit::fitting(longest);
    let scale = if longest > LOG_RATIO * shortest { Scale::Log } else { Scale::Linear };
    in_unit(curves, unit);
    Axis { label: format!("Latency ({})", unit.name), scale }
}

/// Turns microseconds into `unit`.
fn in_unit(curves: &mut [Curve], unit: TimeUnit) {
    for point in curves.iter_mut().flat_map(|curve| &mut curve.points) {
        point.y /= unit.us;
        point.ribbon = point.ribbon.map(|(low, high)| (low / unit.us, high / unit.us));
    }
}

/// A percentile has at least so many slower requests behind it, so that it is no matter of luck: 1,000 requests have a 99th, and no 99.9th.
const SLOWER_MIN: f64 = 10.0;
/// The same of an interval, of which there are many.
const REQUESTS_OF_P99_MIN: u64 = 100;

/// As far as the number of requests has something to say.
fn percentiles(runs: &[Run]) -> Option<Figure> {
    let mut curves = curves(runs, Dash::Solid, |run| {
        let told = |percent: f64| run.latency.count as f64 * (1.0 - percent / 100.0) > SLOWER_MIN - 0.001;
        let curve = run.latency.curve.iter().filter(|point| told(point.percent));
        curve.map(|point| Point { x: point.percent, y: point.latency_us as f64, ribbon: None }).collect()
    });
    let y = time_axis(&mut curves);
    let x = Axis { label: "Percentile (%)".into(), scale: Scale::Percentile };
    line_figure("percentiles", "Latency percentiles with at least 10 slower requests", (x, y), curves)
}

fn over_time(run: &Run, figure: impl Fn(&Interval) -> Option<f64>) -> Vec<Point> {
    let point = |interval: &Interval| {
        let y = figure(interval).unwrap_or(f64::NAN);
        Point { x: interval.at_s, y, ribbon: None }
    };
    let mut points: Vec<Point> = run.intervals.iter().map(point).collect();
    // A gap in the middle is one; at the end there is nothing to be parted.
    let end = points.iter().rposition(|point| point.y.is_finite()).map_or(0, |last| last + 1);
    points.truncate(end);
    points
}

/// p50, p99 and the slowest of each interval; of many runs, the p99 alone.
fn latency(runs: &[Run]) -> Option<Figure> {
    type Pick = fn(&Interval) -> u64;
    const PICKS: [(&str, Dash, Pick); 3] = [
        ("p50", Dash::Solid, |interval| interval.p50_us),
        ("p99", Dash::Dashed, |interval| interval.p99_us),
        ("max", Dash::Dotted, |interval| interval.max_us),
    ];
    let many = runs.len() > DETAILED_RUNS_MAX;
    let picks = if many { &PICKS[1..2] } else { &PICKS[..] };
    let of_pick = |(name, dash, pick): &(&str, Dash, Pick)| {
        let least = if *name == "p99" { REQUESTS_OF_P99_MIN } else { 1 };
        let answered = move |interval: &Interval| (interval.requests >= least).then(|| pick(interval) as f64);
        let mut curves = curves(runs, if many { Dash::Solid } else { *dash }, |run| over_time(run, answered));
        curves.iter_mut().filter(|_| !many).for_each(|curve| curve.name = format!("{} {name}", curve.name));
        curves
    };
    let mut curves: Vec<Curve> = picks.iter().flat_map(of_pick).collect();
    let y = time_axis(&mut curves);
    let title = if many {
        "p99 latency over time, of intervals with at least 100 requests"
    } else {
        "Latency over time; p99 of intervals with at least 100 requests"
    };
    line_figure("latency-over-time", title, (linear("Time (s)"), y), curves)
}

fn per_second(count: u64, interval: &Interval) -> Option<f64> {
    (interval.length_s > 0.0).then(|| count as f64 / interval.length_s)
}

/// A rate over time, without the intervals in which a load, or a round of it, waits for its last answers: they are shorter, and their rates near
/// zero.
fn rate_over_time(run: &Run, count: impl Fn(&Interval) -> Option<u64>) -> Vec<Point> {
    let longest_s = run.intervals.iter().map(|interval| interval.length_s).fold(0.0, f64::max);
    over_time(run, |interval| {
        per_second(count(interval)?, interval).filter(|_| interval.length_s > longest_s * 0.9)
    })
}

fn throughput(runs: &[Run]) -> Option<Figure> {
    let curves = curves(runs, Dash::Solid, |run| rate_over_time(run, |interval| Some(interval.requests)));
    let axes = (linear("Time (s)"), linear("Requests per second"));
    line_figure("throughput-over-time", "Throughput over time", axes, curves)
}

/// What clients asked for and what of that reached the origin, for the runs where somebody counted at the origin.
fn origin(runs: &[Run]) -> Option<Figure> {
    let counted = |run: &Run| run.intervals.iter().any(|interval| interval.origin_requests.is_some());
    let of_clients = |run: &Run| rate_over_time(run, |interval| Some(interval.requests));
    let mut clients =
        curves(runs, Dash::Dashed, |run| if counted(run) { of_clients(run) } else { Vec::new() });
    let mut origins =
        curves(runs, Dash::Solid, |run| rate_over_time(run, |interval| interval.origin_requests));
    clients.iter_mut().for_each(|curve| curve.name.push_str(", clients"));
    origins.iter_mut().for_each(|curve| curve.name.push_str(", origin"));
    let axes = (linear("Time (s)"), linear("Requests per second"));
    clients.append(&mut origins);
    line_figure("origin-requests", "Requests of clients and at the origin", axes, clients)
}

/// Mean of each URL within one standard deviation, a run solid and the next one dashed.
fn urls(runs: &[Run]) -> Option<Figure> {
    let mut curves = curves(runs, Dash::Solid, |run| {
        let edge = |figures: &crate::result::UrlFigures| {
            ((figures.mean_us - figures.sd_us).max(0.0), figures.mean_us + figures.sd_us)
        };
        let answered = run.urls.iter().enumerate().filter(|(_, figures)| figures.requests > 0);
        answered
            .map(|(index, url)| Point { x: index as f64, y: url.mean_us, ribbon: Some(edge(url)) })
            .collect()
    });
    curves.iter_mut().skip(1).step_by(2).for_each(|curve| curve.dash = Dash::Dashed);
    // As in the data files, whatever the times are.
    in_unit(&mut curves, TimeUnit::MILLISECONDS);
    let y = linear("Time (ms)");
    let title = "Mean time per URL, within one standard deviation";
    let mut figure = line_figure("urls", title, (linear("URL"), y), curves)?;
    let longest = runs.iter().max_by_key(|run| run.urls.len())?;
    figure.names = longest.urls.iter().map(|figures| figures.url.clone()).collect();
    Some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{draw, example, images};

    fn by_id(report: &Report, id: &str) -> Figure {
        figures(report).into_iter().find(|figure| figure.id == id).expect("the chart is there")
    }

    #[test]
    fn images_stay_as_they_are() {
        let report = example::report();
        for id in ["urls", "percentiles", "core-time"] {
            let figure = by_id(&report, id);
            let svg = draw::svg(&figure, draw::Width::Wide);
            example::check_golden(&format!("{id}.svg"), &svg);
        }
    }

    #[test]
    fn every_chart_that_has_figures_is_there() {
        let ids = |report: &Report| figures(report).into_iter().map(|figure| figure.id).collect::<Vec<_>>();
        let mut report = example::report();
        let both = ["size", "requests-per-second", "core-time", "percentiles", "latency-over-time"];
        let over_time = ["throughput-over-time", "origin-requests", "urls"];
        assert_eq!(ids(&report), [&both[..], &over_time].concat());
        report.charts.clear();
        report.runs.truncate(1);
        report.runs[0].intervals.clear();
        assert_eq!(ids(&report), ["percentiles", "urls"]);
    }

    #[test]
    fn a_chart_becomes_two_images() {
        let mut report = example::report();
        report.runs.clear();
        let images = images(&report);
        assert_eq!([&images[0].name, &images[1].name], ["size.svg", "size.png"]);
        assert!(images[0].content.starts_with(b"<svg") && images[1].content.starts_with(b"\x89PNG"));
    }

    #[test]
    fn ids_are_file_names_of_their_own() {
        let mut report = example::report();
        let mut other = report.charts[0].clone();
        report.charts[0].id = "../../percentiles".into();
        other.id = "percentiles".into();
        report.charts.push(other);
        let ids: Vec<String> = figures(&report).into_iter().map(|figure| figure.id).collect();
        assert_eq!(ids[..2], ["percentiles", "chart-percentiles"]);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let mut report = example::empty();
        let mut chart = example::report().charts.remove(0);
        chart.y.scale = Scale::Log;
        let odd = [(0.0, 1.0), (1.0, f64::NAN), (10.0, 0.0), (100.0, f64::INFINITY)];
        chart.series[0].points = odd.map(|(x, y)| Point { x, y, ribbon: Some((f64::NAN, y)) }).to_vec();
        report.charts.push(chart);
        let figure = by_id(&report, "size");
        let svg = draw::svg(&figure, draw::Width::Wide);
        assert!(svg.contains(">no data<") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(draw::png(&svg).starts_with(b"\x89PNG"));
    }

    #[test]
    fn lower_edge_is_never_below_zero() {
        let mut report = example::report();
        report.runs[0].urls[0].sd_us = 10.0 * report.runs[0].urls[0].mean_us;
        let Content::Lines(curves) = by_id(&report, "urls").content else { panic!("lines") };
        assert_eq!(curves[0].points[0].ribbon.map(|(low, _)| low), Some(0.0));
        assert_eq!((curves[0].dash, curves[1].dash), (Dash::Solid, Dash::Dashed));
    }

    #[test]
    fn a_percentile_needs_requests_behind_it() {
        let mut report = example::report();
        report.runs.truncate(1);
        let last = |report: &Report| {
            let Content::Lines(curves) = by_id(report, "percentiles").content else { panic!("lines") };
            curves[0].points.last().map(|point| point.x)
        };
        report.runs[0].latency.count = 1500;
        assert_eq!(last(&report), Some(99.0));
        report.runs[0].latency.count = 10_000;
        assert_eq!(last(&report), Some(99.9));
    }

    /// Two rounds, each with the end of a load behind it.
    #[test]
    fn the_end_of_a_round_is_a_gap() {
        let mut report = example::report();
        report.runs.truncate(1);
        let interval = |at_s: f64, length_s: f64, requests: u64| Interval {
            at_s,
            length_s,
            requests,
            ..Interval::default()
        };
        report.runs[0].intervals = vec![
            interval(0.0, 1.0, 500),
            interval(1.0, 0.4, 1),
            interval(1.4, 1.0, 500),
            interval(2.4, 0.4, 1),
        ];
        let Content::Lines(curves) = by_id(&report, "throughput-over-time").content else { panic!("lines") };
        let rates: Vec<f64> = curves[0].points.iter().map(|point| point.y).collect();
        assert!(rates.len() == 3 && rates[0] == 500.0 && rates[1].is_nan() && rates[2] == 500.0, "{rates:?}");
    }

    #[test]
    fn an_open_loop_leads_with_latency() {
        let mut report = example::report();
        report.charts.clear();
        report
            .runs
            .iter_mut()
            .for_each(|run| run.load = "64 connections, open loop at 500 requests/s, 10 s".into());
        let ids: Vec<String> = figures(&report).into_iter().map(|figure| figure.id).collect();
        assert_eq!(ids[..3], ["percentiles", "latency-over-time", "core-time"]);
        assert!(!ids.contains(&"requests-per-second".to_owned()));
    }

    #[test]
    fn forty_runs_fold_into_one_entry() {
        let mut report = example::empty();
        report.runs = (0..40).map(|index| example::run(&format!("run {index}"), 1_000.0)).collect();
        let figure = by_id(&report, "throughput-over-time");
        let svg = draw::svg(&figure, draw::Width::Wide);
        assert!(svg.contains(">run 7<") && svg.contains(">32 more<") && !svg.contains(">run 8<"));
    }
}
