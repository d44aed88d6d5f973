//! Records: bytes with versions.

use std::time::Duration;

use bytes::Bytes;

use super::lease::Lease;
use super::watch::Source;
use crate::{Refusal, SEGMENT_BYTES_MAX};

/// The longest key.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// The longest record, all of it.
pub const RECORD_BYTES_MAX: usize = 64 << 10;
/// The longest segment, with what says whose it is; see `docs/design/record-format.md`.
pub const SEGMENT_FRAME_BYTES_MAX: usize = SEGMENT_BYTES_MAX + 64;

/// Names the bytes of a record among all that were ever under its key. Nothing else follows from it: of two, none is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// A record as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// All of it.
    pub bytes: Bytes,
    /// Of these bytes.
    pub version: Version,
    /// Where it comes from: what a copy is to be judged by.
    pub source: Source,
    /// Whether the next change will be told. A tier follows a limited number of keys, and none for an answer to a put.
    pub tracking: Tracking,
}

/// Whether changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// The next change is told; for records that are kept.
    UntilChanged,
    /// Nothing is told.
    Off,
}

/// A record to be written.
#[derive(Debug, Clone)]
pub struct Write<'a> {
    /// All of it.
    pub bytes: Bytes,
    /// What it was decided upon.
    pub expected: Expected<'a>,
    /// How long it is of use. More than zero.
    pub ttl: Duration,
    /// What must be held for it, if anything.
    pub lease: Option<&'a Lease>,
}

/// What must be there for a record to be written.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// Whatever it is. For records with one writer.
    Any,
    /// Nothing.
    Absent,
    /// What was loaded. All of it is given, since some tiers compare bytes.
    Is(&'a Loaded),
}

/// What became of a record that was to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Stored(Version),
    /// Something else was there, or nothing: decide again.
    Conflict(Option<Loaded>),
    /// The lease was not held any more.
    LeaseLost,
    /// It is beyond a limit.
    NotStored(Refusal),
}

/// How waiting for somebody else's fetch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The record is another one, or gone.
    Changed(Option<Loaded>),
    /// The server has told of a change. What lies there now was not looked at: whoever waits reads it anyway, and waits again if it is the same.
    Told,
    /// The record is the same, and nobody holds the lease: it was freed, maybe before the wait, with or without a record that is gone again.
    Free,
    /// The record is the same, and the lease has come to the end of its time while it was waited for.
    Expired,
    /// The limit has passed.
    StillHeld,
}
