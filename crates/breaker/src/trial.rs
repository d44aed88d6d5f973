//! State of a half-open breaker: running probes and successes.

use std::sync::{Arc, Weak};

use crate::settings::Options;

/// Handle of a running probe. Dropping it, by report, drop or panic, frees the place without notifying the breaker.
pub(crate) type Held = Arc<()>;

#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Places of probes whose calls have a pace of their own.
    places: Places,
    /// Places of probes whose duration a third party determines.
    places_apart: Places,
    successes: u32,
}

/// Pace of a call: its own, or that of a third party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Own,
    Foreign,
}

/// Places of running probes, at most `probes_max`.
#[derive(Debug, Default)]
struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    held: Weak<()>,
    /// Time at which another probe may take the place, reported or not.
    until_ms: u64,
}

impl Trial {
    /// Takes a place for a probe. The error is the time in milliseconds after which to ask again: until the first place expires, at most
    /// `reset_ms`.
    pub(crate) fn take_place(&mut self, pace: Pace, options: &Options, now_ms: u64) -> Result<Held, u64> {
        match pace {
            Pace::Own => self.places.take(options, now_ms),
            Pace::Foreign => self.places_apart.take(options, now_ms),
        }
    }

    /// Counts a successful probe. Returns whether it was the last one needed.
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
