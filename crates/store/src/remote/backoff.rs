//! Backoff between attempts to connect.

use std::time::Duration;

/// Returns the pause before the next attempt to connect, after so many failures in a row: drawn from an interval that doubles with each, so
/// that the instances of a fleet don't connect all at once.
pub(super) fn pause(failures: u32, chance: u32) -> Duration {
    let longest_ms = (FIRST_MS << failures.min(16)).min(LONGEST_MS);
    Duration::from_millis((u64::from(chance) * longest_ms) >> 32)
}

const FIRST_MS: u64 = 50;
/// A server that is back is used within this time.
const LONGEST_MS: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        for (failures, longest_ms) in [(0, 49), (1, 99), (2, 199), (4, 799), (5, 999), (40, 999)] {
            let [shortest, longest] = [0, u32::MAX].map(|chance| pause(failures, chance));
            assert_eq!((shortest, longest), (Duration::ZERO, Duration::from_millis(longest_ms)));
        }
    }
}
