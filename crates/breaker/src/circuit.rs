//! The machine: who may call, and what results change.

use crate::call::{Caller, Outcome};
use crate::settings::Settings;
use crate::suspects::Suspects;
use crate::trial::{Held, Pace, Trial};
use crate::window::{Counts, Window};

/// A circuit breaker for one thing that is called.
///
/// It has no lock and is not `Clone`: a copy would admit probes of its own.
#[derive(Debug)]
pub struct Breaker {
    settings: Settings,
    window: Window,
    phase: Phase,
    /// Grows by one with each change of state; what was admitted before the last one no longer counts.
    generation: u64,
    /// How long it stays open the next time.
    reset_ms: u64,
    suspects: Suspects,
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every call.
    Closed,
    /// No call before this time; the first one afterwards makes it half-open.
    Open {
        /// On the clock of its user.
        until_ms: u64,
    },
    /// A few probes.
    HalfOpen,
}

/// One admitted call. It belongs to the breaker that gave it.
#[derive(Debug)]
#[must_use = "a call that isn't reported doesn't count"]
pub struct Permit {
    generation: u64,
    caller: Caller,
    /// The place of a probe.
    place: Option<Held>,
}

/// A call that is not worth a try now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// After this many milliseconds another try may be worth it, and not before where it is open. At least 1.
    pub retry_ms: u64,
}

/// What a report did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the call was admitted before the last change of state, and says nothing about now.
    Ignored,
    /// It was counted.
    Counted,
    /// The breaker is now open.
    Opened {
        /// For this long.
        reset_ms: u64,
    },
    /// The breaker is now closed, and has forgotten what it had counted.
    Closed,
}

#[derive(Debug)]
enum Phase {
    Closed,
    Open { until_ms: u64 },
    HalfOpen(Trial),
}

impl Breaker {
    /// A closed one that knows nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let options = settings.options();
        let (window, reset_ms) = (Window::new(options), options.reset_ms);
        let suspects = Suspects::default();
        Self { settings, window, phase: Phase::Closed, generation: 0, reset_ms, suspects }
    }

    /// Asks for a call.
    ///
    /// # Errors
    /// An expected answer: the call is not to be made.
    pub fn admit(&mut self, caller: Caller, now_ms: u64) -> Result<Permit, Refusal> {
        self.admit_at(Pace::Own, caller, now_ms)
    }

    /// Asks for a call that takes as long as a third party likes. As a probe it has a place apart, of which there are as many:
    /// whoever holds those keeps no other call from being a probe.
    ///
    /// # Errors
    /// As of [`Breaker::admit`].
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

    /// Takes in how an admitted call ended.
    ///
    /// A probe that comes back after `probe_ms_max` still counts, as long as the state is the one that admitted it.
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

    /// Has other settings from now on. What it lets through stays the same, and so does a time that runs. Where the window is another one, what
    /// was counted in it is forgotten.
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

    /// What it guards is another one from now on, such as a server to which there is a new connection: what was known says nothing of it.
    pub fn begin_anew(&mut self) {
        self.close();
    }

    /// What it lets through now. Open stays Open until somebody asks, however late it is.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { until_ms } => State::Open { until_ms },
            Phase::HalfOpen(_) => State::HalfOpen,
        }
    }

    /// The results within the window, one of each known caller. Results of probes are not among them, and whatever opens or closes begins at zero.
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
