//! Rate limit: a token bucket stored as one number (the generic cell rate algorithm).
//!
//! The number is the time at which the requests so far would end if they were evenly spaced. A request is admitted if this time is no
//! further in the future than a burst allows. The time then advances by the interval of one request. All times before `now` are
//! equivalent.

use std::time::Duration;

use crate::config::Rate;

/// Nanoseconds since a time that the caller chooses.
pub(crate) type Nanoseconds = u64;

pub(super) fn nanoseconds(time: Duration) -> Nanoseconds {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Result of checking one request against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the limit.
    Admitted(Quota),
    /// Beyond the limit.
    Refused {
        /// Time until the next request would be admitted.
        retry_after_ns: Nanoseconds,
    },
}

/// Remaining quota of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Number of requests that would be admitted immediately.
    pub(crate) remaining: u64,
    /// Time until the full burst is available again.
    pub(crate) full_after_ns: Nanoseconds,
}

impl Rate {
    /// Decides whether one more request is within the limit at `now`, if the requests so far end at `expected`. Returns the verdict,
    /// and the new end of the requests.
    pub(crate) fn decide(&self, expected: Nanoseconds, now: Nanoseconds) -> (Verdict, Nanoseconds) {
        let (interval, burst) = (self.interval_ns(), self.burst_ns());
        let ahead = expected.saturating_sub(now);
        let after = ahead.saturating_add(interval);
        if after > burst {
            return (Verdict::Refused { retry_after_ns: after - burst }, expected);
        }
        let quota = Quota { remaining: (burst - after) / interval, full_after_ns: after };
        (Verdict::Admitted(quota), now.saturating_add(after))
    }

    /// Maximum burst that fits into a nanosecond clock.
    #[must_use]
    pub fn burst_max(&self) -> u64 {
        Nanoseconds::MAX / self.interval_ns()
    }

    /// Interval of one request.
    fn interval_ns(&self) -> Nanoseconds {
        (nanoseconds(self.window) / u64::from(self.requests)).max(1)
    }

    fn burst_ns(&self) -> Nanoseconds {
        self.interval_ns().saturating_mul(u64::from(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(requests: u32, window_s: u64, burst: u32) -> Rate {
        Rate { requests, window: Duration::from_secs(window_s), burst }
    }

    /// Checks the verdicts on requests at these times, in milliseconds. `Ok` has the number of remaining requests, `Err` the
    /// milliseconds to wait.
    #[track_caller]
    fn check(rate: Rate, requests: &[(u64, Result<u64, u64>)]) {
        let mut expected = 0;
        for (at_ms, outcome) in requests {
            let (verdict, next) = rate.decide(expected, at_ms * 1_000_000);
            let found = match verdict {
                Verdict::Admitted(quota) => Ok(quota.remaining),
                Verdict::Refused { retry_after_ns } => Err(retry_after_ns / 1_000_000),
            };
            assert_eq!(found, *outcome, "at {at_ms} ms by {rate:?}");
            expected = next;
        }
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        check(
            rate(10, 1, 3),
            &[(0, Ok(2)), (0, Ok(1)), (0, Ok(0)), (0, Err(100)), (40, Err(60)), (100, Ok(0)), (101, Err(99))],
        );
        check(rate(10, 1, 1), &[(0, Ok(0)), (99, Err(1)), (100, Ok(0)), (300, Ok(0)), (300, Err(100))]);
        // An idle period accumulates at most one burst.
        check(rate(1, 1, 2), &[(0, Ok(1)), (100_000, Ok(1)), (100_000, Ok(0)), (100_000, Err(1000))]);
        // A refused request doesn't count.
        check(rate(1, 1, 1), &[(0, Ok(0)), (500, Err(500)), (900, Err(100)), (1000, Ok(0))]);
        // The clock of one worker may be slightly behind that of another.
        check(rate(1, 1, 2), &[(2000, Ok(1)), (1999, Err(1)), (2000, Ok(0)), (2999, Err(1)), (3000, Ok(0))]);
        check(rate(1, 86_400, u32::MAX), &[(0, Ok(213_502)), (0, Ok(213_501))]);
    }

    #[test]
    fn the_time_until_all_is_there_again() {
        let (verdict, expected) = rate(2, 1, 4).decide(0, SECOND);
        assert_eq!(
            (verdict, expected),
            (Verdict::Admitted(Quota { remaining: 3, full_after_ns: SECOND / 2 }), SECOND * 3 / 2)
        );
    }

    proptest::proptest! {
        /// For any arrival times, no period admits more than the rate and a burst.
        #[test]
        fn never_more_than_the_rate_and_a_burst(
            requests in 1_u32..50, window_s in 1_u64..10, burst in 1_u32..20,
            pauses_ms in proptest::collection::vec(0_u64..300, 1..200),
        ) {
            let rate = rate(requests, window_s, burst);
            let (mut now, mut expected, mut admitted) = (0, 0, Vec::new());
            for pause_ms in pauses_ms {
                now += pause_ms * 1_000_000;
                let (verdict, next) = rate.decide(expected, now);
                expected = next;
                if matches!(verdict, Verdict::Admitted(_)) {
                    admitted.push(now);
                }
            }
            for (first, from) in admitted.iter().enumerate() {
                for (last, to) in admitted.iter().enumerate().skip(first) {
                    let share = (to - from) / rate.interval_ns() + u64::from(burst);
                    proptest::prop_assert!((last - first + 1) as u64 <= share);
                }
            }
        }
    }
}
