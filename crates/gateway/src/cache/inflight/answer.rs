//! What a forward came to.

use std::sync::Arc;

use caching::{ContentRange, RefusalScope};
use message::fields::PackedFields;
use message::reason::{Detail, Reason};
use origin::{OriginError, OriginResponse};
use parking_lot::Mutex;

use crate::cache::failure::FailureCause;
use crate::cache::inflight::fill::{Fill, NotKept};
use crate::cache::record::stored::{Hit, StoredHead};

/// What a forward came to, as everybody who waits for it sees it.
#[derive(Clone)]
pub(crate) enum Answer {
    /// A response that may be shared; its body is on its way.
    Filling(Filling),
    /// A stored response, freshened by the origin's 304; and why it isn't stored so, if it isn't.
    Freshened(Hit, Result<(), Detail>),
    /// Somebody else stored a fresh response just before this forward would have begun.
    Found(Hit),
    /// Another instance stored this while this forward waited for it.
    FoundElsewhere(Hit),
    /// A stored response that may be used stale because the origin failed, and the failure for those who must not use it.
    Stale(Hit, FailureCause, Failed),
    /// A response that isn't stored: it belongs to the request that caused the forward.
    Private(Arc<PrivateAnswer>),
    /// What the rest of a stored response was asked for turned out to be no part of it; it is stored no longer.
    Discarded,
    /// No response.
    Failed(Failed),
    /// The forward was given up (the process stops).
    GivenUp,
}

impl Answer {
    /// How the forward failed, for all but those who can use what came of it.
    pub(crate) fn failed(&self) -> Option<Failed> {
        match self {
            Self::Failed(failed) | Self::Stale(_, _, failed) => Some(failed.clone()),
            Self::Private(private) if private.status >= 500 => Some(Failed::Status(private.status)),
            Self::Filling(_)
            | Self::Freshened(..)
            | Self::Found(_)
            | Self::FoundElsewhere(_)
            | Self::Private(_)
            | Self::Discarded
            | Self::GivenUp => None,
        }
    }
}

/// A response whose body is on its way, for everybody whom it answers.
#[derive(Clone)]
pub(crate) struct Filling {
    pub(crate) head: Arc<StoredHead>,
    /// What the origin answered: 206 for a part, while the head is that of the whole.
    pub(crate) status: u16,
    pub(crate) fill: Arc<Fill>,
    /// Why it isn't stored although it may be shared.
    pub(crate) refused: Option<Reason>,
    /// Fields that are not stored and only go to the request that caused the forward (RFC 9111 section 3.1).
    pub(crate) unshared: Arc<PackedFields>,
    /// Which part of the response the fill brings; absent: all of it.
    pub(crate) part: Option<ContentRange>,
}

impl Filling {
    /// Whether it is to be stored, as far as is known by now; else why not, where that is known.
    pub(crate) fn storing(&self) -> Result<(), Option<Reason>> {
        match self.refused {
            None if self.fill.may_be_stored() => Ok(()),
            None => Err(self.fill.why_not_stored().map(NotKept::reason)),
            refused => Err(refused),
        }
    }
}

/// How a forward failed.
#[derive(Clone)]
pub(crate) enum Failed {
    /// The origin gave no response.
    Error(Arc<OriginError>),
    /// It answered with this server error.
    Status(u16),
}

impl Failed {
    /// Why a stale response may stand in for it.
    pub(crate) fn cause(&self) -> FailureCause {
        match self {
            Self::Error(error) => FailureCause::of_error(error),
            Self::Status(status) => FailureCause::of_status(*status),
        }
    }
}

/// A response that only one request may have.
pub(crate) struct PrivateAnswer {
    pub(crate) reason: Detail,
    /// The requests that would hardly get anything else.
    pub(crate) scope: RefusalScope,
    pub(crate) status: u16,
    pub(crate) response: Mutex<Option<Box<OriginResponse>>>,
}
