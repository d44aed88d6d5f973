//! Estimate of the server's clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A reading of the server's clock, by TIME.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    /// Microseconds since the Unix epoch.
    pub(super) clock_us: u64,
    /// Time of the request, by this process's clock.
    pub(super) asked: SystemTime,
    pub(super) round_trip: Duration,
}

impl ClockReading {
    /// Returns by how much the server's clock is ahead, assuming that it was read halfway between request and reply.
    pub(super) fn ahead_us(self) -> i64 {
        let ours = self.asked.duration_since(UNIX_EPOCH).unwrap_or_default() + self.round_trip / 2;
        let ahead_us = i128::from(self.clock_us) - i128::try_from(ours.as_micros()).unwrap_or(i128::MAX);
        i64::try_from(ahead_us).unwrap_or(i64::MAX)
    }
}

/// Estimate of how far the server's clock is ahead, from its best reply so far.
///
/// The error of a reply is at most half its round trip time, so the reply with the shortest round trip counts (RFC 5905 section 10). It is
/// replaced once the clocks may have drifted by more than its error. The last reply alone isn't enough: on a busy machine it may be wrong
/// by hundreds of milliseconds.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    best: Option<Estimate>,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    ahead_us: i64,
    /// Maximum error in either direction, at the time of the estimate.
    doubt: Duration,
    made: Instant,
}

/// Maximum drift: one part in 2,000, because no clock kept by NTP is slewed faster.
const DRIFT_PARTS: u32 = 2_000;

impl Estimate {
    fn doubt_us(&self, now: Instant) -> i64 {
        let doubt = self.doubt + now.saturating_duration_since(self.made) / DRIFT_PARTS;
        i64::try_from(doubt.as_micros()).unwrap_or(i64::MAX)
    }
}

impl ServerClock {
    /// Adds a reading, and returns by how many milliseconds the server's clock is ahead.
    pub(super) fn add(&mut self, reading: ClockReading, now: Instant) -> i64 {
        let new = Estimate { ahead_us: reading.ahead_us(), doubt: reading.round_trip / 2, made: now };
        let better = self.best.filter(|best| {
            let (doubt_us, new_doubt_us) = (best.doubt_us(now), new.doubt_us(now));
            // If the two readings contradict each other, a clock was set.
            let agree =
                best.ahead_us.abs_diff(new.ahead_us) <= doubt_us.saturating_add(new_doubt_us).unsigned_abs();
            agree && doubt_us < new_doubt_us
        });
        let best = better.unwrap_or(new);
        self.best = Some(best);
        best.ahead_us.div_euclid(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reading, taken halfway through the round trip, of a clock that is `ahead_ms` ahead.
    fn reading(ahead_ms: i64, round_trip_ms: u64) -> ClockReading {
        let round_trip = Duration::from_millis(round_trip_ms);
        let clock_ms = 1_000_000 + ahead_ms + i64::try_from(round_trip_ms / 2).unwrap();
        let clock_us = u64::try_from(clock_ms * 1000).unwrap();
        ClockReading { clock_us, asked: UNIX_EPOCH + Duration::from_millis(1_000_000), round_trip }
    }

    #[test]
    fn the_answer_is_from_half_way() {
        let asked = UNIX_EPOCH + Duration::from_millis(1000);
        let round_trip = Duration::from_millis(20);
        for (clock_us, expected) in
            [(1_010_000, 0), (1_030_000, 20_000), (1_000_000, -10_000), (1_010_999, 999)]
        {
            assert_eq!(ClockReading { clock_us, asked, round_trip }.ahead_us(), expected);
        }
    }

    #[test]
    fn the_shortest_round_trip_counts_while_answers_agree() {
        let begun = Instant::now();
        let mut clock = ServerClock::default();
        // Time, reading (how far ahead, round trip) and expected estimate, all in milliseconds.
        let cases = [
            (0, reading(90, 200), 90),
            (500, reading(2, 10), 2),
            (1_000, reading(-140, 300), 2),
            (1_500, reading(3, 4), 3),
            // A clock was set: the readings contradict each other.
            (2_000, reading(60_000, 400), 60_000),
            (2_500, reading(60_150, 2), 60_150),
            // An hour of drift adds more uncertainty than a long round trip.
            (3_600_000, reading(60_300, 1_000), 60_300),
        ];
        for (after_ms, reading, expected) in cases {
            assert_eq!(
                clock.add(reading, begun + Duration::from_millis(after_ms)),
                expected,
                "{after_ms} ms"
            );
        }
    }
}
