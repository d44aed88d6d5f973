//! What a request costs by where its response lies: in memory, in the store that gateways share, or nowhere yet.
//!
//! One gateway fetches pages, another one is asked for each of them: the first time it reads the store, the second time its memory. One
//! client asks, one request at a time, and a round trip to the store is measured before each.

use std::io;
use std::time::Instant;

use crate::peers;
use crate::result::{Expectation, Run};

use super::findings::{ExperimentError, Findings, all_answered};
use super::fleet::{
    Answer, Asker, Kind, RoundTrips, Store, are_one, is_written, latencies_ms, percentile, run_of, shared,
};
use super::stage::{Server, Stage, io_error};

/// Of each kind.
const PAGES: u64 = 2_000;

/// What a hit in the store may take beyond its round trips.
const BEYOND_MS: f64 = 0.2;

const DESCRIPTION: &str = "Two gateways share a Redis. One has fetched pages, the other one is asked for each of them, one at a time: a remote \
    hit reads the store, the local hit after it is in memory. With Vary, the store has a record with the variants and one for each \
    of them. A miss is for a page that nobody has.";

/// A kind of request, and what came of it.
struct Row {
    name: &'static str,
    answers: Vec<Answer>,
    /// Answers that came from elsewhere than the row says.
    others: u64,
}

impl Row {
    fn new(name: &'static str) -> Self {
        Self { name, answers: Vec::new(), others: 0 }
    }

    fn median_ms(&self) -> f64 {
        percentile(&latencies_ms(self.answers.iter()), 50)
    }

    fn run(&self) -> Run {
        let run = run_of(self.name, "1 client, a request at a time", self.answers.iter());
        // The rows take turns: how many requests of one there are in a second is a matter of the others.
        Run { requests_per_s: 0.0, ..run }
    }
}

/// Where the response was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Store,
    Origin,
}

impl Place {
    fn of(answer: Option<&peers::Answer>) -> Option<Self> {
        let said = answer?.field("cache-status")?;
        Some(match said.contains("; hit") {
            true if said.contains("shared-store") => Self::Store,
            true => Self::Memory,
            false => Self::Origin,
        })
    }
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let origin = stage.origin(&[])?;
    let store = Store::Redis.start(stage, &[])?;
    let tables = shared(store.address);
    let gateways = [stage.gateway_with(&origin, &tables, "")?, stage.gateway_with(&origin, &tables, "")?];
    are_one(&gateways)?;
    let pages = stage.requests(PAGES);
    fill(&gateways[0], pages)?;
    let (rows, round_trip_ms) = ask(&gateways[1], pages, RoundTrips::to(store.address)?)?;
    Ok(Findings {
        title: "Tiers",
        description: DESCRIPTION.to_owned(),
        runs: rows.iter().map(Row::run).collect(),
        charts: Vec::new(),
        expectations: expectations(&rows, round_trip_ms),
    })
}

const GERMAN: &[&str] = &["Accept-Language: de"];

fn plain(page: u64) -> String {
    format!("/items/{page}?cc=max-age=3600")
}

fn varied(page: u64) -> String {
    format!("/items/v{page}?cc=max-age=3600&vary=accept-language")
}

/// One gateway fetches all pages.
fn fill(gateway: &Server, pages: u64) -> Result<(), ExperimentError> {
    let mut asker = Asker::new(&[gateway.address]);
    for page in 0..pages {
        for path in [plain(page), varied(page)] {
            if asker.ask(0, &path, GERMAN).0 == Kind::Failed {
                return Err(io_error("a gateway does not answer", io::ErrorKind::InvalidData.into()));
            }
        }
    }
    is_written(gateway)
}

/// Asks the other one. All hits in turn, so that what disturbs one disturbs all.
fn ask(
    gateway: &Server,
    pages: u64,
    mut round_trips: RoundTrips,
) -> Result<(Vec<Row>, f64), ExperimentError> {
    let kinds = [
        ("local hit", Place::Memory),
        ("remote hit", Place::Store),
        ("remote hit with Vary", Place::Store),
        ("miss", Place::Origin),
    ];
    let mut rows = kinds.map(|(name, _)| Row::new(name));
    let mut asker = Asker::new(&[gateway.address]);
    let begun = Instant::now();
    let hits = (0..pages).flat_map(|page| [(1, plain(page)), (0, plain(page)), (2, varied(page))]);
    // Apart: what a miss has brought is written while the next request is answered.
    let misses = (pages..2 * pages).map(|page| (3, plain(page)));
    for (row, path) in hits.chain(misses) {
        round_trips.ask()?;
        let at = Instant::now();
        let (kind, answer) = asker.ask(0, &path, GERMAN);
        let (latency, at_s) = (at.elapsed(), (at - begun).as_secs_f64());
        rows[row].others += u64::from(Place::of(answer.as_ref()) != Some(kinds[row].1));
        rows[row].answers.push(Answer { at_s, kind, latency });
    }
    Ok((rows.into(), round_trips.median_ms()))
}

fn expectations(rows: &[Row], round_trip_ms: f64) -> Vec<Expectation> {
    let local_ms = rows[0].median_ms();
    let remote = |row: &Row, round_trips: f64| {
        let beyond = row.median_ms() - local_ms - round_trips * round_trip_ms;
        let words = if round_trips == 1.0 { "a round trip" } else { "two round trips" };
        Expectation {
            what: format!("{}: p50 at most that of a local hit, {words} and {BEYOND_MS} ms", row.name),
            measured: format!(
                "{:.3} ms, local hit {local_ms:.3} ms, a round trip {round_trip_ms:.3} ms: {beyond:+.3} ms beyond",
                row.median_ms()
            ),
            holds: beyond <= BEYOND_MS,
        }
    };
    let mut expectations: Vec<_> = rows.iter().map(|row| all_answered(&row.run())).collect();
    expectations.extend(rows.iter().map(from_there));
    expectations.extend([remote(&rows[1], 1.0), remote(&rows[2], 2.0)]);
    expectations
}

/// An entry may be looked at once more, as where the store has told a change of it.
fn from_there(row: &Row) -> Expectation {
    let all = row.answers.len() as u64;
    Expectation {
        what: format!("{}: at least 99 % are what the row says", row.name),
        measured: format!("{} of {all}", all - row.others),
        holds: row.others * 100 <= all,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(latencies_us: [u64; 4], others: u64, holds: [bool; 10]) {
        let names = ["local hit", "remote hit", "remote hit with Vary", "miss"];
        let row = |(name, us): (&'static str, u64)| Row {
            name,
            answers: vec![Answer { at_s: 0.0, kind: Kind::Hit, latency: Duration::from_micros(us) }],
            others,
        };
        let rows: Vec<Row> = names.into_iter().zip(latencies_us).map(row).collect();
        let held: Vec<bool> = expectations(&rows, 0.1).iter().map(|expectation| expectation.holds).collect();
        assert_eq!(held, holds);
    }

    #[test]
    fn each_expectation_can_fail() {
        const T: bool = true;
        const F: bool = false;
        check([50, 340, 440, 900], 0, [T; 10]);
        check([50, 360, 440, 900], 0, [T, T, T, T, T, T, T, T, F, T]);
        check([50, 340, 460, 900], 0, [T, T, T, T, T, T, T, T, T, F]);
        check([50, 340, 440, 900], 1, [T, T, T, T, F, F, F, F, T, T]);
    }
}
