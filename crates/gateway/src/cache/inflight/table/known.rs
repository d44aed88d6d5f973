//! How other instances know a forward that this process waits for.

use caching::Timestamp;

use super::{InFlight, Waiter};
use crate::cache::inflight::known::{ForwardId, KnownForward};

impl InFlight {
    /// From now on, or by the time that it has failed, others know it as this.
    pub(crate) fn is_known_as(&self, forward: KnownForward) {
        let _ = self.known.set(forward);
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
    /// Whether its forward took the place of one that failed elsewhere: if it fails, there is no other one.
    pub(crate) fn is_known_relief(&self) -> bool {
        self.in_flight.known.get().is_some_and(KnownForward::is_relief)
    }

    /// Whether others know of the forward that its own relieves.
    pub(crate) fn relieves_known(&self) -> bool {
        self.in_flight.relieves.is_some()
    }
}
