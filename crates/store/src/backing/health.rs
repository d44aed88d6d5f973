//! State of a tier, for metrics.

use std::time::Duration;

use breaker::State;
use telemetry::Histogram;

/// Kind of an operation, which determines its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Records and leases.
    Record,
    /// Segments of bodies, up to 1 MiB each.
    Segment,
    /// The log of purges.
    Log,
}

/// State of a tier. The default describes a tier without a circuit breaker or measurements.
#[derive(Debug, Clone)]
pub struct Health {
    /// State of the circuit breaker.
    pub state: State,
    /// Number of times that the breaker has opened.
    pub opened: u64,
    /// Whether copies of the tier's records can be relied upon now.
    pub is_verified: bool,
    /// Time since the last sign of life of the tier.
    pub silence: Duration,
    /// Lead of its clock over this process's clock, if known.
    pub clock_ahead_ms: Option<i64>,
    /// Durations of operations, including those that ended without a reply.
    pub durations: Durations,
}

/// Durations of operations by [`Operation`].
#[derive(Debug, Clone, Default)]
pub struct Durations([Histogram; Operation::ALL.len()]);

impl Operation {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Record, Self::Segment, Self::Log];

    /// Returns the label value.
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
    /// Returns the durations of one kind of operation.
    pub fn of(&self, operation: Operation) -> &Histogram {
        &self.0[operation as usize]
    }

    pub(super) fn record(&mut self, operation: Operation, duration_ns: u64) {
        self.0[operation as usize].record(duration_ns);
    }
}
