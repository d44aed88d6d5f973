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

/// Identifies the bytes of a record among all that were ever stored under its key. Versions have no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// A loaded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The whole record.
    pub bytes: Bytes,
    /// Version of these bytes.
    pub version: Version,
    /// Source from which the record was loaded; a copy is valid only as long as its source is verified.
    pub source: Source,
    /// Whether the next change will be announced. A tier follows a limited number of keys. It never follows a record in the reply to a
    /// put.
    pub tracking: Tracking,
}

/// Whether changes of a record are announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// The next change is announced; use it for records of which the caller keeps a copy.
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
    /// Time to live; must be positive.
    pub ttl: Duration,
    /// Lease that must be held, if any.
    pub lease: Option<&'a Lease>,
}

/// Condition on the current record for a write.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// No condition. Use it for records with only one writer.
    Any,
    /// There is no record.
    Absent,
    /// The record is the same as this one. It is passed with its bytes, because some tiers compare them.
    Is(&'a Loaded),
}

/// Result of writing a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutOutcome {
    /// The record was written.
    Stored(Version),
    /// The condition wasn't met. Contains the current record, if any, so that the caller can decide again.
    Conflict(Option<Loaded>),
    /// The lease was no longer held.
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
    /// The record is the same, and the lease is free. The holder freed it, perhaps before the wait, without writing a record, or the
    /// record has been removed again.
    Free,
    /// The record is the same, and the lease expired during the wait.
    Expired,
    /// The limit has passed.
    StillHeld,
}
