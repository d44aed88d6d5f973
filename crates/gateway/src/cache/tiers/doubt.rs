//! Whether a put that got no answer may still take effect.
//!
//! After an error nobody knows (promise 18 of the contract), and what a broken connection had on its way may arrive long after others have
//! written and removed. Each put of a record depends on what was there, so it does nothing where it finds anything else;
//! but one that depends on nothing being there would bring back what was removed meanwhile. So as long as there is doubt about any
//! put, no place is left empty: a record of nothing is written instead of a removal, and stays for [`LATE_MAX`].

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long after the tier has answered again a put of before may take effect. A system goes on to send what a closed connection
/// left for two minutes or so.
pub(super) const LATE_MAX: Duration = Duration::from_secs(300);

/// See the module. One for all keys: there is doubt about few puts, or about many.
#[derive(Debug, Default)]
pub(super) struct Doubt(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    /// A put got no answer, and nothing has got one since.
    Silent,
    Until(Instant),
}

impl Doubt {
    /// A put got no answer.
    pub(super) fn begin(&self) {
        *self.0.lock() = State::Silent;
    }

    /// The tier has answered.
    pub(super) fn answered(&self, now: Instant) {
        let mut state = self.0.lock();
        if matches!(*state, State::Silent) {
            *state = State::Until(now + LATE_MAX);
        }
    }

    pub(super) fn holds(&self, now: Instant) -> bool {
        match *self.0.lock() {
            State::None => false,
            State::Silent => true,
            State::Until(end) => now < end,
        }
    }

    /// How long a record is to stay whose use ends after `ttl`: it keeps what it replaced from coming back, too.
    pub(super) fn outlasted(&self, ttl: Duration, now: Instant) -> Duration {
        if self.holds(now) { ttl.max(LATE_MAX) } else { ttl }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_some_time_after_the_tier_has_answered_again() {
        let (doubt, begun) = (Doubt::default(), Instant::now());
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
        assert_eq!(Doubt::default().outlasted(second, at(0)), second);
    }
}
