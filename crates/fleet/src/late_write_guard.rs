//! Guard against late writes: unanswered puts that may still take effect.
//!
//! After an error, the outcome is unknown (promise 18 of the contract), and bytes on a broken connection may arrive long after other writes
//! and removals. Each put of a record depends on the record that it replaces, so it does nothing if it finds any other; but a put that
//! expects no record would restore one that was removed meanwhile. So while any put is in doubt, no key is left without a record: an empty
//! record is written instead of a removal, and stays for `LATE_MAX`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time after the tier answers again within which an earlier put may still take effect. An operating system keeps sending the rest of a
/// closed connection for about two minutes.
pub(super) const LATE_MAX: Duration = Duration::from_secs(300);

/// Doubt about earlier puts. Shared by all keys, because either few puts are in doubt, or many.
#[derive(Debug, Default)]
pub(super) struct LateWriteGuard(Mutex<GuardState>);

#[derive(Debug, Default)]
enum GuardState {
    #[default]
    None,
    /// Neither a put nor any later request got an answer.
    Silent,
    Until(Instant),
}

impl LateWriteGuard {
    /// Notes an unanswered put.
    pub(super) fn begin(&self) {
        *self.0.lock() = GuardState::Silent;
    }

    /// Notes an answer from the tier: the doubt ends `LATE_MAX` after the first one.
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

    /// Returns the lifetime of a record whose use ends after `ttl`. While there is doubt, it is at least `LATE_MAX`, because the record
    /// also prevents its predecessor from being restored.
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
