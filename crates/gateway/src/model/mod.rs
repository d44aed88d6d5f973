//! Random histories of several instances over one store, and a check of each answer against the guarantees of `docs/internals/coherence.md`.
//!
//! Caches, tiers, look-ups, publications, purges and the coherence of instances are the gateway's own code, as in the binary. It runs
//! over a test double of a tier, on one thread, in a time that passes only when all tasks wait. The model adds the origin, the clients,
//! the failures of the store and of the connections to it, and the judge.
//!
//! For each rule there is a fault that switches it off, and the judge must notice: [`RULES`].

mod book;
mod client;
mod history;
mod origin;
mod process;
mod urls;
mod wire;

use std::time::Duration;

use fleet::faults::TRUSTS_SUSPECTS;

use self::history::{Ending, History};

pub(super) const VERIFICATION: Duration = Duration::from_secs(2);

/// Rule that a planted fault switches off.
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
}

/// Rules, the effect of switching each off, and a history in which it showed. If the gateway changes, it may be another one of the first
/// [`HISTORIES_MAX`].
///
/// Not listed are rules whose absence another one hides (a fetch that a purge dooms is also judged by its place; the store reports an
/// operation that overtakes an answer a moment later), and rules that only save work (waiting for the log to have a purge).
const RULES: &[(Rule, &str, u64)] = &[
    (Rule::PushesMark, "what the store tells of a record reaches nobody", 1),
    (Rule::PushesOvertakeAnswers, "what it tells while the record is being read is forgotten", 10),
    (Rule::SuspectsAreReadAgain, "a mark of suspicion means nothing", 0),
    (Rule::GenerationsEnd, "copies of an earlier connection are verified", 7),
    (Rule::ReadsAreFollowed, "what is read is not followed", 1),
    (Rule::OthersPurgesCount, "the purges of others have no effect", 2),
    (Rule::AllAreWaitedFor, "all instances count as having read all of the log", 483),
    (Rule::FillsNoteTheirPlace, "a response counts as asked for when it has arrived", 20),
    (Rule::LogIsReadFirst, "the store is used before the log was read", 11),
    (Rule::LostLogsAreNoticed, "another log counts as the same one", 1),
    (Rule::ShorterLogsAreNoticed, "a log that has lost its end counts as whole", 10),
    (Rule::TrimmedLogsAreNoticed, "a log that has lost its beginning counts as whole", 610),
];
const HISTORIES_MAX: u64 = 1000;

fn play(seed: u64, planted: Option<Rule>) -> Ending {
    TRUSTS_SUSPECTS.set(planted == Some(Rule::SuspectsAreReadAgain));
    let ending = History::play(seed, planted);
    TRUSTS_SUSPECTS.set(false);
    ending
}

/// Returns the seeds to play: `COHERENCE_HISTORIES` of them, by default 80, from `COHERENCE_SEED` on.
fn histories() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("COHERENCE_SEED").unwrap_or(0);
    first..first + number("COHERENCE_HISTORIES").unwrap_or(80)
}

#[test]
fn no_history_breaks_a_guarantee() {
    let mut served = 0;
    for seed in histories() {
        let ending = play(seed, None);
        if let Some(violation) = &ending.violation {
            panic!("COHERENCE_SEED={seed} COHERENCE_HISTORIES=1: {violation}\n{}", ending.story);
        }
        served += ending.served;
    }
    assert!(served > 10 * (histories().end - histories().start), "hardly any answer was a stored one");
}

#[test]
fn each_rule_that_is_switched_off_is_missed() {
    let mut unnoticed = Vec::new();
    for (rule, says, showed) in RULES {
        let seeds = std::iter::once(*showed).chain(0..HISTORIES_MAX);
        match { seeds }.find(|seed| play(*seed, Some(*rule)).violation.is_some()) {
            Some(seed) => eprintln!("{rule:?}: noticed in history {seed}"),
            None => unnoticed.push((rule, says)),
        }
    }
    assert!(unnoticed.is_empty(), "nobody noticed: {unnoticed:?}");
}

#[test]
fn a_history_follows_from_its_seed() {
    let story = || play(7, None).story;
    assert_eq!(story(), story());
}
