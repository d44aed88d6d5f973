//! Many clients, one slow URL that expires every few seconds: the number of requests that reach the origin.
//!
//! 500 requests per second for one URL whose origin takes 500 ms and sends `max-age=5`. At each expiry, the origin gets all requests of
//! half a second without collapsing, and one request with collapsing.

use std::time::Duration;

use crate::http::{self, HttpLoad, Pace, Until};
use crate::result::{Chart, Expectation, Interval, Run};

use super::findings::{ExperimentError, Findings, all_answered};
use super::samples::{Sample, Sampler, client_series, growth, largest_step, rate_series};
use super::stage::{Stage, origin_requests_of};

/// Requests per second of all clients.
const RATE: f64 = 500.0;

/// Delay of the origin.
const DELAY_MS: u64 = 500;

/// Freshness lifetime of its response, in seconds.
const MAX_AGE_S: u64 = 5;

/// Result of one setting of `collapse`.
struct Variant {
    name: &'static str,
    run: Run,
    /// Number of requests at the origin over time.
    origin: Vec<Sample>,
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let variants = ["off", "process"].into_iter().map(|name| variant(name, stage));
    let variants = variants.collect::<Result<Vec<_>, _>>()?;
    Ok(Findings {
        title: "Coalescing",
        description: DESCRIPTION.to_owned(),
        charts: variants.iter().map(chart).collect(),
        expectations: expectations(&variants),
        runs: variants.into_iter().map(|variant| variant.run).collect(),
    })
}

fn variant(name: &'static str, stage: &mut Stage<'_>) -> Result<Variant, ExperimentError> {
    let origin = stage.origin(&[])?;
    let gateway = stage.gateway(&origin, &format!("collapse = \"{name}\""))?;
    let target = format!("/items/1?delay={DELAY_MS}&cc=max-age={MAX_AGE_S}");
    let mut load = HttpLoad::of_urls(&[gateway.url(&target)])?;
    // While the stored response is stale, the requests of half a second wait for the origin.
    load.connections = 600;
    load.pace = Pace::Open { per_second: RATE };
    load.until = Until::Elapsed(stage.duration(DURATION));
    let mut sampler = Sampler::start(|| origin_requests_of(origin.address, &target).ok());
    let run = stage.watch(&format!("collapse = {name}"), load.until, &gateway, |observer| {
        let mut sampling = |interval: &Interval| {
            sampler.tick();
            observer.observe(interval)
        };
        Ok(http::run(&load, &mut sampling)?)
    })?;
    Ok(Variant { name, run, origin: sampler.finish() })
}

/// Duration of the load: long enough for several expiries.
const DURATION: Duration = Duration::from_secs(60);

const DESCRIPTION: &str = "500 requests per second to one URL. The origin takes 500 ms and allows 5 s of freshness. \
    off: every request that finds the stored response stale goes to the origin. process: one of them does; the \
    others wait for its response.";

fn expectations(variants: &[Variant]) -> Vec<Expectation> {
    let of = |name| variants.iter().find(|variant: &&Variant| variant.name == name);
    let mut expectations: Vec<_> = variants.iter().map(|variant| all_answered(&variant.run)).collect();
    expectations.extend(of("off").map(cache_cuts));
    expectations.extend(of("process").map(one_per_expiry));
    expectations
}

/// Ten cycles: the response is fresh for 5 s, and missing for half a second. With fewer cycles, the cold start would distort the result.
const CYCLES_S: f64 = 55.0;

fn cache_cuts(variant: &Variant) -> Expectation {
    let (requests, all) = (growth(&variant.origin), variant.run.requests);
    let share = requests as f64 / all.max(1) as f64;
    let cut_percent = 100.0 * (1.0 - share);
    let expectation = Expectation {
        what: "collapse = off: the cache alone cuts origin traffic by more than 90 %".to_owned(),
        measured: format!("{requests} origin requests for {all} of clients, cut by {cut_percent:.1} %"),
        holds: share < 0.1,
    };
    expectation.judged_from(CYCLES_S, variant.run.elapsed_s)
}

/// A cycle can't be shorter than the freshness lifetime that remains after the delay.
fn one_per_expiry(variant: &Variant) -> Expectation {
    let shortest_s = (MAX_AGE_S * 1000 - DELAY_MS) as f64 / 1000.0;
    let cycles = (variant.run.elapsed_s / shortest_s).ceil() as u64 + 1;
    let (requests, together) = (growth(&variant.origin), largest_step(&variant.origin));
    Expectation {
        what: "collapse = process: one origin request per expiry".to_owned(),
        measured: format!(
            "{requests} origin requests in {:.0} s, never more than {together} between two samples a second apart",
            variant.run.elapsed_s
        ),
        holds: requests >= 1 && requests <= cycles && together <= 1,
    }
}

fn chart(variant: &Variant) -> Chart {
    let series =
        vec![client_series("client requests", &variant.run), rate_series("origin requests", &variant.origin)];
    Chart::over_time(
        &format!("requests-{}", variant.name),
        &format!("Requests at clients and at the origin, collapse = {}", variant.name),
        "Requests per second",
        series,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Errors, Verdict};

    fn variant(name: &'static str, requests: u64, origin: &[u64]) -> Variant {
        let run = Run { requests, elapsed_s: 55.0, ..Run::default() };
        let sample = |(at, total): (usize, &u64)| Sample { at_s: at as f64, total: *total };
        Variant { name, run, origin: origin.iter().enumerate().map(sample).collect() }
    }

    #[track_caller]
    fn check(variant: Variant, holds: &[bool]) {
        let held: Vec<_> = expectations(&[variant]).iter().map(|expectation| expectation.holds).collect();
        assert_eq!(held, holds);
    }

    #[test]
    fn each_expectation_can_fail() {
        check(variant("off", 1000, &[0, 99]), &[true, true]);
        check(variant("off", 1000, &[0, 100]), &[true, false]);
        check(variant("process", 1000, &[0, 1, 1, 2]), &[true, true]);
        // Failures: two requests at the same time, no request, and more requests than expiries.
        check(variant("process", 1000, &[0, 2]), &[true, false]);
        check(variant("process", 1000, &[0, 0]), &[true, false]);
        let many: Vec<u64> = (0..20).collect();
        check(variant("process", 1000, &many), &[true, false]);
        let mut broken = variant("process", 1000, &[0, 1]);
        broken.run.errors = Errors { broken: 1, ..Errors::default() };
        check(broken, &[false, true]);
    }

    #[test]
    fn a_short_run_does_not_judge_the_share() {
        let mut short = variant("off", 1000, &[0, 500]);
        short.run.elapsed_s = 20.0;
        let verdicts: Vec<_> = expectations(&[short]).iter().map(Expectation::verdict).collect();
        assert_eq!(verdicts, [Verdict::Holds, Verdict::NotJudged]);
    }
}
