//! Counts common to every kind of load.

use std::time::Duration;

use super::work::Slice;
use crate::result::{Errors, Failure, Latencies};

/// Counts of a worker, or of all workers.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(super) slice: Slice,
    pub(crate) errors: Errors,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Time to open each connection.
    pub(crate) connects: Latencies,
    pub(crate) reconnects: u64,
    /// Requests that were due before the end but never sent.
    pub(crate) unsent: u64,
    /// Requests that have been answered or have failed.
    pub(crate) completed: u64,
}

impl Counts {
    /// Counts correct answers with the same latency.
    #[inline]
    pub(crate) fn right(&mut self, latency: Duration, answers: usize) {
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.slice.latencies.record_many(latency_us, answers as u64);
    }

    /// Counts an unexpected answer.
    pub(crate) fn wrong(&mut self) {
        self.errors.wrong += 1;
        self.slice.errors += 1;
    }

    /// Counts the missing answers of a request that has failed.
    pub(crate) fn fail(&mut self, failure: Failure, answers: usize) {
        let (answers, first) = (answers as u64, u64::from(answers > 0));
        self.errors.count(failure, first);
        // A malformed answer ends the connection, so the other answers are lost with it.
        let others = if failure == Failure::Malformed { Failure::Broken } else { failure };
        self.errors.count(others, answers - first);
        self.slice.errors += answers;
    }

    /// Adds the counts of another worker, except for its slices, which are merged while the load runs.
    pub(super) fn add(&mut self, other: &Self) {
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.connects.add(&other.connects);
        self.reconnects += other.reconnects;
        self.unsent += other.unsent;
        self.completed += other.completed;
    }
}
