//! Limits the time for long work in one pass of a worker's loop, because other clients may have to wait for
//! that work.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time budget of a part of a pass. No long work begins after the end of the budget. Unless started
/// explicitly, the budget begins when the clock is first read, so that passes without long work, which are
/// nearly all, don't read the clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    end: Cell<Option<Instant>>,
}

/// The time budget. The replies and requests of many clients share it, so it roughly limits how long they
/// wait for each other.
const WITHIN: Duration = Duration::from_millis(1);
/// Longer replies are sent in pieces, and the clock is read between the pieces. Shorter replies take a few
/// tenths of a millisecond.
pub(crate) const LONG_BYTES: usize = 256 << 10;

impl Pass {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { end: Cell::new(Some(now + WITHIN)) }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let end = self.end.get().unwrap_or(now + WITHIN);
        self.end.set(Some(end));
        now >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_when_its_time_is() {
        let now = Instant::now();
        let pass = Pass::begin(now);
        assert!(!pass.is_over(now) && !pass.is_over(now + WITHIN / 2) && pass.is_over(now + WITHIN));
    }

    #[test]
    fn its_time_begins_with_the_first_look() {
        let now = Instant::now();
        let (pass, first) = (Pass::default(), now + 2 * WITHIN);
        assert!(!pass.is_over(first) && !pass.is_over(first + WITHIN / 2) && pass.is_over(first + WITHIN));
    }
}
