//! Latency of each URL of a slow origin, with and without a cache, at growing concurrency.
//!
//! The origin is slow like a database: it answers two queries at a time, and the others queue. Each URL gets `n` requests over `c` connections,
//! one URL after the other: through Larder, through an application in Node.js that caches its queries in `larder kv`, and directly to the
//! origin. Some URLs are slower than the others. The chart shows the mean per URL, with a ribbon of one standard deviation.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::http::{Detail, HttpLoad, Until};
use crate::result::{Chart, Expectation, Point, Run, Series};

use super::findings::{ExperimentError, Findings, all_answered};
use super::stage::{Server, Stage, free_address, origin_requests, program, write_filled};
use super::store::Store;

/// A setting of the experiment: requests per URL (`n`), connections (`c`), and number of URLs.
struct Cell {
    n: u64,
    c: usize,
    urls: usize,
}

const GRID: [Cell; 4] = [
    Cell { n: 10, c: 1, urls: 42 },
    Cell { n: 20, c: 4, urls: 42 },
    Cell { n: 10, c: 10, urls: 42 },
    Cell { n: 100, c: 20, urls: 47 },
];

/// Duration of a query: a fiftieth of a query to the original's database, so that all queries together take a minute.
const DELAY_MS: u64 = 20;

/// Queries that the origin answers at the same time.
const SLOTS: &str = "2";

/// Each group of this many URLs has one slow URL.
const SLOW_EVERY: usize = 7;

/// Factor by which a slow URL is slower.
const SLOW_FACTOR: u64 = 3;

const APP: &str = include_str!("cache_aside/app.mjs");

/// A server that answers from a cache.
struct Way {
    name: &'static str,
    server: Server,
}

/// Results of a cell: a run for each cache, and one without a cache.
struct Measured<'a> {
    cell: &'a Cell,
    cached: Vec<Run>,
    without: Run,
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let origin = stage.origin(&["--delay-slots", SLOTS])?;
    let mut ways = vec![Way { name: "with cache", server: stage.gateway(&origin, "")? }];
    let package = package();
    let _store = match &package {
        Some(package) => Some(add_application(stage, package, &origin, &mut ways)?),
        None => None,
    };
    let mut findings = Findings {
        title: "Cache-aside",
        description: description(package.as_deref()),
        runs: Vec::new(),
        charts: Vec::new(),
        expectations: Vec::new(),
    };
    let mut all = Vec::new();
    for cell in &GRID {
        let (measured, expectations) = measure(stage, cell, &ways, &origin)?;
        findings.charts.push(chart(&measured));
        findings.expectations.extend(expectations);
        all.push(measured);
    }
    findings.charts.push(saved_chart(&ways, &all));
    findings.expectations.extend([slower(&all), wider(&all)]);
    findings
        .expectations
        .extend(ways.iter().enumerate().map(|(way, named)| saves_more(named.name, &saved(&all, way))));
    findings
        .runs
        .extend(all.into_iter().flat_map(|measured| [measured.cached, vec![measured.without]].concat()));
    Ok(findings)
}

fn description(package: Option<&Path>) -> String {
    let application = if package.is_some() {
        "cache-aside: an application in Node.js queries it, and stores the answers in larder kv with cacheAside of @larder/undici-cache"
    } else {
        "cache-aside in Node.js is left out, because npm/undici-cache isn't built here: npm ci && npm run build"
    };
    format!(
        "Each URL gets n requests over c connections. The origin answers {SLOTS} queries at a time, and the others queue; a query \
         takes {DELAY_MS} ms, for every {SLOW_EVERY}th URL {SLOW_FACTOR} times as long. with cache: Larder in front of it (warm); {application}; \
         without cache: the origin itself."
    )
}

/// Location of the built Node package, in the clone where the program runs or was built.
fn package() -> Option<PathBuf> {
    let program = std::env::current_exe().ok();
    let here = std::env::current_dir().ok();
    let folders = [here, program].into_iter().flatten();
    folders.flat_map(|folder| folder.ancestors().map(Path::to_owned).collect::<Vec<_>>()).find_map(|folder| {
        let package = folder.join("npm/undici-cache");
        let is_built =
            package.join("dist/index.js").is_file() && package.join("node_modules/fastify").is_dir();
        is_built.then_some(package)
    })
}

/// Starts the application and its store. The store must outlive the application.
fn add_application(
    stage: &mut Stage<'_>,
    package: &Path,
    origin: &Server,
    ways: &mut Vec<Way>,
) -> Result<Server, ExperimentError> {
    let node = program("node", "nodejs")?;
    let address = free_address()?;
    let store = Store::LarderKv.start(stage)?;
    let file = stage.new_folder()?.join("app.mjs");
    write_filled(&file, APP, &[])?;
    let mut command = Command::new(node);
    command.arg(file).env("NODE_ENV", "production").env("PACKAGE", package).env("ORIGIN", origin.url(""));
    command.env("PORT", address.port().to_string()).env("STORE_PORT", store.address.port().to_string());
    ways.push(Way { name: "cache-aside in Node.js", server: stage.start(command, address)? });
    Ok(store)
}

/// The query string makes the URLs of each cell distinct, so that every cell begins with a cold cache.
fn target(cell: &Cell, url: usize) -> String {
    let slower = if url % SLOW_EVERY == SLOW_EVERY - 1 { SLOW_FACTOR } else { 1 };
    format!("/items/{url}?delay={}&cc=max-age=3600&n={}&c={}", DELAY_MS * slower, cell.n, cell.c)
}

