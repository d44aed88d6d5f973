//! What a site refers to: an origin with its policy, its limits and its connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use store::Budget;
use tokio::time::Instant;

use super::admission::{Admission, Entrance, Permit};
use super::endpoint::{Connection, Eligible, Endpoint, Kept};
use super::error::OriginError;
use super::exchange::{Exchange, Failure, Processing};
use super::http1;
use super::http2;
use super::interim::Interim;
use super::request::{OriginRequest, RequestHead};
use super::request_body::{Arrival, RequestBody};
use super::response::OriginResponse;
use super::stats::{Counters, OriginStats};
use super::timing::{HeadWait, Limits};
use crate::client::Client;
use crate::config::{OriginConfig, OriginTimeouts};

/// An origin with its policy and its limits. Kept by whoever uses it.
pub struct Upstream {
    pub(super) config: OriginConfig,
    /// The only one.
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) admission: Arc<Admission>,
    pub(super) memory: Option<Arc<Budget>>,
    pub(super) counters: Arc<Counters>,
}

/// As much of a request's content is waited for before the request takes a place among those in flight: most forms and calls
/// of an API are less. What takes longer, or is more, goes at the pace of its client.
const ARRIVED_BYTES_MAX: usize = 64 * 1024;
/// Long enough for content that is sent at once, over any distance; short enough for calls that go back and forth.
const ARRIVAL_MAX: Duration = Duration::from_millis(250);

impl Upstream {
    /// Counts of this origin.
    #[must_use]
    pub fn stats(&self) -> OriginStats {
        self.counters.snapshot()
    }

    /// Sends a request and waits for the response head; interim responses are handed over as they come.
    /// Given up when dropped. The response is on the heap, because many hands pass it on.
    ///
    /// # Errors
    /// There is no response, or none in time.
    pub fn send<'a>(
        &'a self,
        request: OriginRequest,
        timeouts: &OriginTimeouts,
        interim: &'a mut (dyn FnMut(Interim) + Send),
    ) -> impl Future<Output = Result<Box<OriginResponse>, OriginError>> + Send + use<'a> {
        let now = Instant::now();
        let mut waiting = HeadWait::new(Limits::new(timeouts, now), interim);
        let client = request.client;
        // Here, so that the future has no room for the request as it came.
        let request = RequestHead::new(&self.config, request).map(|(head, body)| (Box::new(head), body));
        async move {
            let sent = match request {
                Ok((head, body)) => self.send_admitted(&head, body, client, &mut waiting).await,
                Err(error) => Err(error),
            };
            sent.inspect_err(|error| self.counters.count_error(error))
        }
    }

    async fn send_admitted(
        &self,
        head: &RequestHead,
        mut body: RequestBody,
        client: Option<Client>,
        waiting: &mut HeadWait<'_>,
    ) -> Result<Box<OriginResponse>, OriginError> {
        let arrival = body.arrive(ARRIVED_BYTES_MAX, ARRIVAL_MAX, self.memory.as_ref()).await?;
        let entrance = match arrival {
            Arrival::Partial => Entrance::Upload,
            Arrival::Whole if head.upgrade.is_some() => Entrance::Tunnel,
            Arrival::Whole => Entrance::Permit,
        };
        let permit = self.admission.enter(entrance, client, waiting.limits.total_at).await?;
        let began = Instant::now();
        self.counters.requests.fetch_add(1, Relaxed);
        let replay = body.replay();
        let (mut failure, kept) = match self.attempt(Eligible::Any(began), head, body, waiting, &permit).await
        {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let Some(body) = retry_body(&mut failure, kept, &head.method, replay) else {
            return Err(failure.error);
        };
        self.counters.retries.fetch_add(1, Relaxed);
        let again = Box::pin(self.attempt(Eligible::OpenedSince(began), head, body, waiting, &permit)).await;
        again.map_err(|(failure, _)| failure.error)
    }

    /// Resolves when a request waits for a place that one of this client takes away from it.
    pub(crate) async fn permit_wanted(&self, client: Option<Client>) {
        self.admission.permit_wanted(client).await;
    }

    /// To be called after the end of an exchange because of [`Upstream::permit_wanted`]: another one may have to end too.
    pub(crate) fn permit_given_up(&self, client: Option<Client>) {
        self.admission.pass_on(client);
    }

    async fn attempt(
        &self,
        eligible: Eligible,
        head: &RequestHead,
        body: RequestBody,
        waiting: &mut HeadWait<'_>,
        permit: &Arc<Permit>,
    ) -> Result<Box<OriginResponse>, (Failure, Kept)> {
        let (connection, kept) = match self.endpoint.acquire(eligible, head, waiting.limits).await {
            Ok(acquired) => acquired,
            Err(error) => {
                let failure = Failure { error, body: None, processing: Processing::Possible };
                return Err((failure, Kept::No));
            }
        };
        let exchange = Exchange::new(Arc::clone(self.endpoint.pool()), waiting.limits, Arc::clone(permit));
        let answer = match connection {
            Connection::Http1(connection) => http1::exchange(connection, head, body, waiting, exchange).await,
            Connection::Http2(slot) => Box::pin(http2::exchange(slot, head, body, waiting, exchange)).await,
        };
        answer.map_err(|failure| (failure, kept))
    }
}

/// The body to send again, when a second attempt is allowed: the request was certainly not processed, or a
/// kept connection died under a request that may be repeated.
//= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
fn retry_body(
    failure: &mut Failure,
    kept: Kept,
    method: &http::Method,
    replay: Option<RequestBody>,
) -> Option<RequestBody> {
    if failure.error != OriginError::ClosedBeforeResponse {
        return None;
    }
    match (failure.processing, kept) {
        (Processing::Never, _) => failure.body.take().or(replay),
        //= RFC 10008 section 2: QUERY is safe and idempotent
        (Processing::Possible, Kept::Yes) if method.is_idempotent() || method == "QUERY" => replay,
        (Processing::Possible, _) => None,
    }
}
