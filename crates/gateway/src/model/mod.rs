//! Random histories of several instances over one store. Each answer is checked against the guarantees of
//! `docs/internals/coherence.md`.
//!
//! Caches, tiers, look-ups, publications, purges and the coherence of instances are the gateway's own code, as in the binary. The
//! code runs with a test double of a tier, on one thread, with a clock that advances only while all tasks wait. The model adds the
//! origin, the clients, the failures of the store and of its connections, and the check of answers.
//!
//! Each rule in [`RULES`] has a fault that disables it, and the check must detect this fault.

mod book;
mod client;
mod history;
mod link;
mod origin;
mod process;
mod urls;
mod wire;

use std::time::Duration;

use fleet::faults::{Fault, PLANTED};

use self::history::{Ending, History, Shape};

pub(super) const VERIFICATION: Duration = Duration::from_secs(2);

/// Rule that a planted fault disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    PushesMark,
    PushesOvertakeAnswers,
    SuspectsAreReadAgain,
    GenerationsEnd,
    ReadsAreFollowed,
    OthersPurgesCount,
    AllAreWaitedFor,
    FillsNoteTheirPlace,
    LogIsReadFirst,
    LostLogsAreNoticed,
    ShorterLogsAreNoticed,
    TrimmedLogsAreNoticed,
    BeginningsPurge,
    RegionsAreWaitedFor,
}

const ALONE: Shape = Shape { regions: 1, instances: 3 };
const REGIONS: Shape = Shape { regions: 2, instances: 2 };

/// Rules, each with the effect of disabling it and a history that reveals it. After a change to the gateway, the first history that
/// reveals the fault may be a different one, among the first [`HISTORIES_MAX`].
///
/// A rule isn't listed if another rule hides its absence (a fetch that is doomed by a purge is also checked by its position in the
/// log; the store reports an operation that overtakes an answer a moment later), or if it only saves work (waiting until a purge is
/// in the log).
const RULES: &[(Rule, &str, u64)] = &[
    (Rule::PushesMark, "notifications about a record reach no instance", 1),
    (Rule::PushesOvertakeAnswers, "notifications that arrive while the record is read are forgotten", 10),
    (Rule::SuspectsAreReadAgain, "suspect records are used", 0),
    (Rule::GenerationsEnd, "copies of an earlier connection are verified", 7),
    (Rule::ReadsAreFollowed, "keys that are read are not followed", 1),
    (Rule::OthersPurgesCount, "purges of other instances have no effect", 2),
    (Rule::AllAreWaitedFor, "all instances count as having read all of the log", 373),
    (Rule::FillsNoteTheirPlace, "a response counts as requested at the time of its arrival", 20),
    (Rule::LogIsReadFirst, "the store is used before the log has been read", 11),
    (Rule::LostLogsAreNoticed, "a different log counts as the same log", 1),
    (Rule::ShorterLogsAreNoticed, "a log that has lost its end counts as complete", 188),
    (Rule::TrimmedLogsAreNoticed, "a log that has lost its beginning counts as complete", 188),
];
/// Rules of several regions. That gaps are noticed isn't listed: they need a carrier that writes while the log of its region is set back.
/// `fleet::origins` has a table for them.
const RULES_OF_REGIONS: &[(Rule, &str, u64)] = &[
    (Rule::BeginningsPurge, "purges that another region has lost are not noticed", 1),
    (Rule::RegionsAreWaitedFor, "purges are complete before other regions have applied them", 0),
];
const HISTORIES_MAX: u64 = 1000;

fn play(seed: u64, planted: Option<Rule>, shape: Shape) -> Ending {
    PLANTED.set(match planted {
        Some(Rule::SuspectsAreReadAgain) => Some(Fault::TrustsSuspects),
        Some(Rule::BeginningsPurge) => Some(Fault::IgnoresBeginnings),
        Some(Rule::RegionsAreWaitedFor) => Some(Fault::WaitsForNoRegion),
        _ => None,
    });
    let ending = History::play(seed, planted, shape);
    PLANTED.set(None);
    ending
}

/// Returns the seeds of the histories: `COHERENCE_HISTORIES` of them, starting at `COHERENCE_SEED`.
fn histories(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("COHERENCE_SEED").unwrap_or(0);
    first..first + number("COHERENCE_HISTORIES").unwrap_or(default)
}

fn check(shape: Shape, histories: std::ops::Range<u64>) {
    let (mut served, count) = (0, histories.end - histories.start);
    for seed in histories {
        let ending = play(seed, None, shape);
        if let Some(violation) = &ending.violation {
            panic!("COHERENCE_SEED={seed} COHERENCE_HISTORIES=1: {violation}\n{}", ending.story);
        }
        served += ending.served;
    }
    assert!(served > 10 * count, "too few answers were stored responses");
}

#[test]
fn no_history_breaks_a_guarantee() {
    check(ALONE, histories(80));
}

#[test]
fn no_history_of_regions_breaks_a_guarantee() {
    check(REGIONS, histories(30));
}

fn check_rules(rules: &[(Rule, &str, u64)], shape: Shape) {
    let mut unnoticed = Vec::new();
    for (rule, says, showed) in rules {
        let seeds = std::iter::once(*showed).chain(0..HISTORIES_MAX);
        match { seeds }.find(|seed| play(*seed, Some(*rule), shape).violation.is_some()) {
            Some(seed) => eprintln!("{rule:?}: detected in history {seed}"),
            None => unnoticed.push((rule, says)),
        }
    }
    assert!(unnoticed.is_empty(), "not detected: {unnoticed:?}");
}

#[test]
fn each_rule_that_is_switched_off_is_missed() {
    check_rules(RULES, ALONE);
}

#[test]
fn each_rule_of_regions_that_is_switched_off_is_missed() {
    check_rules(RULES_OF_REGIONS, REGIONS);
}

#[test]
fn a_history_follows_from_its_seed() {
    let story = |shape| play(7, None, shape).story;
    assert_eq!(story(ALONE), story(ALONE));
    assert_eq!(story(REGIONS), story(REGIONS));
}
