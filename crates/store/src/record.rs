//! Records under a cache key, and the vocabulary of changes to them.

use std::sync::Arc;

use crate::Charge;

/// A primary record: nominated fields and a bounded list of stored responses. The store knows only its size and expiry time.
///
/// A record is immutable once shared. Bytes that a reader takes out of a record are counted only while the record itself is held, so the
/// reader keeps the `Arc` until they are written.
///
/// The last holder drops a record, which may be an eviction inside another key's update. So `Drop` must not update the tier; dropping a
/// [`SegmentGroup`](crate::SegmentGroup) is fine. Make the charge the last field, so that it leaves the budget after the bytes are freed.
pub trait Record: Send + Sync + 'static {
    /// Returns the reservation of this record: the bytes of the record and of all it owns outside of segments.
    fn charge(&self) -> &Charge;

    /// Returns when the record expires and can't be used even as a stale response, in milliseconds since the Unix epoch; `None` if only
    /// eviction or removal ends it.
    fn expires_at_ms(&self) -> Option<u64>;

    /// Returns the number of stored responses, 0 for a record that only notes something about its key. Used for counters alone.
    fn responses(&self) -> u64;
}

/// Change that an update makes to the record under a key.
#[derive(Debug)]
pub enum Change<R> {
    /// Leaves the record as it is.
    Keep,
    /// Stores this record, replacing the current one.
    Put(Arc<R>),
    /// Removes the record.
    Remove,
}

/// Outcome of a [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The record was left as it is.
    Kept,
    /// The record was stored. It may be evicted at any time.
    Stored,
    /// The record was refused. The previous record is removed, because the key no longer stands for it.
    NotStored(Refusal),
    /// A record was removed.
    Removed,
    /// There was no record to remove.
    Absent,
}

/// Outcome of storing a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentPut {
    /// The segment was stored. It may be evicted at any time.
    Stored,
    /// A segment with this id is stored already; segments are immutable, so the first one stays.
    AlreadyThere,
    /// The segment was refused. Readers find a hole.
    NotStored(Refusal),
}

/// Reason that a tier refuses a record or a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Larger than the limit for one entry.
    TooLarge,
    /// Fills in progress and readers hold the memory that it needs.
    OverBudget,
}
