//! Comparisons: the same load on two servers, or on each URL and its twin, in alternating rounds.

use std::time::Duration;

use bench::http::{Detail, HttpLoad, Target, Until, Url, run_in_turn};
use bench::interrupt::Interruptible;
use bench::progress::Progress;
use bench::result::Run;

use super::arguments::HttpArguments;

/// The loads of both sides, in the order of their rounds.
pub(super) struct Sides {
    names: [String; 2],
    loads: [Vec<HttpLoad>; 2],
}

/// Returns `None` if the arguments ask for no comparison.
pub(super) fn of(arguments: &HttpArguments, load: &HttpLoad) -> anyhow::Result<Option<Sides>> {
    let compare = &arguments.compare;
    if let Some(url) = &compare.compare {
        return servers(load, &Url::parse(url)?, compare.rounds).map(Some);
    }
    compare.compare_replace.as_ref().map(|(from, to)| twins(load, from, to)).transpose()
}

pub(super) fn run(arguments: &HttpArguments, sides: &Sides) -> anyhow::Result<Vec<Run>> {
    let progress = Progress::of_load("http", goal(sides), arguments.progress());
    let interruptible = Interruptible::begin()?;
    let mut runs = run_in_turn(&sides.loads, &mut interruptible.ending(&mut progress.observer()))?;
    progress.finish();
    for ((run, name), loads) in runs.iter_mut().zip(&sides.names).zip(&sides.loads) {
        run.name.clone_from(name);
        // The figures are the sum of the rounds, each of which had this load.
        run.load = format!("{} rounds by turns, each of {}", loads.len(), run.load);
    }
    Ok(runs)
}

/// The same paths on another server, once per round.
fn servers(load: &HttpLoad, url: &Url, rounds: u32) -> anyhow::Result<Sides> {
    let other = |target: &Target| {
        let path = if load.targets.len() == 1 { url.path.clone() } else { target.url.path.clone() };
        Target { url: Url { path, ..url.clone() }, ..target.clone() }
    };
    let twin = HttpLoad { targets: load.targets.iter().map(other).collect(), ..load.clone() };
    let rounds = rounds as usize;
    let names = [&load.targets[0].url, url].map(Url::authority);
    let names = if names[0] == names[1] { [&load.targets[0].url, url].map(Url::to_string) } else { names };
    Ok(Sides { names, loads: [vec![load.clone(); rounds], vec![twin; rounds]] })
}

/// Each URL and its twin, one after the other.
fn twins(load: &HttpLoad, from: &str, to: &str) -> anyhow::Result<Sides> {
    let mut loads = [Vec::new(), Vec::new()];
    for target in &load.targets {
        let text = target.url.to_string();
        anyhow::ensure!(text.contains(from), "{text} has no {from:?} to replace");
        let twin = Target { url: Url::parse(&text.replacen(from, to, 1))?, ..target.clone() };
        for (side, target) in loads.iter_mut().zip([target.clone(), twin]) {
            side.push(HttpLoad { targets: vec![target], detail: Detail::PerUrl, ..load.clone() });
        }
    }
    Ok(Sides { names: [from.into(), to.into()], loads })
}

/// The end of both sides with all their rounds.
fn goal(sides: &Sides) -> Until {
    let (mut requests, mut duration) = (0, Duration::ZERO);
    for load in sides.loads.iter().flatten() {
        match load.until {
            Until::Requests(more) => requests += more,
            Until::Elapsed(more) => duration += more,
        }
    }
    if requests > 0 { Until::Requests(requests) } else { Until::Elapsed(duration) }
}
