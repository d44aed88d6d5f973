//! A forward as instances that share a tier know it, and how they are told that it failed.
//!
//! Who waits for another instance knows which forward that is before it is answered, so a failure that names it came after the request that
//! waits. Nobody else may use it: to a request that comes later it says nothing.

use std::sync::Arc;

use caching::Timestamp;
use store::FillId;
use store::format::{Failure, forward_id};
use twox_hash::XxHash3_64;

use crate::cache::inflight::answer::How;
use crate::failure::FailureCause;
use crate::upstream::{OriginError, OriginErrorKind};

/// Tells one forward from all others, of this instance and elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForwardId(u64);

/// A forward that others may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownForward {
    pub(crate) id: ForwardId,
    /// The forward that failed before, and whose place it takes for those who wait: there is no third one.
    pub(crate) relieves: Option<ForwardId>,
}

/// How a forward failed, as others are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToldCause {
    /// The origin answered with this server error.
    Status(u16),
    /// It gave no answer: an error type of RFC 9209.
    NoAnswer(&'static str),
}

/// The failure of a forward of another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToldFailure {
    pub(crate) forward: KnownForward,
    pub(crate) cause: ToldCause,
}

/// The same, as a record tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) failure: ToldFailure,
    /// It is one of requests that came before this, by the clock of this process.
    pub(crate) came_before: Timestamp,
}

impl ForwardId {
    fn next() -> Self {
        let FillId { process, sequence } = FillId::next();
        Self(XxHash3_64::oneshot_with_seed(sequence, &process.to_le_bytes()))
    }

    /// `None` for what is none.
    pub(crate) fn read(word: &str) -> Option<Self> {
        forward_id(word).map(Self)
    }

    pub(crate) fn digits(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl KnownForward {
    /// A new one.
    pub(crate) fn next(relieves: Option<ForwardId>) -> Self {
        Self { id: ForwardId::next(), relieves }
    }

    /// Whether its end is that of the waiting for `id`.
    pub(crate) fn ends(&self, id: ForwardId) -> bool {
        self.id == id || self.relieves == Some(id)
    }

    pub(crate) fn is_relief(&self) -> bool {
        self.relieves.is_some()
    }
}

impl ToldCause {
    /// `None` where it says nothing of the origin: others may do better.
    pub(crate) fn of_error(error: &OriginError) -> Option<Self> {
        match error.kind() {
            OriginErrorKind::Unreachable | OriginErrorKind::TimedOut | OriginErrorKind::InvalidResponse => {
                Some(Self::NoAnswer(error.reason()))
            }
            OriginErrorKind::Overloaded | OriginErrorKind::Request => None,
        }
    }

    fn read(word: &str) -> Option<Self> {
        match word.parse() {
            Ok(status) => (500..=599).contains(&status).then_some(Self::Status(status)),
            Err(_) => Self::of_error(&OriginError::elsewhere(word)?),
        }
    }

    fn word(self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::NoAnswer(error_type) => error_type.to_owned(),
        }
    }

    /// What it means to a request that waited.
    pub(crate) fn means(self) -> (FailureCause, How) {
        let error = match self {
            Self::Status(_) => None,
            Self::NoAnswer(error_type) => OriginError::elsewhere(error_type),
        };
        match (self, error) {
            (_, Some(error)) => (FailureCause::of_error(&error), How::Error(Arc::new(error))),
            (Self::Status(status), None) => (FailureCause::of_status(status), How::Status(status)),
            (Self::NoAnswer(_), None) => {
                unreachable!("it was read, or made of an error that others are told")
            }
        }
    }
}

impl ToldFailure {
    /// As the reason of a note.
    pub(crate) fn to_reason(self) -> Option<String> {
        let KnownForward { id, relieves } = self.forward;
        let relieves = relieves.map(|relieved| relieved.0);
        Failure { cause: &self.cause.word(), forward: id.0, relieves }.to_reason()
    }

    /// `None` for what only newer versions understand, and for what says nothing.
    pub(crate) fn of_reason(reason: &[u8]) -> Option<Self> {
        let Failure { cause, forward, relieves } = Failure::of_reason(reason)?;
        let forward = KnownForward { id: ForwardId(forward), relieves: relieves.map(ForwardId) };
        Some(Self { forward, cause: ToldCause::read(cause)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_is_read() {
        let first = KnownForward::next(None);
        let relief = KnownForward::next(Some(first.id));
        assert!(
            first.ends(first.id) && relief.ends(first.id) && relief.ends(relief.id) && !first.ends(relief.id)
        );
        let told = OriginError::REASONS.iter().filter_map(|reason| OriginError::elsewhere(reason));
        let causes = told.map(|error| ToldCause::of_error(&error).expect("it says something of the origin"));
        for cause in causes.chain([ToldCause::Status(500), ToldCause::Status(599)]) {
            for forward in [first, relief] {
                let failure = ToldFailure { forward, cause };
                let reason = failure.to_reason().expect("it fits");
                assert_eq!(ToldFailure::of_reason(reason.as_bytes()), Some(failure), "{reason}");
                let (meaning, how) = cause.means();
                assert_eq!(matches!(how, How::Status(_)), meaning.status.is_some(), "{reason}");
            }
        }
        for cause in ["499", "600", "queue-timeout", "something-new"] {
            let reason = Failure { cause, forward: 1, relieves: None }.to_reason().expect("it fits");
            assert_eq!(ToldFailure::of_reason(reason.as_bytes()), None, "{reason}");
        }
    }
}
