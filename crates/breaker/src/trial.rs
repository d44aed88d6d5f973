//! What a half-open breaker remembers: the probes under way, and how many have succeeded.

use std::sync::{Arc, Weak};

use crate::settings::Options;

/// What a probe holds while it is under way. Where it goes, by report, by drop or by panic, the place is free again; nobody
/// has to tell the breaker.
pub(crate) type Held = Arc<()>;

#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Of probes that go at their own pace.
    places: Places,
    /// Of those that go at the pace of somebody else.
    places_apart: Places,
    successes: u32,
}

/// At whose pace a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Own,
    Foreign,
}

/// At most `probes_max`.
#[derive(Debug, Default)]
struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    held: Weak<()>,
    /// When another probe may have the place, whatever has become of this one.
    until_ms: u64,
}

impl Trial {
    /// A place for one more probe, or how long until it may be worth to ask again: a probe takes as long as a call, or until its place is over.
    pub(crate) fn take_place(&mut self, pace: Pace, options: &Options, now_ms: u64) -> Result<Held, u64> {
        match pace {
            Pace::Own => self.places.take(options, now_ms),
            Pace::Foreign => self.places_apart.take(options, now_ms),
        }
    }

    /// Counts a probe that succeeded; says whether it was the last that was asked for.
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
