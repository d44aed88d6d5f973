//! When validations behind responses begin: at a moment that each key draws, and not at once after one that was in vain.

use std::sync::atomic::{AtomicU64, Ordering};

use caching::Timestamp;
use twox_hash::XxHash3_64;

/// Which keys are left alone for a moment, since a validation behind a response left what is stored as it was. Hits begin
/// such validations, thousands in a second of what is hot: an origin that fails is not to be asked as often.
///
/// A key has one of a fixed number of places, and gives way to the next one that fails there: its own next attempt may come sooner then.
/// So nothing grows.
pub(crate) struct Pauses(Box<[AtomicU64]>);

/// 32 KiB.
const PLACES: usize = 1 << 12;
/// Enough for an origin that is overloaded, and short beside lifetimes for which a validation ahead is of use.
const PAUSE_MS: u64 = 500;
/// A place has the upper bits of the hash of its key, and below them when the pause began, in milliseconds.
const TIME: u64 = (1 << 40) - 1;

/// What a key draws for [`caching::refresh_ahead`]: the same in each instance of a fleet.
pub(crate) fn draw(key: &[u8]) -> u16 {
    (XxHash3_64::oneshot(key) >> 48) as u16
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn has(&self, key: &[u8], now: Timestamp) -> bool {
        let (place, hash) = self.place(key);
        let there = place.load(Ordering::Relaxed);
        // A clock that was set back ends them.
        let since_ms = time(now).wrapping_sub(there) & TIME;
        there & !TIME == hash & !TIME && since_ms < PAUSE_MS
    }

    pub(crate) fn begin(&self, key: &[u8], now: Timestamp) {
        let (place, hash) = self.place(key);
        place.store(hash & !TIME | time(now), Ordering::Relaxed);
    }

    fn place(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = XxHash3_64::oneshot(key);
        (&self.0[hash as usize % PLACES], hash)
    }
}

fn time(now: Timestamp) -> u64 {
    now.as_ms() as u64 & TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_left_alone_for_half_a_second() {
        let (pauses, began) = (Pauses::new(), Timestamp::from_seconds(1_790_000_000));
        assert!(!pauses.has(b"key", began));
        pauses.begin(b"key", began);
        let after = |ms| pauses.has(b"key", began.plus_ms(ms));
        assert_eq!([-1, 0, 499, 500].map(after), [false, true, true, false]);
        assert!(!pauses.has(b"another key", began));
        let places = (0..2 * PLACES).map(|number| number.to_string().into_bytes());
        places.for_each(|other| pauses.begin(&other, began));
        assert!(!pauses.has(b"key", began), "it has given way");
    }
}
