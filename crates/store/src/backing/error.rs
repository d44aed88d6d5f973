//! Errors of a tier.

use std::error::Error;
use std::time::Duration;

/// Reason why a tier gave no result. The caller counts the error and continues as after a miss.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// The tier is unreachable, or the connection broke.
    #[error("the tier is unreachable")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// The part of the tier that has the key is unreachable, but the tier works.
    #[error("a part of the tier is unreachable")]
    PartAway(#[source] Box<dyn Error + Send + Sync>),
    /// The tier didn't answer in time.
    #[error("no reply from the tier within {} ms", .after.as_millis())]
    TimedOut {
        /// Deadline of the operation.
        after: Duration,
    },
    /// The reply can't be a stored value. Treat the entry as missing, and remove it.
    #[error("corrupt reply from the tier")]
    Corrupt(#[source] Box<dyn Error + Send + Sync>),
    /// There is no log, and this reader doesn't begin one.
    #[error("there is no purge log")]
    NoLog,
    /// Conflicting changes by others prevented the operation.
    #[error("gave up after {attempts} conflicting changes")]
    Contended {
        /// Number of attempts.
        attempts: u32,
    },
    /// The tier has no room. Only operations without a result for this case return it, such as taking a
    /// lease.
    #[error("the tier is full")]
    Full,
    /// No request was sent, because the tier's circuit breaker is open.
    #[error("circuit breaker of the tier is open for {} ms", .retry.as_millis())]
    Open {
        /// Time until the next attempt.
        retry: Duration,
    },
}

impl BackingError {
    /// Returns whether the error is a failure of the tier itself, and not of one entry or of a
    /// temporary state.
    pub fn is_of_tier(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut { .. } => true,
            Self::PartAway(_)
            | Self::Corrupt(_)
            | Self::NoLog
            | Self::Contended { .. }
            | Self::Full
            | Self::Open { .. } => false,
        }
    }
}
