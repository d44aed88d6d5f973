//! How other instances know a forward that this process waits for.

use std::sync::OnceLock;

use caching::Timestamp;
use telemetry::trace::TraceContext;

use super::{InFlight, Waiter};
use crate::cache::inflight::known::{ForwardId, KnownForward};

/// How others know a forward.
#[derive(Default)]
pub(super) struct Marks {
    /// To other instances, where they may wait for it.
    known: OnceLock<KnownForward>,
    /// Where the request is recorded that leads it.
    trace: OnceLock<TraceContext>,
}

impl InFlight {
    /// The request that leads it is recorded there, if at all.
    pub(crate) fn is_led_by(&self, trace: Option<TraceContext>) {
        if let Some(trace) = trace {
            let _ = self.marks.trace.set(trace);
        }
    }

    /// From now on, or by the time that it has failed, others know it as this.
    pub(crate) fn is_known_as(&self, forward: KnownForward) {
        let _ = self.marks.known.set(forward);
    }

    /// What others know it as.
    pub(super) fn known(&self) -> Option<KnownForward> {
        self.marks.known.get().copied()
    }

    /// When the first of those who wait came.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// The forward that it relieves, as others know that.
    pub(crate) fn relieves(&self) -> Option<ForwardId> {
        self.relieves
    }
}

impl Waiter {
    /// Where the request is recorded that leads its forward.
    pub(crate) fn leader_trace(&self) -> Option<TraceContext> {
        self.in_flight.marks.trace.get().copied()
    }

    /// Whether its forward took the place of one that failed elsewhere: if it fails, there is no other one.
    pub(crate) fn is_known_relief(&self) -> bool {
        self.in_flight.marks.known.get().is_some_and(KnownForward::is_relief)
    }

    /// Whether others know of the forward that its own relieves.
    pub(crate) fn relieves_known(&self) -> bool {
        self.in_flight.relieves.is_some()
    }
}
