//! Leases: the right to fetch for all instances, one per key.

use std::fmt;
use std::time::Duration;

/// Maximum length of a lease's note in bytes.
pub const LEASE_NOTE_BYTES_MAX: usize = 256;

/// Identifies one acquisition of a lease. The tier that grants the lease draws it at random; only the holder
/// knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A lease that was taken. Dropping it doesn't free it: it ends when it is released or expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Key to which it applies.
    pub key: Box<[u8]>,
    /// Token of this acquisition.
    pub token: Token,
}

/// Parameters for taking a lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRequest<'a> {
    /// Duration without renewal; must be positive.
    pub ttl: Duration,
    /// Description of the holder for other instances, cut to [`LEASE_NOTE_BYTES_MAX`].
    pub note: &'a [u8],
    /// Whether to end a lease of another holder.
    pub mode: LeaseMode,
}

/// Whether a held lease can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseMode {
    /// Takes the lease only if it is free.
    IfFree,
    /// Takes the lease even if it is held, so that older fetches can no longer publish.
    Overwrite,
}

/// Result of taking a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The caller holds the lease.
    Taken(Lease),
    /// Another instance holds the lease.
    Held {
        /// Note of the holder.
        note: Box<[u8]>,
        /// Time until it expires, unless the holder renews it.
        left: Duration,
    },
}

/// Result of renewing a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The lease is held for the requested time.
    Renewed,
    /// The lease was overwritten, or had expired.
    Lost,
}
