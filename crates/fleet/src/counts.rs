//! Counts of operations on the tier, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Declares the counted events, and the field in which each is counted.
macro_rules! events {
    ($($(#[$doc:meta])* $event:ident $field:ident,)*) => {
        /// Counts of operations on the tier behind memory, since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TierCounts {
            $($(#[$doc])* pub $field: u64,)*
            /// Number of instances that share the tier, as far as this one knows.
            pub instances: u64,
            /// Number of keys with a pending change.
            pub pending: u64,
            /// A number that identifies the purge log that this instance reads; `None` if it reads none.
            pub log: Option<u64>,
        }

        /// Counted event.
        #[derive(Clone, Copy, Debug)]
        pub enum Event {
            $($(#[$doc])* $event,)*
        }

        const EVENTS: usize = [$(Event::$event),*].len();

        impl Counts {
            pub fn read(&self, pending_keys: usize, instances: usize) -> TierCounts {
                let (instances, pending) = (instances as u64, pending_keys as u64);
                TierCounts { $($field: self.of(Event::$event),)* instances, pending, log: None }
            }
        }
    };
}

events! {
    /// Look-ups that found a usable record.
    LoadHit loads_hit,
    /// Look-ups that found no record, or an unusable one.
    LoadMissed loads_missed,
    /// Look-ups without an answer.
    LoadFailed loads_failed,
    /// Records written.
    Written written,
    /// Records removed.
    Removed removed,
    /// Failed writes, which are retried.
    WriteFailed writes_failed,
    /// Records that could not be written, and were removed instead.
    GivenUp given_up,
    /// Changes dropped because the limit of pending keys was reached. The tier's older records under these
    /// keys are ignored.
    Refused refused,
    /// Records and segments whose format is invalid.
    Corrupt corrupt,
    /// Records and segments with a missing or wrong tag, if one is required.
    Forged forged,
    /// Changes of records that the tier has reported.
    Pushed pushes,
    /// Reports that any record may have changed: after `FLUSHALL`, and after a lost connection.
    Flushed flushes,
    /// Uses of copies in memory that could not be verified because the tier is unreachable.
    Unverified unverified,
    /// Purges by other instances that this instance has applied.
    PurgeHeard purges_heard,
    /// Leases taken.
    LeaseTaken leases_taken,
    /// Waits for another instance's fetch.
    LeaseWaited leases_waited,
    /// Waits that ended because the lease expired without having been freed.
    LeaseExpired leases_expired,
    /// Leases of this instance that expired, or that another instance took, before the fetch was complete.
    LeaseLost leases_lost,
    /// Lease operations without an answer, after which this instance continued alone.
    LeaseFailed leases_failed,
    /// Leases that this instance returned late, because the tier didn't answer at first.
    LeaseReleasedLate leases_released_late,
    /// Leases that expired before the tier confirmed that this instance had returned them.
    LeaseNotReleased leases_not_released,
    /// Total time of waits for another instance's fetch, in milliseconds.
    LeaseWaitedMs leases_waited_ms,
}

#[derive(Debug, Default)]
pub struct Counts([AtomicU64; EVENTS]);

impl Counts {
    pub fn add(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn add_ms(&self, event: Event, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0[event as usize].fetch_add(ms, Ordering::Relaxed);
    }

    pub(super) fn of(&self, event: Event) -> u64 {
        self.0[event as usize].load(Ordering::Relaxed)
    }
}