/// Measures a cell through each cache, after one request per URL that fills it, and without a cache.
fn measure<'a>(
    stage: &Stage<'_>,
    cell: &'a Cell,
    ways: &[Way],
    origin: &Server,
) -> Result<(Measured<'a>, Vec<Expectation>), ExperimentError> {
    let filling = Cell { n: 1, ..*cell };
    let name = |what: &str| format!("n={} c={}, {what}", cell.n, cell.c);
    let mut expectations = Vec::new();
    let mut cached = Vec::new();
    for way in ways {
        stage.load("warm-up", &load(cell, &filling, &way.server)?, &way.server)?;
        let before = origin_requests(origin.address)?;
        let run = stage.load(&name(way.name), &load(cell, cell, &way.server)?, &way.server)?;
        expectations
            .extend([all_answered(&run), from_cache(&run, origin_requests(origin.address)? - before)]);
        cached.push(run);
    }
    let without = stage.load(&name("without cache"), &load(cell, cell, origin)?, origin)?;
    expectations.push(all_answered(&without));
    Ok((Measured { cell, cached, without }, expectations))
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

fn chart(measured: &Measured<'_>) -> Chart {
    let Measured { cell, cached, without } = measured;
    let runs = cached.iter().chain([without]);
    let title = format!("Mean per URL, n = {}, c = {}", cell.n, cell.c);
    let series = runs.map(|run| Series::of_urls(way_of(run), run)).collect();
    Chart::linear(&format!("urls-n{}-c{}", cell.n, cell.c), &title, ("URL", "Time (ms)"), series)
}

/// Returns the name of the cache: the part of the run's name after the name of the cell.
fn way_of(run: &Run) -> &str {
    run.name.split_once(", ").map_or(&*run.name, |(_, way)| way)
}

fn saved_chart(ways: &[Way], all: &[Measured<'_>]) -> Chart {
    let series = |(way, named): (usize, &Way)| {
        let points = saved(all, way).into_iter().map(|(c, ms)| Point { x: c as f64, y: ms, ribbon: None });
        Series { name: named.name.to_owned(), points: points.collect() }
    };
    let series = ways.iter().enumerate().map(series).collect();
    Chart::linear("saved", "Time saved per request", ("Connections", "Time (ms)"), series)
}

/// Returns the milliseconds per request that one of the caches saves, for each number of connections.
fn saved(all: &[Measured<'_>], way: usize) -> Vec<(usize, f64)> {
    let saved = |measured: &Measured<'_>| {
        (measured.without.latency.mean_us - measured.cached[way].latency.mean_us) / 1000.0
    };
    all.iter().map(|measured| (measured.cell.c, saved(measured))).collect()
}

/// Judges all URLs together by the origin's exact count. A verdict per URL would rest on the latency of a few requests, which a busy
/// machine delays.
fn from_cache(run: &Run, forwarded: u64) -> Expectation {
    Expectation {
        what: format!("{}: no request reaches the origin", run.name),
        measured: format!("{forwarded} of {}", run.requests),
        holds: forwarded == 0 && run.requests > 0,
    }
}

/// Compares the saved time, which grows with the queue at the origin. The ratio of the means would depend on the machine.
fn saves_more(name: &str, saved: &[(usize, f64)]) -> Expectation {
    Expectation {
        what: format!("{name}: the more connections, the more time is saved per request"),
        measured: by_connections(saved),
        holds: grows(saved) && saved.first().is_some_and(|(_, least)| *least > 0.0),
    }
}

fn slower(all: &[Measured<'_>]) -> Expectation {
    let means: Vec<_> =
        all.iter().map(|measured| (measured.cell.c, measured.without.latency.mean_us / 1000.0)).collect();
    Expectation {
        what: "without cache: the more connections, the greater the mean".to_owned(),
        measured: by_connections(&means),
        holds: grows(&means),
    }
}

/// Compares the fewest connections with the most: in between, the number of requests per URL matters too.
fn wider(all: &[Measured<'_>]) -> Expectation {
    let deviations: Vec<_> =
        all.iter().map(|measured| (measured.cell.c, measured.without.latency.sd_us / 1000.0)).collect();
    let ends: Vec<_> = deviations.first().into_iter().chain(deviations.last()).copied().collect();
    Expectation {
        what: "without cache: the standard deviation grows from the fewest connections to the most"
            .to_owned(),
        measured: by_connections(&deviations),
        holds: grows(&ends),
    }
}

fn grows(values: &[(usize, f64)]) -> bool {
    values.len() > 1 && values.windows(2).all(|pair| pair[0].1 < pair[1].1)
}

fn by_connections(values: &[(usize, f64)]) -> String {
    values.iter().map(|(c, ms)| format!("{ms:.1} ms (c={c})")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_has_to_grow() {
        #[track_caller]
        fn check(saved_ms: &[f64], holds: bool) {
            let saved: Vec<_> = saved_ms.iter().copied().enumerate().collect();
            assert_eq!(saves_more("cached", &saved).holds, holds);
        }
        check(&[20.0, 40.0, 100.0, 200.0], true);
        check(&[20.0, 40.0, 39.0, 200.0], false);
        check(&[-1.0, 40.0, 100.0, 200.0], false);
        check(&[20.0], false);
        check(&[], false);
    }

    #[test]
    fn one_request_at_the_origin_fails() {
        let run = Run { requests: 1, ..Run::default() };
        assert!(from_cache(&run, 0).holds);
        assert!(!from_cache(&run, 1).holds);
        assert!(!from_cache(&Run::default(), 0).holds);
    }

    #[test]
    fn the_grid_is_in_the_order_of_its_connections() {
        assert!(GRID.is_sorted_by_key(|cell| cell.c));
    }
}
