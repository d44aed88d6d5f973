//! The time that a pass of a worker's loop has for what is long: as much as others may have to wait for it.

use std::time::{Duration, Instant};

/// A part of a pass. Nothing long begins in it once it is over. The default never is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pass {
    end: Option<Instant>,
}

/// Replies and requests of many clients are done in this time, so that it is about what each waits for the other.
const WITHIN: Duration = Duration::from_millis(1);
/// Replies from this length on are sent little by little, between which the clock is looked at: shorter ones take some tenths of a millisecond.
pub(crate) const LONG_BYTES: usize = 256 << 10;

impl Pass {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { end: Some(now + WITHIN) }
    }

    pub(crate) fn is_over(self, now: Instant) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_when_its_time_is() {
        let now = Instant::now();
        let pass = Pass::begin(now);
        assert!(!pass.is_over(now) && !pass.is_over(now + WITHIN / 2));
        assert!(pass.is_over(now + WITHIN) && !Pass::default().is_over(now + WITHIN));
    }
}
