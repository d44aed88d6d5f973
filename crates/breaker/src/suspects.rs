//! Callers whose probe failed. It may have failed for that caller alone, so the next probe is another caller's.

use std::collections::VecDeque;

use crate::call::Caller;

/// Callers whose probe failed since the breaker was closed.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Latest callers, oldest first.
    callers: VecDeque<u64>,
    /// Time until which these callers can't be a probe.
    pub(crate) until_ms: u64,
}

/// Maximum number of remembered callers: half an hour of probes at the longest open time of
/// [`crate::Options::default`].
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

    /// Returns the time from which a caller may be a probe: 0 if it isn't a suspect.
    pub(crate) fn wait_until_ms(&self, caller: Caller) -> u64 {
        match caller {
            Caller::Known(caller) if self.callers.contains(&caller) => self.until_ms,
            Caller::Known(_) | Caller::Anyone => 0,
        }
    }
}
