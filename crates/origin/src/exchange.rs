//! State of one exchange, from its place in the queue to the end of the response body.

use std::fmt;
use std::sync::Arc;

use super::admission::{Held, Pacing, Permit};
use super::error::OriginError;
use super::pool::Pool;
use super::request::KeepAlive;
use super::request_body::RequestBody;
use super::stats::Working;
use super::timing::Limits;

/// Resources of an exchange, held until the response body has ended.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) pool: Arc<Pool>,
    pub(super) limits: Limits,
    permit: Option<Arc<Permit>>,
    working: Working,
    pub(super) watch: Option<Watch>,
}

/// Callback for the end of a response's content.
pub(super) struct Watch {
    tell: Box<dyn Fn(Ending) + Send + Sync>,
    ending: Ending,
}

/// End of a response's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All of it came, or nobody wanted the rest.
    Fine,
    /// The origin broke it off, or framed it wrongly.
    Broken,
    /// The rest did not come in time.
    Late,
}

impl Exchange {
    pub(super) fn new(
        pool: Arc<Pool>,
        limits: Limits,
        permit: Option<Arc<Permit>>,
        working: Working,
    ) -> Self {
        Self { pool, limits, permit, working, watch: None }
    }

    /// Moves the exchange to the deliveries, because the client does not keep up with the response.
    pub(super) fn wait_for_client(&self) -> Pacing {
        self.permit.as_ref().map_or(Pacing::Allowed, |permit| permit.wait_for_client())
    }

    /// Ends the exchange, and returns what its tunnel holds.
    pub(super) fn into_tunnel(self) -> Option<(Held, Working)> {
        Some((self.permit?.take_tunnel()?, self.working))
    }

    pub(super) fn keep_alive(&self) -> KeepAlive {
        self.pool.keep_alive()
    }
}

impl Watch {
    pub(super) fn new(tell: impl Fn(Ending) + Send + Sync + 'static) -> Self {
        Self { tell: Box::new(tell), ending: Ending::Fine }
    }

    pub(super) fn tell(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        (self.tell)(self.ending);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// An attempt without a response head.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: OriginError,
    /// The request body, if nothing of it was sent.
    pub(super) body: Option<RequestBody>,
    pub(super) processing: Processing,
}

/// Whether the origin may have acted on a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processing {
    /// Never sent, or not processed according to the origin (RFC 9113 section 8.7).
    Never,
    Possible,
}

/// Whether a connection had carried a request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    No,
    Yes,
}
