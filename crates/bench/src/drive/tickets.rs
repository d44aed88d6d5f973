//! The schedule: which request is next, and when it is due.

use std::time::Duration;

use super::pace::Pace;
use crate::random::SplitMix;

/// The requests of one worker: every `step`th of the load, starting with `first`.
#[derive(Debug)]
pub(crate) struct Tickets {
    pub(crate) first: u64,
    pub(crate) step: u64,
    /// Maximum number of requests for the worker.
    pub(crate) limit: Option<u64>,
    /// Pace of the whole load.
    pub(crate) pace: Pace,
    pub(crate) taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    /// Position among all requests of the load.
    pub(super) place: u64,
    /// Time since the start of the run. Zero in a closed loop.
    pub(super) due: Duration,
}

impl Tickets {
    pub(super) fn is_exhausted(&self) -> bool {
        self.limit.is_some_and(|limit| self.taken >= limit)
    }

    pub(super) fn is_closed_loop(&self) -> bool {
        self.pace == Pace::Closed
    }

    /// Returns when the next request is due, or `None` if there is none.
    pub(super) fn next_due(&self) -> Option<Duration> {
        if self.is_exhausted() { None } else { Some(self.due(self.taken)) }
    }

    /// Takes the next request, if it is due.
    pub(super) fn take(&mut self, elapsed: Duration) -> Option<Ticket> {
        let due = self.next_due().filter(|due| *due <= elapsed)?;
        let ticket = Ticket { place: self.place(self.taken), due };
        self.taken += 1;
        Some(ticket)
    }

    /// Returns the number of requests that were due before `end` but not taken.
    pub(super) fn overdue(&self, end: Duration) -> u64 {
        if self.is_closed_loop() {
            return 0;
        }
        let mut next = self.taken;
        let limit = self.limit.unwrap_or(u64::MAX);
        while next < limit && self.due(next) < end {
            next += 1;
        }
        next - self.taken
    }

    fn place(&self, taken: u64) -> u64 {
        self.first + taken * self.step
    }

    fn due(&self, taken: u64) -> Duration {
        match self.pace {
            Pace::Closed => Duration::ZERO,
            #[expect(clippy::cast_precision_loss, reason = "2^52 requests are out of reach")]
            Pace::Open { per_second } => Duration::from_secs_f64(self.place(taken) as f64 / per_second),
        }
    }
}

/// Returns a pseudorandom number for each number, so that consecutive numbers are scattered.
pub(crate) fn scramble(number: u64) -> u64 {
    SplitMix::new(number).next()
}
