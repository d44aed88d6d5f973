//! Counts of operations on the tier, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of operations on the tier behind memory, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Look-ups that found a usable record.
    pub loads_hit: u64,
    /// Look-ups that found no record, or an unusable one.
    pub loads_missed: u64,
    /// Look-ups without an answer.
    pub loads_failed: u64,
    /// Records written.
    pub written: u64,
    /// Records removed.
    pub removed: u64,
    /// Failed writes, which are tried again.
    pub writes_failed: u64,
    /// Records that could not be written, and were removed instead.
    pub given_up: u64,
    /// Changes that exceeded the limit of pending keys: records that were written before them are ignored.
    pub refused: u64,
    /// Records and segments that break a rule of their format.
    pub corrupt: u64,
    /// Records and segments without the tag that is required, or with a wrong one.
    pub forged: u64,
    /// Changes of records that the tier has reported.
    pub pushes: u64,
    /// Reports that everything may have changed: after `FLUSHALL`, and when the connection was lost.
    pub flushes: u64,
    /// Uses of copies in memory that could not be verified, because the tier can't be asked.
    pub unverified: u64,
    /// Purges of other instances that took effect here.
    pub purges_heard: u64,
    /// Leases taken.
    pub leases_taken: u64,
    /// Waits for another instance's fetch.
    pub leases_waited: u64,
    /// Waits that ended with a lease that nobody had freed.
    pub leases_expired: u64,
    /// Leases of this instance that another one took, or that ended, before it was done.
    pub leases_lost: u64,
    /// Lease operations without an answer: this instance went on alone.
    pub leases_failed: u64,
    /// Leases that this instance gave back late: the tier did not answer at first.
    pub leases_released_late: u64,
    /// Leases that this instance could not give back before they ended, as far as it knows.
    pub leases_not_released: u64,
    /// Total time of waits for another instance's fetch, in milliseconds.
    pub leases_waited_ms: u64,
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
    LoadHit,
    LoadMissed,
    LoadFailed,
    Written,
    Removed,
    WriteFailed,
    GivenUp,
    Refused,
    Corrupt,
    Forged,
    Pushed,
    Flushed,
    Unverified,
    PurgeHeard,
    LeaseTaken,
    LeaseWaited,
    LeaseExpired,
    LeaseLost,
    LeaseFailed,
    LeaseReleasedLate,
    LeaseNotReleased,
    LeaseWaitedMs,
}

const EVENTS: usize = Event::LeaseWaitedMs as usize + 1;

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

    pub fn read(&self, pending_keys: usize, instances: usize) -> TierCounts {
        let of = |event: Event| self.of(event);
        TierCounts {
            loads_hit: of(Event::LoadHit),
            loads_missed: of(Event::LoadMissed),
            loads_failed: of(Event::LoadFailed),
            written: of(Event::Written),
            removed: of(Event::Removed),
            writes_failed: of(Event::WriteFailed),
            given_up: of(Event::GivenUp),
            refused: of(Event::Refused),
            corrupt: of(Event::Corrupt),
            forged: of(Event::Forged),
            pushes: of(Event::Pushed),
            flushes: of(Event::Flushed),
            unverified: of(Event::Unverified),
            purges_heard: of(Event::PurgeHeard),
            leases_taken: of(Event::LeaseTaken),
            leases_waited: of(Event::LeaseWaited),
            leases_expired: of(Event::LeaseExpired),
            leases_lost: of(Event::LeaseLost),
            leases_failed: of(Event::LeaseFailed),
            leases_released_late: of(Event::LeaseReleasedLate),
            leases_not_released: of(Event::LeaseNotReleased),
            leases_waited_ms: of(Event::LeaseWaitedMs),
            instances: instances as u64,
            pending: pending_keys as u64,
            log: None,
        }
    }
}
