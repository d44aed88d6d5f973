//! Leases: the right to fetch for all instances, one for each key.

use std::fmt;
use std::time::Duration;

/// Maximum length of the note beside a lease in bytes.
pub const LEASE_NOTE_BYTES_MAX: usize = 256;

/// Identifies one taking of a lease. Drawn by the tier that granted it, and known only to its holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A taken lease. Dropping it doesn't free it: it ends by release, or when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Key that it is for.
    pub key: Box<[u8]>,
    /// Token of this taking.
    pub token: Token,
}

/// Parameters for taking a lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRequest<'a> {
    /// Duration unless it is renewed. More than zero.
    pub ttl: Duration,
    /// Description of the holder for other instances, cut to [`LEASE_NOTE_BYTES_MAX`].
    pub note: &'a [u8],
    /// Whether it ends a lease of another holder.
    pub mode: LeaseMode,
}

/// Whether a held lease can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseMode {
    /// Takes the lease only if nobody holds it.
    IfFree,
    /// Takes the lease in any case, so that older fetches can't publish any more.
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
