//! The state machine: admits calls and records their results.

use crate::call::{Caller, Outcome};
use crate::settings::Settings;
use crate::suspects::Suspects;
use crate::trial::{Held, Pace, Trial};
use crate::window::{Counts, Window};

/// A circuit breaker for one called service.
///
/// The breaker has no lock and is not `Clone`: a copy would admit probes of its own.
#[derive(Debug)]
pub struct Breaker {
    settings: Settings,
    window: Window,
    phase: Phase,
    /// Number of state changes. Calls that were admitted before the last change no longer count.
    generation: u64,
    /// Duration of the next open state.
    reset_ms: u64,
    suspects: Suspects,
}

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All calls are admitted.
    Closed,
    /// No call is admitted before this time; the first one afterwards makes the breaker half-open.
    Open {
        /// Time in milliseconds, on the clock of the `now_ms` arguments.
        until_ms: u64,
    },
    /// Only a few probes are admitted.
    HalfOpen,
}

/// An admitted call. Report it to the breaker that issued it.
#[derive(Debug)]
#[must_use = "a call that isn't reported doesn't count"]
pub struct Permit {
    generation: u64,
    caller: Caller,
    /// Slot of a probe; `None` for a call that isn't a probe.
    place: Option<Held>,
}

/// Refusal of a call while the service is failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Milliseconds until a retry makes sense; an open breaker admits no call earlier. At least 1.
    pub retry_ms: u64,
}

/// Effect of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect: the call was admitted before the last change of state, so its result is outdated.
    Ignored,
    /// The result was counted.
    Counted,
    /// The breaker is now open.
    Opened {
        /// Duration of the open state.
        reset_ms: u64,
    },
    /// The breaker is now closed and has cleared its counts.
    Closed,
}

#[derive(Debug)]
enum Phase {
    Closed,
    Open { until_ms: u64 },
    HalfOpen(Trial),
}

impl Breaker {
    /// Creates a closed breaker without results.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let options = settings.options();
        let (window, reset_ms) = (Window::new(options), options.reset_ms);
        let suspects = Suspects::default();
        Self { settings, window, phase: Phase::Closed, generation: 0, reset_ms, suspects }
    }

    /// Requests a permit for a call.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the call must not be made. Refusals are expected.
    pub fn admit(&mut self, caller: Caller, now_ms: u64) -> Result<Permit, Refusal> {
        self.admit_at(Pace::Own, caller, now_ms)
    }

    /// Requests a permit for a call whose duration a third party determines. Probes of this kind have their own slots, also `probes_max`,
    /// so that slow ones don't keep other calls from being probes.
    ///
    /// # Errors
    /// Same as [`Breaker::admit`].
    pub fn admit_apart(&mut self, caller: Caller, now_ms: u64) -> Result<Permit, Refusal> {
        self.admit_at(Pace::Foreign, caller, now_ms)
    }

    fn admit_at(&mut self, pace: Pace, caller: Caller, now_ms: u64) -> Result<Permit, Refusal> {
        let until_ms = match self.phase {
            Phase::Closed => now_ms,
            Phase::Open { until_ms } => until_ms.max(self.suspects.wait_until_ms(caller)),
            Phase::HalfOpen(_) => self.suspects.wait_until_ms(caller),
        };
        if now_ms < until_ms {
            return Err(Refusal { retry_ms: until_ms - now_ms });
        }
        if let Phase::Open { .. } = self.phase {
            self.become_next(Phase::HalfOpen(Trial::default()));
        }
        let place = match &mut self.phase {
            Phase::HalfOpen(trial) => {
                let place = trial.take_place(pace, self.settings.options(), now_ms);
                Some(place.map_err(|retry_ms| Refusal { retry_ms })?)
            }
            Phase::Closed | Phase::Open { .. } => None,
        };
        Ok(Permit { generation: self.generation, caller, place })
    }

    /// Records the result of an admitted call.
    ///
    /// A probe that is reported after `probe_ms_max` still counts if the breaker is still in the state that admitted
    /// it.
    pub fn report(&mut self, permit: Permit, outcome: Outcome, now_ms: u64) -> Effect {
        let Permit { generation, caller, place } = permit;
        drop(place);
        if generation != self.generation {
            return Effect::Ignored;
        }
        match outcome {
            Outcome::Success => self.succeeds(caller, now_ms),
            Outcome::Failure => self.fails(caller, now_ms),
        }
    }

    /// Replaces the settings. The state and a running open time stay the same. If the window changes, its counts are cleared.
    pub fn change(&mut self, settings: Settings) {
        let (before, after) = (*self.settings.options(), *settings.options());
        if (before.window_ms, before.window_buckets) != (after.window_ms, after.window_buckets) {
            self.window = Window::new(&after);
        }
        self.reset_ms = match self.reset_ms == before.reset_ms {
            true => after.reset_ms,
            false => self.reset_ms.clamp(after.reset_ms, after.reset_ms_max),
        };
        self.settings = settings;
    }

    /// Closes the breaker and forgets all results, for a new instance of the called service, such as a server on a new connection.
    pub fn begin_anew(&mut self) {
        self.close();
    }

    /// Returns the current state. An open breaker reports `Open` until the next call asks for admission, even if the time has passed.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { until_ms } => State::Open { until_ms },
            Phase::HalfOpen(_) => State::HalfOpen,
        }
    }

    /// Returns the results within the window, one for each known caller. Results of probes don't count, and each change of state clears
    /// the counts.
    pub fn counts(&mut self, now_ms: u64) -> Counts {
        self.window.counts(now_ms)
    }

    fn succeeds(&mut self, caller: Caller, now_ms: u64) -> Effect {
        let Phase::HalfOpen(trial) = &mut self.phase else {
            self.window.add(caller, Outcome::Success, now_ms);
            return Effect::Counted;
        };
        if !trial.succeeds(self.settings.options()) {
            return Effect::Counted;
        }
        self.close();
        Effect::Closed
    }

    fn fails(&mut self, caller: Caller, now_ms: u64) -> Effect {
        if matches!(self.phase, Phase::HalfOpen(_)) {
            self.suspects.add(caller);
            return self.open(now_ms);
        }
        self.window.add(caller, Outcome::Failure, now_ms);
        let is_trouble = self.window.counts(now_ms).is_trouble(self.settings.options());
        if is_trouble { self.open(now_ms) } else { Effect::Counted }
    }

    fn open(&mut self, now_ms: u64) -> Effect {
        let reset_ms = self.reset_ms;
        self.reset_ms = (reset_ms * 2).min(self.settings.options().reset_ms_max);
        let until_ms = now_ms.saturating_add(reset_ms);
        self.suspects.until_ms = until_ms.saturating_add(self.settings.options().reset_ms);
        self.become_next(Phase::Open { until_ms });
        Effect::Opened { reset_ms }
    }

    fn close(&mut self) {
        self.reset_ms = self.settings.options().reset_ms;
        self.suspects = Suspects::default();
        self.become_next(Phase::Closed);
    }

    fn become_next(&mut self, phase: Phase) {
        self.window.clear();
        self.phase = phase;
        self.generation += 1;
    }
}
