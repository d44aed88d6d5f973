//! Records: bytes with versions.

use std::time::Duration;

use bytes::Bytes;

use super::lease::Lease;
use super::watch::Source;
use crate::{Refusal, SEGMENT_BYTES_MAX};

/// Maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a whole record in bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a segment with its frame in bytes; see `docs/internals/record-format.md`.
pub const SEGMENT_FRAME_BYTES_MAX: usize = SEGMENT_BYTES_MAX + 64;

/// Identifies the bytes of a record among all that were ever under its key. Versions have no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// A loaded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The whole record.
    pub bytes: Bytes,
    /// Version of these bytes.
    pub version: Version,
    /// Source that it was loaded from, by which copies are judged.
    pub source: Source,
    /// Whether the next change will be announced. A tier follows a limited number of keys, and none for the answer to a put.
    pub tracking: Tracking,
}

/// Whether changes of a record are announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// The next change is announced; for records that are kept.
    UntilChanged,
    /// Changes aren't announced.
    Off,
}

/// A record to write.
#[derive(Debug, Clone)]
pub struct Write<'a> {
    /// The whole record.
    pub bytes: Bytes,
    /// Condition on the current record.
    pub expected: Expected<'a>,
    /// Time to live. More than zero.
    pub ttl: Duration,
    /// Lease that must be held, if any.
    pub lease: Option<&'a Lease>,
}

/// Condition on the current record for a write.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// None. For records with one writer.
    Any,
    /// There is no record.
    Absent,
    /// The record is this loaded one. Given whole, since some tiers compare bytes.
    Is(&'a Loaded),
}

/// Result of writing a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutOutcome {
    /// The record was written.
    Stored(Version),
    /// The condition doesn't hold; with the current record, if there is one. Decide again.
    Conflict(Option<Loaded>),
    /// The lease wasn't held any more.
    LeaseLost,
    /// The record was refused.
    NotStored(Refusal),
}

/// Result of waiting for another instance's fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The record has changed, or is gone.
    Changed(Option<Loaded>),
    /// The server has announced a change. The current record wasn't loaded: the caller loads it anyway, and waits again if it is the same.
    Told,
    /// The record is the same, and nobody holds the lease: it was freed, perhaps before the wait, with or without a record that is gone
    /// again.
    Free,
    /// The record is the same, and the lease expired during the wait.
    Expired,
    /// The limit has passed.
    StillHeld,
}
