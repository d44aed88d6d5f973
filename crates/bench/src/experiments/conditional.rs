//! Clients that come back: each asks for an item, thinks for a while, and asks whether it changed.
//!
//! The items are fresh for 1 to 60 seconds and take the origin 100 to 200 ms, so that a second request meets every
//! state: fresh, stale and unchanged, evicted from nothing but time.

use std::time::Duration;

use crate::http::{HttpLoad, Order, Revisit, Until};
use crate::result::{Chart, Expectation, Run};

use super::findings::{ExperimentError, Findings, all_answered};
use super::samples::{Sampler, client_series, growth, rate_series};
use super::stage::{Server, Stage, origin_requests};

/// Items that are asked for: few, so that a client meets most of them again.
const ITEMS: u64 = 25;

/// Clients at the same time, each on a connection of its own.
const CLIENTS: usize = 1000;

/// How long a client thinks before each request.
const THINK: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

const DURATION: Duration = Duration::from_secs(60);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let origin = stage.origin(&[])?;
    let gateway = stage.gateway(&origin, "")?;
    let mut load = HttpLoad::of_urls(&urls(&gateway))?;
    load.order = Order::Random;
    load.connections = CLIENTS;
    load.revisit = Revisit::Conditional;
    load.think = Some(THINK[0]..=THINK[1]);
    load.until = Until::Elapsed(stage.duration(DURATION));
    let address = origin.address;
    let sampler = Sampler::start(move || origin_requests(address).ok());
    let run = stage.load("clients that come back", &load, &gateway)?;
    let origin = sampler.finish();
    let chart = Chart::over_time(
        "requests",
        "Requests at clients and at the origin",
        "Requests per second",
        vec![client_series("client requests", &run), rate_series("origin requests", &origin)],
    );
    Ok(Findings {
        title: "Conditional requests",
        description: format!(
            "{CLIENTS} clients ask for {ITEMS} items at random, think for {} to {} s before each request, and send \
             If-None-Match for what they have seen. Items are fresh for 1 to 60 s; the origin takes 100 to 200 ms.",
            THINK[0].as_secs(),
            THINK[1].as_secs()
        ),
        expectations: expectations(&run, growth(&origin)),
        charts: vec![chart],
        runs: vec![run],
    })
}

/// Delays and lifetimes that spread over the items, the same in every run.
fn urls(gateway: &Server) -> Vec<String> {
    let url = |item: u64| {
        let (delay, max_age) = (100 + item * 37 % 101, 1 + item * 23 % 60);
        gateway.url(&format!("/items/{item}?delay={delay}&cc=max-age={max_age}&etag=v{item}"))
    };
    (0..ITEMS).map(url).collect()
}

/// The longest think time twice, and what is left of the answers: each client has asked again, and some for what they have.
const JUDGED_S_MIN: f64 = 12.0;

fn expectations(run: &Run, asked: u64) -> Vec<Expectation> {
    let judged = |expectation: Expectation| expectation.judged_from(JUDGED_S_MIN, run.elapsed_s);
    let answered = all_answered(run);
    let answered = if run.errors.total() > 0 { answered } else { judged(answered) };
    vec![answered, judged(only_these_statuses(run)), judged(fewer_at_the_origin(asked, run))]
}

fn only_these_statuses(run: &Run) -> Expectation {
    let count = |name: &str| {
        run.outcomes.iter().filter(|outcome| outcome.name == name).map(|outcome| outcome.count).sum::<u64>()
    };
    let (full, unchanged) = (count("200"), count("304"));
    Expectation {
        what: "all answers are 200 or 304, and both occur".to_owned(),
        measured: format!(
            "{full} with 200, {unchanged} with 304, {} others",
            run.requests - full - unchanged
        ),
        holds: full + unchanged == run.requests && full > 0 && unchanged > 0,
    }
}

fn fewer_at_the_origin(asked: u64, run: &Run) -> Expectation {
    Expectation {
        what: "the origin is asked less often than the cache".to_owned(),
        measured: format!("{asked} origin requests for {}", run.requests),
        holds: asked < run.requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Errors, Outcome, Verdict};

    fn verdicts(elapsed_s: f64, counts: [u64; 3], asked: u64, broken: u64) -> Vec<Verdict> {
        let outcome = |(name, count): (&str, u64)| Outcome { name: name.to_owned(), count };
        let run = Run {
            elapsed_s,
            requests: counts.iter().sum(),
            outcomes: ["200", "304", "500"].into_iter().zip(counts).map(outcome).collect(),
            errors: Errors { broken, ..Errors::default() },
            ..Run::default()
        };
        expectations(&run, asked).iter().map(Expectation::verdict).collect()
    }

    #[test]
    fn each_expectation_can_fail() {
        use Verdict::{Fails, Holds};
        assert_eq!(verdicts(60.0, [10, 5, 0], 9, 0), [Holds, Holds, Holds]);
        assert_eq!(verdicts(60.0, [10, 5, 0], 9, 1), [Fails, Holds, Holds]);
        assert_eq!(verdicts(60.0, [10, 5, 1], 9, 0), [Holds, Fails, Holds]);
        assert_eq!(verdicts(60.0, [10, 0, 0], 9, 0), [Holds, Fails, Holds]);
        assert_eq!(verdicts(60.0, [10, 5, 0], 15, 0), [Holds, Holds, Fails]);
        assert_eq!(verdicts(60.0, [0, 0, 0], 0, 0), [Fails, Fails, Fails]);
    }

    /// In one second nobody has asked for anything.
    #[test]
    fn a_short_run_is_not_judged() {
        assert_eq!(verdicts(1.0, [0, 0, 0], 0, 0), [Verdict::NotJudged; 3]);
        // Yet what has failed has failed.
        assert_eq!(verdicts(11.0, [10, 0, 0], 10, 1)[0], Verdict::Fails);
    }
}
