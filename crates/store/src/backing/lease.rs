//! The right to fetch for all, one for each key.

use std::fmt;
use std::time::Duration;

/// The longest note beside a lease.
pub const LEASE_NOTE_BYTES_MAX: usize = 256;

/// Tells one taking of a lease from all others. Drawn by the tier that gave it; a secret of who holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A lease that was taken. Dropping it does not free it: it ends by release, or when its time has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// What it is about.
    pub key: Box<[u8]>,
    /// Of this taking.
    pub token: Token,
}

/// How a lease is to be taken.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRequest<'a> {
    /// How long it lasts unless it is renewed. More than zero.
    pub ttl: Duration,
    /// Who takes it, for the others to read: at most [`LEASE_NOTE_BYTES_MAX`], and cut to that.
    pub note: &'a [u8],
    /// Whether another's lease ends by it.
    pub mode: LeaseMode,
}

/// Whether a lease that somebody holds can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseMode {
    /// Only if nobody holds it.
    IfFree,
    /// In any case: older fetches are not to publish any more.
    Overwrite,
}

/// What became of taking a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is the caller's.
    Taken(Lease),
    /// Somebody else holds it.
    Held {
        /// What they said about themselves.
        note: Box<[u8]>,
        /// How long it lasts, if they don't renew it.
        left: Duration,
    },
}

/// What became of renewing a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It is held for the time asked.
    Renewed,
    /// It was overwritten, or its time had passed.
    Lost,
}
