//! Each URL of a slow origin for itself, with and without a cache, at growing concurrency.
//!
//! For every URL `n` requests over `c` connections, first through the cache and then to the origin, and so on to the
//! next URL. Some URLs are slower than the others, as queries are. Shown is the mean per URL, with a ribbon of one
//! standard deviation.

use crate::http::{Detail, HttpLoad, Until};
use crate::result::{Axis, Chart, Expectation, Point, Run, Scale, Series, UrlFigures};

use super::findings::{ExperimentError, Findings, all_answered};
use super::stage::{Server, Stage};

/// Requests per URL, connections, URLs.
struct Cell {
    n: u64,
    c: usize,
    urls: usize,
}

const GRID: [Cell; 4] = [
    Cell { n: 10, c: 1, urls: 42 },
    Cell { n: 10, c: 10, urls: 42 },
    Cell { n: 20, c: 4, urls: 42 },
    Cell { n: 100, c: 20, urls: 47 },
];

/// What the origin takes: a tenth of what the database of the original took.
const DELAY_MS: u64 = 100;

/// Every so many URLs one is slow.
const SLOW_EVERY: usize = 7;

/// How much slower that one is.
const SLOW_FACTOR: u64 = 3;

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let origin = stage.origin(&[])?;
    let gateway = stage.gateway(&origin, "")?;
    let mut findings = Findings {
        title: "Cache-aside",
        description: format!(
            "For each URL n requests over c connections, with the cache in front (warm) and without it. The origin \
             takes {DELAY_MS} ms, for every {SLOW_EVERY}th URL {SLOW_FACTOR} times as long."
        ),
        runs: Vec::new(),
        charts: Vec::new(),
        expectations: Vec::new(),
    };
    for cell in &GRID {
        let [with, without] = measure(stage, cell, &gateway, &origin)?;
        findings.charts.push(chart(cell, &with, &without));
        findings.expectations.extend([all_answered(&with), all_answered(&without), gain(&with, &without)]);
        findings.runs.extend([with, without]);
    }
    Ok(findings)
}

/// The query makes the URLs of each cell its own, so that every cell begins with a cold cache.
fn target(cell: &Cell, url: usize) -> String {
    let slower = if url % SLOW_EVERY == SLOW_EVERY - 1 { SLOW_FACTOR } else { 1 };
    format!("/items/{url}?delay={}&cc=max-age=3600&n={}&c={}", DELAY_MS * slower, cell.n, cell.c)
}

/// With the cache and without it, after one request for each URL that fills the cache.
fn measure(
    stage: &Stage<'_>,
    cell: &Cell,
    gateway: &Server,
    origin: &Server,
) -> Result<[Run; 2], ExperimentError> {
    let filling = Cell { n: 1, ..*cell };
    stage.load("warm-up", &load(cell, &filling, gateway)?, gateway)?;
    let name = |what: &str| format!("n={} c={}, {what}", cell.n, cell.c);
    let with = stage.load(&name("with cache"), &load(cell, cell, gateway)?, gateway)?;
    let without = stage.load(&name("without cache"), &load(cell, cell, origin)?, origin)?;
    Ok([with, without])
}

/// All requests for one URL, then all for the next.
fn load(cell: &Cell, times: &Cell, server: &Server) -> Result<HttpLoad, ExperimentError> {
    let urls = (0..cell.urls).map(|url| server.url(&target(cell, url)));
    let each = urls.flat_map(|url| std::iter::repeat_n(url, times.n as usize));
    let mut load = HttpLoad::of_urls(&each.collect::<Vec<_>>())?;
    load.connections = times.c;
    load.until = Until::Requests(times.n * cell.urls as u64);
    load.detail = Detail::PerUrl;
    Ok(load)
}

fn chart(cell: &Cell, with: &Run, without: &Run) -> Chart {
    Chart {
        id: format!("urls-n{}-c{}", cell.n, cell.c),
        title: format!("Mean per URL, n = {}, c = {}", cell.n, cell.c),
        x: Axis { label: "URL".to_owned(), scale: Scale::Linear },
        y: Axis { label: "Time (ms)".to_owned(), scale: Scale::Linear },
        series: vec![series("with cache", with), series("without cache", without)],
    }
}

fn series(name: &str, run: &Run) -> Series {
    let points = run.urls.iter().enumerate().map(|(index, figures)| point(index, figures));
    Series { name: name.to_owned(), points: points.collect() }
}

fn point(index: usize, figures: &UrlFigures) -> Point {
    let (mean_ms, sd_ms) = (figures.mean_us / 1000.0, figures.sd_us / 1000.0);
    Point { x: index as f64, y: mean_ms, ribbon: Some(((mean_ms - sd_ms).max(0.0), mean_ms + sd_ms)) }
}

/// Every URL for itself: a mean over all would hide one that is not cached.
fn gain(with: &Run, without: &Run) -> Expectation {
    let pairs = with.urls.iter().zip(&without.urls);
    let least = pairs.map(|(with, without)| without.mean_us / with.mean_us).fold(f64::INFINITY, f64::min);
    Expectation {
        what: format!("{}: every URL at least 10 times as fast as without", with.name),
        measured: format!("{least:.0} times for the slowest"),
        holds: least >= 10.0 && with.urls.len() == without.urls.len() && !with.urls.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(means_us: &[f64]) -> Run {
        let figures =
            |mean_us: &f64| UrlFigures { mean_us: *mean_us, sd_us: 2.0 * mean_us, ..UrlFigures::default() };
        Run { urls: means_us.iter().map(figures).collect(), ..Run::default() }
    }

    #[test]
    fn one_url_without_gain_fails() {
        #[track_caller]
        fn check(with: &[f64], without: &[f64], holds: bool) {
            assert_eq!(gain(&run(with), &run(without)).holds, holds);
        }
        check(&[1.0, 1.0], &[10.0, 30.0], true);
        check(&[1.0, 2.0], &[10.0, 19.0], false);
        check(&[1.0], &[10.0, 10.0], false);
        check(&[], &[], false);
    }

    #[test]
    fn ribbon_does_not_go_below_zero() {
        let series = series("with", &run(&[1000.0]));
        assert_eq!((series.points[0].y, series.points[0].ribbon), (1.0, Some((0.0, 3.0))));
    }
}
