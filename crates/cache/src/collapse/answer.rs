//! Results of forwards.

use std::sync::Arc;

use caching::{ContentRange, RefusalScope};
use message::fields::PackedFields;
use message::reason::{Detail, Reason};
use origin::{OriginError, OriginResponse};
use parking_lot::Mutex;

use crate::entry::stored::{Hit, StoredHead};
use crate::failure::FailureCause;
use crate::fill::{Fill, NotKept};

/// Result of a forward for its waiters.
#[derive(Clone)]
pub enum Answer {
    /// A response that may be shared; its body is still arriving.
    Filling(Filling),
    /// A stored response, freshened by the origin's 304, with the reason if the freshened response isn't stored.
    Freshened(Hit, Result<(), Detail>),
    /// A fresh response that another request stored just before this forward began.
    Found(Hit),
    /// A response that another instance stored while this forward waited.
    FoundElsewhere(Hit),
    /// A stored response that may be used stale because the origin failed, and the failure for waiters that must not use it.
    Stale(Hit, FailureCause, Failed),
    /// A response that isn't stored, for the request that caused the forward.
    Private(Arc<PrivateAnswer>),
    /// The incomplete stored response no longer matches the origin's, and has been removed.
    Discarded,
    /// No response.
    Failed(Failed),
    /// The forward was abandoned because the process is stopping.
    GivenUp,
}

impl Answer {
    /// Returns the failure of the forward, for waiters that can't use its result.
    pub fn failed(&self) -> Option<Failed> {
        match self {
            Self::Failed(failed) | Self::Stale(_, _, failed) => Some(failed.clone()),
            Self::Private(private) if private.status >= 500 => Some(Failed::Status(private.status)),
            _ => None,
        }
    }
}

/// A response whose body is still arriving, for all its readers.
#[derive(Clone)]
pub struct Filling {
    pub head: Arc<StoredHead>,
    /// Status from the origin: 206 for a part, although the head is that of the whole response.
    pub status: u16,
    pub fill: Arc<Fill>,
    /// Reason not to store a response that may be shared.
    pub refused: Option<Reason>,
    /// Fields that are not stored and go only to the request that caused the forward (RFC 9111 section 3.1).
    pub unshared: Arc<PackedFields>,
    /// Part of the response that the fill contains; absent if it contains all of it.
    pub part: Option<ContentRange>,
}

impl Filling {
    /// Returns `Ok` if the response will still be stored, and otherwise the reason, if known.
    pub fn storing(&self) -> Result<(), Option<Reason>> {
        match self.refused {
            None if self.fill.may_be_stored() => Ok(()),
            None => Err(self.fill.why_not_stored().map(NotKept::reason)),
            refused => Err(refused),
        }
    }
}

/// Failure of a forward.
#[derive(Clone)]
pub enum Failed {
    /// The origin sent no response.
    Error(Arc<OriginError>),
    /// The origin answered with this server error.
    Status(u16),
}

impl Failed {
    /// Returns the cause that decides whether a stale response may be served instead.
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::Error(error) => FailureCause::of_error(error),
            Self::Status(status) => FailureCause::of_status(*status),
        }
    }
}

/// A response for one request only.
pub struct PrivateAnswer {
    pub reason: Detail,
    /// Requests whose responses most likely can't be shared either.
    pub scope: RefusalScope,
    pub status: u16,
    pub response: Mutex<Option<Box<OriginResponse>>>,
}
