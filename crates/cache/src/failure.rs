//! Interpretation of an origin's failure: whether a stale response may be used, and which status the client gets.

use caching::Failure;
use message::reason::{Detail, Reason};
use origin::{OriginError, OriginErrorKind};

/// Failure for which a stale response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureCause {
    pub failure: Failure,
    pub status: Option<u16>,
    pub detail: Detail,
}

impl FailureCause {
    /// Returns the cause for an origin that sent no response.
    pub fn of_error(error: &OriginError) -> Self {
        let failure = match error.is_disconnection() {
            true => Failure::Unreachable,
            false => Failure::Status(status_of(error)),
        };
        Self { failure, status: None, detail: Detail::Origin(error.reason()) }
    }

    /// Returns the cause for an origin that answered with this status.
    pub fn of_status(status: u16) -> Self {
        let failure = Failure::Status(status);
        Self { failure, status: Some(status), detail: Reason::StaleIfError.into() }
    }
}

/// Returns the status for an origin that sent no response (RFC 9110 section 15.6).
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
