//! State of a half-open breaker: running probes and successes.

use std::sync::{Arc, Weak};

use crate::settings::Options;

/// Handle of a running probe. Dropping it (after a report, or in a panic) frees the slot without notifying the breaker.
pub(crate) type Held = Arc<()>;

#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Slots for probes of [`Pace::Own`].
    places: Places,
    /// Slots for probes whose duration a third party determines.
    places_apart: Places,
    successes: u32,
}

/// Whether a third party determines the duration of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Own,
    Foreign,
}

/// Slots of running probes, at most `probes_max`.
#[derive(Debug, Default)]
struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    held: Weak<()>,
    /// Time from which another probe may take the slot, even without a report.
    until_ms: u64,
}

impl Trial {
    /// Takes a slot for a probe. The error is the number of milliseconds until the next attempt makes sense: until the first slot expires,
    /// at most `reset_ms`.
    pub(crate) fn take_place(&mut self, pace: Pace, options: &Options, now_ms: u64) -> Result<Held, u64> {
        match pace {
            Pace::Own => self.places.take(options, now_ms),
            Pace::Foreign => self.places_apart.take(options, now_ms),
        }
    }

    /// Counts a successful probe. Returns whether the breaker has enough successes to close.
    pub(crate) fn succeeds(&mut self, options: &Options) -> bool {
        self.successes += 1;
        self.successes >= options.successes_to_close
    }
}

impl Places {
    fn take(&mut self, options: &Options, now_ms: u64) -> Result<Held, u64> {
        self.0.retain(|place| place.until_ms > now_ms && place.held.strong_count() > 0);
        let first_free_ms = self.0.iter().map(|place| place.until_ms).min();
        match first_free_ms {
            Some(until_ms) if self.0.len() >= options.probes_max as usize => {
                Err((until_ms - now_ms).min(options.reset_ms))
            }
            _ => {
                let held = Held::default();
                let until_ms = now_ms.saturating_add(options.probe_ms_max);
                self.0.push(Place { held: Arc::downgrade(&held), until_ms });
                Ok(held)
            }
        }
    }
}
