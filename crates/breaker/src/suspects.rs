//! Whose probe failed: it may fail for them alone, so others come first next time.

use std::collections::VecDeque;

use crate::call::Caller;

/// Callers whose probe failed since the breaker was closed.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// The latest ones.
    callers: VecDeque<u64>,
    /// Until when they wait.
    pub(crate) until_ms: u64,
}

/// Half an hour of probes at the longest time of [`crate::Options::default`].
const SUSPECTS_MAX: usize = 64;

impl Suspects {
    pub(crate) fn add(&mut self, caller: Caller) {
        let Caller::Known(caller) = caller else { return };
        if self.callers.contains(&caller) {
            return;
        }
        if self.callers.len() == SUSPECTS_MAX {
            self.callers.pop_front();
        }
        self.callers.push_back(caller);
    }

    /// When this caller may be a probe, as far as it is one of these.
    pub(crate) fn wait_until_ms(&self, caller: Caller) -> u64 {
        match caller {
            Caller::Known(caller) if self.callers.contains(&caller) => self.until_ms,
            Caller::Known(_) | Caller::Anyone => 0,
        }
    }
}
