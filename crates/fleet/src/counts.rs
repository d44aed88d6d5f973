//! Counts of operations on the tier, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Declares the counted events, each with the field that has its count.
macro_rules! events {
    ($($(#[$doc:meta])* $event:ident $field:ident,)*) => {
        /// Counts of operations on the tier behind memory, since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TierCounts {
            $($(#[$doc])* pub $field: u64,)*
            /// Instances that share the tier, as far as this one knows.
            pub instances: u64,
            /// Keys with a pending change.
            pub pending: u64,
            /// Number derived from the id of the log that this instance reads, if it reads one.
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
    /// Failed writes, which are tried again.
    WriteFailed writes_failed,
    /// Records that could not be written, and were removed instead.
    GivenUp given_up,
    /// Changes that exceeded the limit of pending keys: records that were written before them are ignored.
    Refused refused,
    /// Records and segments that break a rule of their format.
    Corrupt corrupt,
    /// Records and segments without the tag that is required, or with a wrong one.
    Forged forged,
    /// Changes of records that the tier has reported.
    Pushed pushes,
    /// Reports that everything may have changed: after `FLUSHALL`, and when the connection was lost.
    Flushed flushes,
    /// Uses of copies in memory that could not be verified, because the tier can't be asked.
    Unverified unverified,
    /// Purges of other instances that took effect here.
    PurgeHeard purges_heard,
    /// Leases taken.
    LeaseTaken leases_taken,
    /// Waits for another instance's fetch.
    LeaseWaited leases_waited,
    /// Waits that ended with a lease that nobody had freed.
    LeaseExpired leases_expired,
    /// Leases of this instance that another one took, or that ended, before it was done.
    LeaseLost leases_lost,
    /// Lease operations without an answer: this instance went on alone.
    LeaseFailed leases_failed,
    /// Leases that this instance gave back late: the tier did not answer at first.
    LeaseReleasedLate leases_released_late,
    /// Leases that this instance could not give back before they ended, as far as it knows.
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
