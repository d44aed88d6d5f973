//! The machine: who may call, and what results change.

use crate::settings::Settings;
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
    /// The place of a probe.
    place: Option<Held>,
}

/// A call that is not worth a try now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// After this many milliseconds there will be a place for a probe, if nobody else takes it. At least 1.
    pub retry_ms: u64,
}

/// How an admitted call ended. What counts as a failure is for its user to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Success,
    /// It didn't, or not in time.
    Failure,
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
        Self { settings, window, phase: Phase::Closed, generation: 0, reset_ms }
    }

    /// Asks for a call.
    ///
    /// # Errors
    /// An expected answer: the call is not to be made.
    pub fn admit(&mut self, now_ms: u64) -> Result<Permit, Refusal> {
        self.admit_at(Pace::Own, now_ms)
    }

    /// Asks for a call that takes as long as a third party likes. As a probe it has a place apart, of which there are as many:
    /// whoever holds those keeps no other call from being a probe.
    ///
    /// # Errors
    /// As of [`Breaker::admit`].
    pub fn admit_apart(&mut self, now_ms: u64) -> Result<Permit, Refusal> {
        self.admit_at(Pace::Foreign, now_ms)
    }

    fn admit_at(&mut self, pace: Pace, now_ms: u64) -> Result<Permit, Refusal> {
        if let Phase::Open { until_ms } = self.phase {
            if now_ms < until_ms {
                return Err(Refusal { retry_ms: until_ms - now_ms });
            }
            self.become_next(Phase::HalfOpen(Trial::default()));
        }
        let place = match &mut self.phase {
            Phase::HalfOpen(trial) => {
                let place = trial.take_place(pace, self.settings.options(), now_ms);
                Some(place.map_err(|retry_ms| Refusal { retry_ms })?)
            }
            Phase::Closed | Phase::Open { .. } => None,
        };
        Ok(Permit { generation: self.generation, place })
    }

    /// Takes in how an admitted call ended.
    ///
    /// A probe that comes back after `probe_ms_max` still counts, as long as the state is the one that admitted it.
    pub fn report(&mut self, permit: Permit, outcome: Outcome, now_ms: u64) -> Effect {
        let Permit { generation, place } = permit;
        drop(place);
        if generation != self.generation {
            return Effect::Ignored;
        }
        match outcome {
            Outcome::Success => self.succeeds(now_ms),
            Outcome::Failure => self.fails(now_ms),
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
        self.reset_ms = self.settings.options().reset_ms;
        self.become_next(Phase::Closed);
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

    /// The results within the window. Results of probes are not among them, and whatever opens or closes begins at zero.
    pub fn counts(&mut self, now_ms: u64) -> Counts {
        self.window.counts(now_ms)
    }

    fn succeeds(&mut self, now_ms: u64) -> Effect {
        let Phase::HalfOpen(trial) = &mut self.phase else {
            self.window.add_success(now_ms);
            return Effect::Counted;
        };
        if !trial.succeeds(self.settings.options()) {
            return Effect::Counted;
        }
        self.reset_ms = self.settings.options().reset_ms;
        self.become_next(Phase::Closed);
        Effect::Closed
    }

    fn fails(&mut self, now_ms: u64) -> Effect {
        if matches!(self.phase, Phase::HalfOpen(_)) {
            return self.open(now_ms);
        }
        self.window.add_failure(now_ms);
        let is_trouble = self.window.counts(now_ms).is_trouble(self.settings.options());
        if is_trouble { self.open(now_ms) } else { Effect::Counted }
    }

    fn open(&mut self, now_ms: u64) -> Effect {
        let reset_ms = self.reset_ms;
        self.reset_ms = (reset_ms * 2).min(self.settings.options().reset_ms_max);
        self.become_next(Phase::Open { until_ms: now_ms.saturating_add(reset_ms) });
        Effect::Opened { reset_ms }
    }

    fn become_next(&mut self, phase: Phase) {
        self.window.clear();
        self.phase = phase;
        self.generation += 1;
    }
}
