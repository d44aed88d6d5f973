//! The schedule: which request is next, and when it is due.

use std::sync::Arc;
use std::time::Duration;

use super::load::{Order, Pace};
use crate::random::SplitMix;

/// The requests of one worker: every `step`th of the load, starting with `first`.
#[derive(Debug)]
pub(super) struct Tickets {
    pub(super) first: u64,
    pub(super) step: u64,
    /// Maximum number of requests for the worker.
    pub(super) limit: Option<u64>,
    pub(super) order: Order,
    pub(super) seed: u64,
    /// The request at each position of the list.
    pub(super) sequence: Arc<Vec<u32>>,
    pub(super) pace: Pace,
    pub(super) taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) request: usize,
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

    /// When the next request is due. `None` if there is none.
    pub(super) fn next_due(&self) -> Option<Duration> {
        if self.is_exhausted() { None } else { Some(self.due(self.taken)) }
    }

    /// Takes the next request, if it is due.
    pub(super) fn take(&mut self, elapsed: Duration) -> Option<Ticket> {
        let due = self.next_due().filter(|due| *due <= elapsed)?;
        let ticket = Ticket { request: self.request(self.index(self.taken)), due };
        self.taken += 1;
        Some(ticket)
    }

    /// Number of requests that were due before `end` and not taken.
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

    /// The position of a ticket among all of the load.
    fn index(&self, taken: u64) -> u64 {
        self.first + taken * self.step
    }

    fn due(&self, taken: u64) -> Duration {
        match self.pace {
            Pace::Closed => Duration::ZERO,
            #[expect(clippy::cast_precision_loss, reason = "2^52 requests are out of reach")]
            Pace::Open { per_second } => Duration::from_secs_f64(self.index(taken) as f64 / per_second),
        }
    }

    fn request(&self, index: u64) -> usize {
        let places = self.sequence.len() as u64;
        let place = match self.order {
            Order::InTurn => index % places,
            Order::Random => scramble(self.seed ^ scramble(index)) % places,
        };
        self.sequence[usize::try_from(place).expect("less than the length of a slice")] as usize
    }
}

/// Maps consecutive numbers to scattered ones.
pub(super) fn scramble(number: u64) -> u64 {
    SplitMix::new(number).next()
}
