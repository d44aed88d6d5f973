//! One attempt to get an answer from an endpoint.

use std::sync::Arc;

use super::admission::Permit;
use super::endpoint::{Connection, Eligible, Endpoint};
use super::error::OriginError;
use super::exchange::{Exchange, Failure, Kept, Processing};
use super::request::RequestHead;
use super::request_body::RequestBody;
use super::response::OriginResponse;
use super::stats::{Work, Working};
use super::timing::{Awaited, HeadWait};
use super::{http1, http2};

/// Server, admission and counters of one attempt.
pub(super) struct Attempt<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) eligible: Eligible,
    /// Held until the response body has ended.
    pub(super) permit: &'a Arc<Permit>,
    /// Counts the attempt.
    pub(super) work: &'a Arc<Work>,
}

/// Result of an attempt.
pub(super) enum Outcome {
    Answered(Box<OriginResponse>),
    Failed(Box<FailedAttempt>),
}

/// An attempt without a response.
pub(super) struct FailedAttempt {
    pub(super) error: OriginError,
    /// The whole request body, if it is still at hand.
    pub(super) body: Option<RequestBody>,
    pub(super) processing: Processing,
    pub(super) kept: Kept,
}

impl Attempt<'_> {
    /// Sends the request on a connection, and waits for the response head.
    pub(super) async fn run(
        &self,
        head: &RequestHead<'_>,
        mut body: RequestBody,
        waiting: &mut HeadWait<'_>,
    ) -> Outcome {
        let replay = body.replay();
        waiting.awaited = Awaited::Origin;
        let working = Working::begin(self.work);
        let (connection, kept) = match self.endpoint.acquire(self.eligible, head, waiting.limits).await {
            Ok(acquired) => acquired,
            Err(error) => {
                let error = self.endpoint.failure_of(head, error);
                return failed(Failure { error, body: Some(body), processing: Processing::Never }, Kept::No);
            }
        };
        let pool = Arc::clone(self.endpoint.pool());
        let exchange = Exchange::new(pool, waiting.limits, Arc::clone(self.permit), working);
        let answer = match connection {
            Connection::Http1(connection) => http1::exchange(connection, head, body, waiting, exchange).await,
            Connection::Http2(slot) => Box::pin(http2::exchange(slot, head, body, waiting, exchange)).await,
        };
        match answer {
            Ok(response) => Outcome::Answered(response),
            Err(Failure { error, body, processing }) => {
                let error = self.endpoint.failure_of(head, error);
                failed(Failure { error, body: body.or(replay), processing }, kept)
            }
        }
    }
}

fn failed(failure: Failure, kept: Kept) -> Outcome {
    let Failure { error, body, processing } = failure;
    Outcome::Failed(Box::new(FailedAttempt { error, body, processing, kept }))
}
