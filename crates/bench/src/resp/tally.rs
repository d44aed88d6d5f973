//! Counts the outcomes of one worker's commands.

use std::collections::BTreeMap;

use super::dialect::{Dialect, Due, Verb};
use super::verify::Outcome;
use crate::result::Outcome as OutcomeCount;

/// Counts of a worker, in addition to those of every kind of load.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Expected replies, by [`place`].
    right: [u64; 4],
    others: BTreeMap<String, u64>,
    /// Description of the first wrong reply.
    pub(super) first_problem: Option<String>,
}

/// Maximum number of distinct outcomes, because unexpected replies of a server add outcomes.
const NAMES_MAX: usize = 32;
const SHOWN_BYTES: usize = 120;

impl Tally {
    #[inline]
    pub(super) fn right(&mut self, verb: Verb) {
        self.right[place(verb)] += 1;
    }

    pub(super) fn other(&mut self, outcome: &Outcome) {
        self.other_named(name(outcome), 1);
    }

    fn other_named(&mut self, name: &str, count: u64) {
        let is_room = self.others.len() < NAMES_MAX || self.others.contains_key(name);
        *self.others.entry(if is_room { name } else { "other" }.to_owned()).or_default() += count;
    }

    /// Keeps the first wrong reply, for the report.
    pub(super) fn problem(&mut self, dialect: &Dialect, due: Option<Due>, reply: &[u8]) {
        if self.first_problem.is_some() {
            return;
        }
        let shown = |bytes: &[u8]| {
            let end = if bytes.len() > SHOWN_BYTES { "..." } else { "" };
            format!("\"{}{end}\"", bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii())
        };
        self.first_problem = Some(match due {
            None => format!("unsolicited reply: {}", shown(reply)),
            Some(due) if !due.verb.is_counted() => format!("the answer to the greeting is {}", shown(reply)),
            Some(due) => {
                let (mut command, mut expected) = (Vec::new(), Vec::new());
                dialect.write(&mut command, due);
                dialect.write_reply(&mut expected, due);
                format!(
                    "{} was answered with {} instead of {}",
                    shown(&command),
                    shown(reply),
                    shown(&expected)
                )
            }
        });
    }

    pub(super) fn add(&mut self, other: Self) {
        self.right.iter_mut().zip(other.right).for_each(|(sum, part)| *sum += part);
        other.others.iter().for_each(|(name, count)| self.other_named(name, *count));
        self.first_problem = self.first_problem.take().or(other.first_problem);
    }

    pub(super) fn outcomes(&self) -> Vec<OutcomeCount> {
        let mut sums = self.others.clone();
        for (outcome, count) in RIGHT.iter().zip(self.right) {
            *sums.entry(name(outcome).to_owned()).or_default() += count;
        }
        let counts = sums.into_iter().filter(|(_, count)| *count > 0);
        counts.map(|(name, count)| OutcomeCount { name, count }).collect()
    }
}

const RIGHT: [Outcome; 4] = [Outcome::Ok, Outcome::Value, Outcome::Nil, Outcome::Deleted];

fn place(verb: Verb) -> usize {
    match verb {
        Verb::Set | Verb::Greeting => 0,
        Verb::Get => 1,
        Verb::GetMissing => 2,
        Verb::Del => 3,
    }
}

fn name(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Value => "value",
        Outcome::Nil => "nil",
        Outcome::Deleted => "deleted",
        Outcome::NotDeleted => "not deleted",
        Outcome::Error(text) => text,
        Outcome::Other => "other",
    }
}
