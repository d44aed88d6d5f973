//! The time that a pass of a worker's loop has for what is long: as much as others may have to wait for it.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A part of a pass. Nothing long begins in it once it is over. Where nobody else says when it begins, its time begins with the first
/// look at the clock: passes without anything long, which are nearly all, pay for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    end: Cell<Option<Instant>>,
}

/// Replies and requests of many clients are done in this time, so that it is about what each waits for the other.
const WITHIN: Duration = Duration::from_millis(1);
/// Replies from this length on are sent little by little, between which the clock is looked at: shorter ones take some tenths of a millisecond.
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
