//! One attempt to get an answer from an endpoint.

use std::sync::Arc;

use super::admission::Permit;
use super::endpoint::{Connection, Eligible, Endpoint};
use super::exchange::{Exchange, Failure, Kept, Processing};
use super::request::RequestHead;
use super::request_body::RequestBody;
use super::response::OriginResponse;
use super::stats::{Work, Working};
use super::timing::{Awaited, HeadWait};
use super::{http1_exchange, http2_exchange};

/// Server, admission and counters of one attempt.
pub(super) struct Attempt<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) eligible: Eligible,
    /// Held until the response body has ended; none for checks.
    pub(super) permit: Option<&'a Arc<Permit>>,
    /// Counts the attempt.
    pub(super) work: &'a Arc<Work>,
}

/// An attempt without a response.
pub(super) struct FailedAttempt {
    /// With the whole request body, if it is still at hand.
    pub(super) failure: Failure,
    pub(super) kept: Kept,
}

impl Attempt<'_> {
    /// Sends the request on a connection, and waits for the response head.
    pub(super) async fn run(
        &self,
        head: &RequestHead<'_>,
        mut body: RequestBody,
        waiting: &mut HeadWait<'_>,
    ) -> Result<Box<OriginResponse>, Box<FailedAttempt>> {
        let replay = body.replay();
        waiting.awaited = Awaited::Origin;
        let working = Working::begin(self.work);
        let (connection, kept) = match self.endpoint.acquire(self.eligible, head, waiting.limits).await {
            Ok(acquired) => acquired,
            Err(error) => {
                let failure = Failure { error, body: Some(body), processing: Processing::Never };
                return Err(self.failed(failure, Kept::No, head));
            }
        };
        let pool = Arc::clone(&self.endpoint.pool);
        let exchange = Exchange::new(pool, waiting.limits, self.permit.cloned(), working);
        let answer = match connection {
            Connection::Http1(connection) => {
                http1_exchange::run(connection, head, body, waiting, exchange).await
            }
            Connection::Http2(slot) => {
                Box::pin(http2_exchange::run(slot, head, body, waiting, exchange)).await
            }
        };
        answer.map_err(|failure| {
            let body = failure.body.or(replay);
            self.failed(Failure { body, ..failure }, kept, head)
        })
    }

    fn failed(&self, failure: Failure, kept: Kept, head: &RequestHead<'_>) -> Box<FailedAttempt> {
        let error = self.endpoint.failure_of(head, failure.error);
        Box::new(FailedAttempt { failure: Failure { error, ..failure }, kept })
    }
}
