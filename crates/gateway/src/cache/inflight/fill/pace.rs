//! How fast bytes pass.

use std::time::Duration;

use tokio::time::Instant;

/// Until when bytes passed at a least rate or faster, and how many have passed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    kept_at: Instant,
    bytes_since: u64,
}

impl Pace {
    pub(super) fn from(now: Instant) -> Self {
        Self { kept_at: now, bytes_since: 0 }
    }

    /// Notes that so many bytes pass; `rate_min` is in bytes a second.
    pub(super) fn note(&mut self, bytes: u64, rate_min: u64, now: Instant) {
        self.bytes_since += bytes;
        let least = now.duration_since(self.kept_at).as_millis() * u128::from(rate_min);
        if u128::from(self.bytes_since) * 1000 >= least {
            *self = Self::from(now);
        }
    }

    /// When bytes will have passed too slowly for so long.
    pub(super) fn ends_at(&self, pause_max: Duration) -> Option<Instant> {
        self.kept_at.checked_add(pause_max)
    }

    /// How much is left of a pause.
    pub(super) fn pause_left(&self, pause_max: Duration) -> Duration {
        pause_max.saturating_sub(self.kept_at.elapsed())
    }
}
