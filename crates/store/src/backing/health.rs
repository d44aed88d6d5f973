//! How a tier does, for whoever watches it.

use std::time::Duration;

use breaker::State;
use telemetry::Histogram;

/// What is asked of a tier, by how long that may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Metadata and leases.
    Record,
    /// Up to 1 MiB of a body.
    Segment,
    /// The log of purges.
    Log,
}

/// See the module. By default that of a tier that is always asked, and is not measured.
#[derive(Debug, Clone)]
pub struct Health {
    /// Of the circuit breaker.
    pub state: State,
    /// How often it has opened.
    pub opened: u64,
    /// Whether copies of what the tier has can be relied upon now.
    pub is_verified: bool,
    /// How long ago it last showed that it is there.
    pub silence: Duration,
    /// How far its clock is ahead of the one here, where that is known.
    pub clock_ahead_ms: Option<i64>,
    /// How long operations took, those included that ended without an answer.
    pub durations: Durations,
}

/// How long operations took, by [`Operation`].
#[derive(Debug, Clone, Default)]
pub struct Durations([Histogram; Operation::ALL.len()]);

impl Operation {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Record, Self::Segment, Self::Log];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Segment => "segment",
            Self::Log => "log",
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        let (silence, durations) = (Duration::ZERO, Durations::default());
        Self { state: State::Closed, opened: 0, is_verified: true, silence, clock_ahead_ms: None, durations }
    }
}

impl Durations {
    /// Those of one kind of operation.
    pub fn of(&self, operation: Operation) -> &Histogram {
        &self.0[operation as usize]
    }

    pub(super) fn record(&mut self, operation: Operation, duration_ns: u64) {
        self.0[operation as usize].record(duration_ns);
    }
}
