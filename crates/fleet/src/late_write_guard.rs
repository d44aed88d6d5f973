//! Guard against late writes: puts without an answer that may still take effect.
//!
//! After an error the outcome is unknown (promise 18 of the contract), and bytes on a broken connection may arrive long after others
//! have written and removed. Each put of a record depends on what was there, so it does nothing if it finds anything else; but a put
//! that expects nothing would bring back a record that was removed meanwhile. So as long as any put is in doubt, no place is left
//! empty: a record of nothing is written instead of a removal, and stays for `LATE_MAX`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time after the tier has answered again in which an earlier put may take effect. An operating system goes on sending the rest of a
/// closed connection for about two minutes.
pub(super) const LATE_MAX: Duration = Duration::from_secs(300);

/// Doubt about earlier puts. One for all keys: few puts are in doubt, or many.
#[derive(Debug, Default)]
pub(super) struct LateWriteGuard(Mutex<GuardState>);

#[derive(Debug, Default)]
enum GuardState {
    #[default]
    None,
    /// A put got no answer, and neither did any later request.
    Silent,
    Until(Instant),
}

impl LateWriteGuard {
    /// Notes a put without an answer.
    pub(super) fn begin(&self) {
        *self.0.lock() = GuardState::Silent;
    }

    /// Notes an answer of the tier: the doubt ends `LATE_MAX` after the first one.
    pub(super) fn answered(&self, now: Instant) {
        let mut state = self.0.lock();
        if matches!(*state, GuardState::Silent) {
            *state = GuardState::Until(now + LATE_MAX);
        }
    }

    pub(super) fn holds(&self, now: Instant) -> bool {
        match *self.0.lock() {
            GuardState::None => false,
            GuardState::Silent => true,
            GuardState::Until(end) => now < end,
        }
    }

    /// Lifetime for a record whose use ends after `ttl`. While there is doubt, it is at least `LATE_MAX`: the record also keeps its
    /// predecessor from coming back.
    pub(super) fn outlasted(&self, ttl: Duration, now: Instant) -> Duration {
        if self.holds(now) { ttl.max(LATE_MAX) } else { ttl }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_some_time_after_the_tier_has_answered_again() {
        let (doubt, begun) = (LateWriteGuard::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        doubt.answered(at(0));
        assert!(!doubt.holds(at(0)));
        doubt.begin();
        assert!(doubt.holds(at(100_000)), "as long as nothing is answered");
        doubt.answered(at(1000));
        doubt.answered(at(1200));
        assert!(doubt.holds(at(1299)) && !doubt.holds(at(1300)), "counted from the first answer");
        doubt.begin();
        assert!(doubt.holds(at(1300)));
        let second = Duration::from_secs(1);
        assert_eq!(doubt.outlasted(second, at(1300)), LATE_MAX);
        assert_eq!(LateWriteGuard::default().outlasted(second, at(0)), second);
    }
}
