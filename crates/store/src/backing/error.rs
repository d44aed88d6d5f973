//! Why a tier gave no answer.

use std::error::Error;
use std::time::Duration;

/// Why a tier gave no answer. The caller counts it and goes on as after a miss.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// The tier could not be reached, or broke off.
    #[error("the tier is unreachable")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// The tier did not answer in time.
    #[error("the tier did not answer within {} ms", .after.as_millis())]
    TimedOut {
        /// The deadline of the operation.
        after: Duration,
    },
    /// What the tier answered can't be what was put there. The entry is as good as missing and should be removed.
    #[error("the tier answered with something else than what was put there")]
    Corrupt(#[source] Box<dyn Error + Send + Sync>),
    /// Other changes kept coming in between.
    #[error("the change was overtaken {attempts} times")]
    Contended {
        /// How often it was tried.
        attempts: u32,
    },
    /// The tier has no room, for what has no other word for it: a lease, say.
    #[error("the tier has no room for it")]
    Full,
    /// The tier was not asked: it has failed too often lately.
    #[error("the tier is not asked for the next {} ms", .retry.as_millis())]
    Open {
        /// When asking may be worth it again.
        retry: Duration,
    },
}

impl BackingError {
    /// Whether it says that the tier itself is in trouble, and not only this entry or this moment.
    pub fn is_of_tier(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut { .. } => true,
            Self::Corrupt(_) | Self::Contended { .. } | Self::Full | Self::Open { .. } => false,
        }
    }
}
