//! What the gateway stores under a cache key, and the words of a change to it.

use std::sync::Arc;

use crate::Charge;

/// A primary record: nominated fields and a bounded list of stored responses, of which the store knows only the
/// weight and the end of its use.
///
/// A record is immutable once shared. Bytes that a reader takes out of a record are counted only while the record
/// itself is held, so the reader keeps the `Arc` until they are written.
///
/// A record is dropped wherever its last holder is, be it an eviction inside of another key's update. So its `Drop`
/// must not update the tier; a [`SegmentGroup`](crate::SegmentGroup) in it is fine. The charge should be its last
/// field, to leave the budget after the bytes are gone.
pub trait Record: Send + Sync + 'static {
    /// The reservation that this record owns: the bytes of the record and of all it owns outside of segments.
    fn charge(&self) -> &Charge;

    /// When the record is of no use any more, not even as a stale response, in milliseconds since the Unix epoch;
    /// `None` if only eviction or removal ends it.
    fn expires_at_ms(&self) -> Option<u64>;

    /// Of how many stored responses it is the record; of none where it only notes something about its key. Only counted.
    fn responses(&self) -> u64;
}

/// What an update makes of the record under a key.
#[derive(Debug)]
pub enum Change<R> {
    /// Leave it as it is.
    Keep,
    /// Replace it, or store the first one.
    Put(Arc<R>),
    /// Remove it.
    Remove,
}

/// What became of a [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Nothing was to be done.
    Kept,
    /// The record was taken; space may evict it at any time.
    Stored,
    /// The record was refused. What was stored before is removed, because it is no longer what the key stands for.
    NotStored(Refusal),
    /// A record was removed.
    Removed,
    /// There was no record to remove.
    Absent,
}

/// What became of a segment that was offered to a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentPut {
    /// Taken; space may evict it at any time.
    Stored,
    /// A segment with this id is there; segments are immutable, so the first one stays.
    AlreadyThere,
    /// Refused; to readers it is a hole.
    NotStored(Refusal),
}

/// Why a tier did not take a record or a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Larger than what one entry may weigh.
    TooLarge,
    /// Fills in progress and readers hold the memory.
    OverBudget,
}
