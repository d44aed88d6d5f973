//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use caching::Timestamp;

/// Returns the time of the wall clock. A clock before 1970 counts as 1970, so ages are too small but never negative.
pub fn now() -> Timestamp {
    #[cfg(feature = "test-clock")]
    if let Ok(now) = test::WALL.try_with(test::Wall::now) {
        return now;
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the correction, in milliseconds, of a response's arrival time before it is compared with the origin's `Date`.
/// `ahead_ms` is the lead of the store's clock over the local clock. If the local clock is fast, responses look older than they
/// are. The correction is 0 if it would make responses older, or if the clocks are so far apart that the store's may be wrong.
pub fn corrected_by_ms(ahead_ms: i64) -> i64 {
    if (-CORRECTION_MAX_MS..0).contains(&ahead_ms) { ahead_ms } else { 0 }
}

const CORRECTION_MAX_MS: i64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_store_makes_nothing_older() {
        for (ahead_ms, expected) in
            [(3_600_000, 0), (1, 0), (0, 0), (-1, -1), (-60_000, -60_000), (-60_001, 0), (i64::MIN, 0)]
        {
            assert_eq!(corrected_by_ms(ahead_ms), expected, "{ahead_ms}");
        }
    }
}

/// Clocks for tests, each for one task.
#[cfg(feature = "test-clock")]
pub mod test {
    use caching::Timestamp;
    use tokio::time::Instant;

    tokio::task_local! {
        pub static WALL: Wall;
    }

    /// Wall clock that follows the runtime's clock, which a test may pause.
    #[derive(Clone, Copy, Debug)]
    pub struct Wall {
        pub begun: Instant,
        pub began_at: Timestamp,
    }

    impl Wall {
        pub(super) fn now(&self) -> Timestamp {
            let elapsed_ms = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
            self.began_at.plus_ms(elapsed_ms)
        }
    }
}
