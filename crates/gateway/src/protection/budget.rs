//! Limit on the forwards of a rule, for all clients together.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::Rate;
use crate::protection::rate::{Nanoseconds, Verdict, nanoseconds};

/// A rate that all requests of a rule share.
pub(crate) struct Budget {
    rate: Rate,
    spent: Arc<Spent>,
}

/// Time at which the forwards so far would be over, had they come evenly.
struct Spent {
    expected: Mutex<Nanoseconds>,
    begun: Instant,
}

impl Budget {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, spent: Arc::new(Spent { expected: Mutex::default(), begun: Instant::now() }) }
    }

    /// Takes over the forwards counted under the same rate.
    pub(crate) fn take_over(&mut self, before: &Self) {
        if self.rate == before.rate {
            self.spent = Arc::clone(&before.spent);
        }
    }

    /// Counts a forward, if one is left.
    pub(crate) fn spend(&self, now: Instant) -> Verdict {
        let mut expected = self.spent.expected.lock();
        let now = nanoseconds(now.saturating_duration_since(self.spent.begun));
        let (verdict, next) = self.rate.decide(*expected, now);
        *expected = next;
        verdict
    }
}
