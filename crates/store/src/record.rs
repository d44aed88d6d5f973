//! Records under a cache key, and the vocabulary of changes to them.

use std::sync::Arc;

use crate::Charge;

/// A primary record: nominated fields and a bounded list of stored responses. The store reads only the record's size, expiry time and
/// number of responses.
///
/// A record is immutable once shared. Bytes that a reader takes from a record are counted only while the record itself is held, so the
/// reader must keep the `Arc` until they are written.
///
/// The last holder drops a record, possibly during an eviction inside another key's update. So `Drop` must not update the tier, but may
/// drop a [`SegmentGroup`](crate::SegmentGroup). Make the charge the last field, so that it leaves the budget after the bytes are freed.
pub trait Record: Send + Sync + 'static {
    /// Returns the reservation of this record, for its own bytes and all that it owns except segments.
    fn charge(&self) -> &Charge;

    /// Returns the time at which the record expires, after which it can't even be used stale, in milliseconds since the Unix epoch; `None`
    /// if it ends only by eviction or removal.
    fn expires_at_ms(&self) -> Option<u64>;

    /// Returns the number of stored responses; 0 for a record that only holds a note about its key. Only counters use this number.
    fn responses(&self) -> u64;
}

/// Change that an update makes to the record under a key.
#[derive(Debug)]
pub enum Change<R> {
    /// Leaves the record unchanged.
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
    /// The record was refused. The previous record is removed, because it no longer applies to the key.
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
    /// The segment was refused. Readers find a hole in the body.
    NotStored(Refusal),
}

/// Reason why a tier refuses a record or a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Larger than the limit for one entry.
    TooLarge,
    /// No room: fills in progress and readers hold the memory.
    OverBudget,
}
