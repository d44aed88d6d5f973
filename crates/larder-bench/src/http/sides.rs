//! Comparison: the same load on two servers, in alternating rounds.

use bench::http::{HttpLoad, Target, Until, Url, run_in_turn};
use bench::interrupt::Interruptible;
use bench::progress::Progress;
use bench::result::Run;

use super::arguments::HttpArguments;

/// Runs the load on its server and on that of `url`, and returns a run of each.
pub(super) fn run(arguments: &HttpArguments, load: &HttpLoad, url: &str) -> anyhow::Result<Vec<Run>> {
    let (url, rounds) = (Url::parse(url)?, arguments.rounds);
    let sides = [load.clone(), on_other(load, &url)];
    let goal = match load.until {
        Until::Requests(requests) => Until::Requests(requests * 2 * u64::from(rounds)),
        Until::Elapsed(duration) => Until::Elapsed(duration * 2 * rounds),
    };
    let progress = Progress::of_load("http", goal, arguments.progress());
    let interruptible = Interruptible::begin()?;
    let mut runs = run_in_turn(&sides, rounds, &mut interruptible.ending(&mut progress.observer()))?;
    progress.finish();
    let urls = [&load.targets[0].url, &url];
    let is_one_server = urls[0].authority() == urls[1].authority();
    for (run, url) in runs.iter_mut().zip(urls) {
        run.name = if is_one_server { url.to_string() } else { url.authority() };
        // The figures are the sum of all rounds, but the load is that of each round.
        run.load = format!("{rounds} alternating rounds, each of {}", run.load);
    }
    Ok(runs)
}

/// Returns the same load for another server. If the load has a single URL, `url` also replaces its path.
fn on_other(load: &HttpLoad, url: &Url) -> HttpLoad {
    let other = |target: &Target| {
        let path = if load.targets.len() == 1 { url.path.clone() } else { target.url.path.clone() };
        Target { url: Url { path, ..url.clone() }, ..target.clone() }
    };
    HttpLoad { targets: load.targets.iter().map(other).collect(), ..load.clone() }
}
