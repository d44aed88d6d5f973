//! Limits on slow clients. The state has no clock; callers pass the elapsed time.
//!
//! If only the time between two pieces were limited, a client could occupy resources indefinitely by sending a byte now and then.
//! Therefore, waiting uses up credit, and each byte earns credit. A client at or above the minimum rate never runs out of credit; a
//! client at half that rate runs out after twice the time limit.

use std::time::Duration;

/// Limits on the pace of a client, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaceLimits {
    /// Maximum time without any progress.
    pub(crate) stall_max: Duration,
    /// Minimum rate in bytes per second of waiting for the client; 0: no minimum.
    pub(crate) rate_min: u64,
}

/// Limits on the content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    pub(crate) bytes_max: u64,
    pub(crate) pace: PaceLimits,
    /// Maximum time without a byte in either direction, once the response has begun. An exchange whose response has begun is like a
    /// tunnel: either side can cause its pauses.
    pub(crate) answered_idle_max: Duration,
}

/// Time that a client has used up, minus the time that it has earned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    used: Duration,
}

impl Pace {
    /// Maximum time until the next bytes.
    pub(crate) fn patience(self, limits: PaceLimits) -> Duration {
        limits.stall_max.saturating_sub(self.used)
    }

    /// Counts the time that was spent waiting for `bytes` bytes.
    pub(crate) fn waited(&mut self, waited: Duration, bytes: u64, limits: PaceLimits) {
        self.used = match limits.rate_min {
            0 => Duration::ZERO,
            rate_min => {
                let earned_us = bytes.saturating_mul(1_000_000) / rate_min;
                let used = self.used.saturating_add(waited).min(limits.stall_max);
                used.saturating_sub(Duration::from_micros(earned_us))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: PaceLimits = PaceLimits { stall_max: Duration::from_secs(30), rate_min: 500 };

    /// Returns how many of 10,000 pieces a client can send, with a `pause` before each, before its time is used up.
    fn pieces(pause: Duration, bytes: u64, limits: PaceLimits) -> usize {
        let mut pace = Pace::default();
        let in_time = |_: &usize| {
            let is_in_time = pause < pace.patience(limits);
            pace.waited(pause, bytes, limits);
            is_in_time
        };
        (0..10_000).take_while(in_time).count()
    }

    #[test]
    fn a_byte_now_and_then_is_not_enough() {
        let seconds = Duration::from_secs;
        let cases = [
            // At the minimum rate, in small and in large pieces.
            (seconds(1), 500, LIMITS, 10_000),
            (seconds(20), 10_000, LIMITS, 10_000),
            // At half the minimum rate, and with almost no bytes.
            (seconds(1), 250, LIMITS, 58),
            (seconds(10), 1, LIMITS, 3),
            (seconds(29), 1, LIMITS, 1),
            (seconds(31), 1_000_000, LIMITS, 0),
            // Without a minimum rate.
            (seconds(29), 1, PaceLimits { rate_min: 0, ..LIMITS }, 10_000),
            (seconds(31), 1, PaceLimits { rate_min: 0, ..LIMITS }, 0),
        ];
        for (pause, bytes, limits, expected) in cases {
            assert_eq!(pieces(pause, bytes, limits), expected, "{bytes} bytes in {pause:?}, {limits:?}");
        }
    }

    proptest! {
        #[test]
        fn who_keeps_the_rate_is_never_late(
            rate_min in 1_u64..1_000_000,
            pauses_ms in proptest::collection::vec(1_u64..29_000, 1..200),
        ) {
            let limits = PaceLimits { rate_min, ..LIMITS };
            let mut pace = Pace::default();
            for pause_ms in pauses_ms {
                let pause = Duration::from_millis(pause_ms);
                prop_assert!(pause < pace.patience(limits));
                pace.waited(pause, (pause_ms * rate_min).div_ceil(1000) + 1, limits);
            }
        }
    }
}
