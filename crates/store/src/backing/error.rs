//! Errors of a tier.

use std::error::Error;
use std::time::Duration;

/// Reason that a tier gave no answer. The caller counts it and proceeds as after a miss.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// The tier is unreachable, or the connection broke.
    #[error("the tier is unreachable")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// The tier didn't answer in time.
    #[error("no reply from the tier within {} ms", .after.as_millis())]
    TimedOut {
        /// Deadline of the operation.
        after: Duration,
    },
    /// The answer can't be a stored value. Treat the entry as missing and remove it.
    #[error("corrupt reply from the tier")]
    Corrupt(#[source] Box<dyn Error + Send + Sync>),
    /// Other changes kept interfering.
    #[error("gave up after {attempts} conflicting changes")]
    Contended {
        /// Number of attempts.
        attempts: u32,
    },
    /// The tier has no room, for operations that have no other result for it, such as taking a lease.
    #[error("the tier is full")]
    Full,
    /// The tier wasn't asked: its circuit breaker is open.
    #[error("circuit breaker of the tier is open for {} ms", .retry.as_millis())]
    Open {
        /// Time until the next attempt.
        retry: Duration,
    },
}

impl BackingError {
    /// Whether the tier itself is in trouble, not only this entry or this moment.
    pub fn is_of_tier(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut { .. } => true,
            Self::Corrupt(_) | Self::Contended { .. } | Self::Full | Self::Open { .. } => false,
        }
    }
}
