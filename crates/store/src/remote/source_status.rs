//! Time up to which copies are trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::backing::{CopyStatus, Source};

/// State of the connection and of the server's clock. Reading it takes two loads.
///
/// Readers load the time before the generation, and writers reset the time before they change the generation. So the time of one generation
/// is never used for another one.
#[derive(Debug)]
pub(super) struct SourceStatus {
    begun: Instant,
    /// End of the verified time, in milliseconds after `begun`.
    until_ms: AtomicU64,
    /// Time at which the last answered heartbeat was sent, in milliseconds after `begun`.
    answered_ms: AtomicU64,
    generation: AtomicU32,
    /// Last generation of all nodes of the tier, so that none is used twice.
    generations: Arc<AtomicU32>,
    clock_ahead_ms: AtomicI64,
}

impl SourceStatus {
    pub(super) fn new(now: Instant, generations: Arc<AtomicU32>) -> Self {
        Self {
            begun: now,
            until_ms: AtomicU64::new(0),
            answered_ms: AtomicU64::new(0),
            generation: AtomicU32::new(0),
            generations,
            clock_ahead_ms: AtomicI64::new(UNKNOWN),
        }
    }

    /// Returns the current or last source.
    pub(super) fn source(&self) -> Source {
        source(self.generation.load(SeqCst))
    }

    /// Begins a new generation.
    pub(super) fn begin(&self) -> Source {
        self.until_ms.store(0, SeqCst);
        let generation = self.generations.fetch_add(1, SeqCst).wrapping_add(1);
        self.generation.store(generation, SeqCst);
        source(generation)
    }

    /// Ends the generation, because the connection was lost or is silent.
    pub(super) fn end(&self) {
        self.until_ms.store(0, SeqCst);
    }

    /// Notes the reply to a heartbeat that was sent at `sent`: copies are trusted for `verification` after that. Call it only
    /// between [`SourceStatus::begin`] and [`SourceStatus::end`].
    pub(super) fn verify(&self, sent: Instant, verification: Duration) {
        let answered = sent.saturating_duration_since(self.begun);
        self.answered_ms.store(millis(answered), SeqCst);
        self.until_ms.store(millis(answered + verification), SeqCst);
    }

    /// Returns the time since the last answered heartbeat was sent, or since the start if there was none.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.begun);
        elapsed.saturating_sub(Duration::from_millis(self.answered_ms.load(SeqCst)))
    }

    /// Returns whether the current generation can be relied upon.
    pub(super) fn is_verified(&self, now: Instant) -> bool {
        self.standing(self.source(), now) == CopyStatus::Verified
    }

    pub(super) fn standing(&self, source: Source, now: Instant) -> CopyStatus {
        let until_ms = self.until_ms.load(SeqCst);
        let is_in_time = now.saturating_duration_since(self.begun).as_millis() < u128::from(until_ms);
        match is_in_time {
            true if source == self.source() => CopyStatus::Verified,
            true => CopyStatus::Ended,
            false => CopyStatus::Unverified,
        }
    }

    pub(super) fn set_clock_ahead_ms(&self, by_ms: i64) {
        self.clock_ahead_ms.store(by_ms, SeqCst);
    }

    pub(super) fn clock_ahead_ms(&self) -> Option<i64> {
        Some(self.clock_ahead_ms.load(SeqCst)).filter(|ahead| *ahead != UNKNOWN)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn source(generation: u32) -> Source {
    Source { node: 0, generation }
}

const UNKNOWN: i64 = i64::MIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_relied_upon_for_its_time() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let status = SourceStatus::new(begun, Arc::default());
        assert_eq!(status.standing(status.source(), at(0)), CopyStatus::Unverified, "before there is one");
        let first = status.begin();
        assert_eq!(status.standing(first, at(1)), CopyStatus::Unverified, "before the first heartbeat");
        assert_eq!(status.silence(at(7)), Duration::from_millis(7), "since the start");
        status.verify(at(10), Duration::from_secs(2));
        for (now, expected) in
            [(10, CopyStatus::Verified), (2009, CopyStatus::Verified), (2010, CopyStatus::Unverified)]
        {
            assert_eq!(status.standing(first, at(now)), expected, "at {now} ms");
        }
        status.end();
        assert_eq!(status.silence(at(2010)), Duration::from_secs(2), "since the last answer");
        assert_eq!(status.standing(first, at(11)), CopyStatus::Unverified, "it has ended");
        let second = status.begin();
        status.verify(at(20), Duration::from_secs(2));
        assert_eq!(status.standing(first, at(30)), CopyStatus::Ended, "never again");
        assert_eq!(status.standing(second, at(30)), CopyStatus::Verified);
    }

    #[test]
    fn the_clock_is_unknown_at_first() {
        let status = SourceStatus::new(Instant::now(), Arc::default());
        assert_eq!(status.clock_ahead_ms(), None);
        status.set_clock_ahead_ms(-3);
        assert_eq!(status.clock_ahead_ms(), Some(-3));
    }
}
