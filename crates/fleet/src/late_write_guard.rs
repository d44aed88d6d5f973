//! Guard against late writes: puts without an answer may still take effect later.
//!
//! After an error, the outcome of a put is unknown (promise 18 of the contract), and bytes on a broken connection may arrive long after
//! later writes and removals. A put names the record that it replaces, and has no effect if the tier has a different one. But a put that
//! expects no record could restore a record that has been removed in the meantime. So while the outcome of any put is unknown, this
//! instance leaves no key without a record: instead of removing a record, it writes an empty one, which stays for `LATE_MAX`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time within which an earlier put may still take effect, from when the tier answers again. An operating system keeps sending the rest of
/// a closed connection for about two minutes.
pub(super) const LATE_MAX: Duration = Duration::from_secs(300);

/// Whether earlier puts may still take effect. All keys share one state, because usually the outcome is unknown either for no put or for
/// many.
#[derive(Debug, Default)]
pub(super) struct LateWriteGuard(Mutex<GuardState>);

#[derive(Debug, Default)]
enum GuardState {
    #[default]
    None,
    /// A put got no answer, and no later request has got one.
    Silent,
    Until(Instant),
}

impl LateWriteGuard {
    /// Records that a put got no answer.
    pub(super) fn begin(&self) {
        *self.0.lock() = GuardState::Silent;
    }

    /// Records an answer from the tier. The guard ends `LATE_MAX` after the first answer.
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

    /// Returns the lifetime of a record that is useful for `ttl`. While an earlier put may still take effect, the lifetime is at least
    /// `LATE_MAX`, because the record also prevents that put from restoring its predecessor.
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
