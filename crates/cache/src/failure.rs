//! Meaning of an origin's failure: for a stale response that could stand in, and for the status that a client gets.

use caching::Failure;
use message::reason::{Detail, Reason};
use origin::{OriginError, OriginErrorKind};

/// Failure that a stale response stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureCause {
    pub failure: Failure,
    pub status: Option<u16>,
    pub detail: Detail,
}

impl FailureCause {
    /// The origin gave no answer.
    pub fn of_error(error: &OriginError) -> Self {
        let failure = match error.is_disconnection() {
            true => Failure::Unreachable,
            false => Failure::Status(status_of(error)),
        };
        Self { failure, status: None, detail: Detail::Origin(error.reason()) }
    }

    /// The origin answered with this status.
    pub fn of_status(status: u16) -> Self {
        let failure = Failure::Status(status);
        Self { failure, status: Some(status), detail: Reason::StaleIfError.into() }
    }
}

/// Status for an origin that gave no response (RFC 9110 section 15.6).
pub fn status_of(error: &OriginError) -> u16 {
    match error.kind() {
        //= RFC 9110 section 15.6.3: 502
        OriginErrorKind::Unreachable | OriginErrorKind::InvalidResponse => 502,
        //= RFC 9110 section 15.6.5: 504
        OriginErrorKind::TimedOut => 504,
        OriginErrorKind::Overloaded => 503,
        OriginErrorKind::Request => 400,
    }
}
