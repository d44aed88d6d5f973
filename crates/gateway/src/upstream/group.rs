//! What a site refers to: an origin with its policy, its limits and its connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use store::Budget;
use tokio::time::Instant;

use super::admission::{Admission, Entrance, Permit};
use super::binding::Binding;
use super::connect::{Connector, Negotiated, Offer};
use super::error::OriginError;
use super::exchange::{Exchange, Failure, Processing};
use super::http1::{self, Http1Connection};
use super::http2::{self, Http2Connection, StreamSlot};
use super::interim::Interim;
use super::pool::Pool;
use super::request::{OriginRequest, RequestHead};
use super::request_body::{Arrival, RequestBody};
use super::resolve::Resolver;
use super::response::OriginResponse;
use super::stats::{Counters, OriginStats};
use super::timing::{HeadWait, Limits};
use crate::client::Client;
use crate::config::{OriginConfig, OriginTimeouts};

/// One origin: its connections and limits. Kept by whoever uses it.
pub struct Upstream {
    pub(super) config: OriginConfig,
    connector: Connector,
    pool: Arc<Pool>,
    admission: Admission,
    /// Whether ALPN last chose HTTP/1: then a burst of requests needs as many connections.
    chose_http1: AtomicBool,
    memory: Option<Arc<Budget>>,
    counters: Arc<Counters>,
}

/// As much of a request's content is waited for before the request takes a place among those in flight: most forms and calls
/// of an API are less. What takes longer, or is more, goes at the pace of its client.
const ARRIVED_BYTES_MAX: usize = 64 * 1024;
/// Long enough for content that is sent at once, over any distance; short enough for calls that go back and forth.
const ARRIVAL_MAX: Duration = Duration::from_millis(250);

/// Which connections an attempt may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Kept ones first. The time is now.
    Any(Instant),
    /// One opened since the first attempt began: the kept one turned out dead, and others may be too.
    Fresh(Instant),
}

/// Whether a connection had carried a request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    No,
    Yes,
}

/// Who may use a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    /// The exchange that it is opened for.
    One,
    /// Others beside it, or after it.
    Many,
}

/// A connection ready for the request.
enum Connection {
    Http1(Http1Connection),
    Http2(StreamSlot),
}

impl Upstream {
    pub(super) fn new(
        config: OriginConfig,
        resolver: Arc<Resolver>,
        memory: Option<Arc<Budget>>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            connector: Connector::new(&config.endpoint, resolver),
            pool: Arc::new(Pool::new(config.endpoint.pool, Arc::clone(&counters))),
            admission: Admission::new(config.admission, &counters),
            chose_http1: AtomicBool::new(false),
            memory,
            counters,
            config,
        }
    }

    /// The configuration that the origin was made from.
    #[must_use]
    pub fn config(&self) -> &OriginConfig {
        &self.config
    }

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
        let (mut failure, kept) = match self.attempt(Attempt::Any(began), head, body, waiting, &permit).await
        {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let Some(body) = retry_body(&mut failure, kept, &head.method, replay) else {
            return Err(failure.error);
        };
        self.counters.retries.fetch_add(1, Relaxed);
        let again = Box::pin(self.attempt(Attempt::Fresh(began), head, body, waiting, &permit)).await;
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
        attempt: Attempt,
        head: &RequestHead,
        body: RequestBody,
        waiting: &mut HeadWait<'_>,
        permit: &Arc<Permit>,
    ) -> Result<Box<OriginResponse>, (Failure, Kept)> {
        let (connection, kept) = match self.acquire(attempt, head, waiting.limits).await {
            Ok(acquired) => acquired,
            Err(error) => {
                let failure = Failure { error, body: None, processing: Processing::Possible };
                return Err((failure, Kept::No));
            }
        };
        let exchange = Exchange::new(Arc::clone(&self.pool), waiting.limits, Arc::clone(permit));
        let answer = match connection {
            Connection::Http1(connection) => http1::exchange(connection, head, body, waiting, exchange).await,
            Connection::Http2(slot) => Box::pin(http2::exchange(slot, head, body, waiting, exchange)).await,
        };
        answer.map_err(|failure| (failure, kept))
    }

    async fn acquire(
        &self,
        attempt: Attempt,
        head: &RequestHead,
        limits: Limits,
    ) -> Result<(Connection, Kept), OriginError> {
        let offer = self.offer(head)?;
        if head.binding == Binding::Exchange {
            let alone = async { self.open(offer, Users::One).await };
            return Box::pin(limits.connected(alone)).await;
        }
        if let Some(connection) = self.kept(attempt, offer) {
            return Ok((connection, Kept::Yes));
        }
        // On the heap: most exchanges find a kept connection, and need no room for this.
        Box::pin(limits.connected(self.opened(attempt, offer))).await
    }

    /// A new connection, or one that another request opens meanwhile.
    async fn opened(&self, attempt: Attempt, offer: Offer) -> Result<(Connection, Kept), OriginError> {
        if offer == Offer::Http1 || offer == Offer::Either && self.chose_http1.load(Relaxed) {
            return self.open(offer, Users::Many).await;
        }
        let _opening = self.pool.opening.lock().await;
        match self.kept(attempt, offer) {
            Some(connection) => Ok((connection, Kept::Yes)),
            None => self.open(offer, Users::Many).await,
        }
    }

    fn offer(&self, head: &RequestHead) -> Result<Offer, OriginError> {
        match (self.connector.offer(self.config.endpoint.protocol), &head.upgrade) {
            (offer, None) => Ok(offer),
            (Offer::Http1 | Offer::Either, Some(_)) => Ok(Offer::Http1),
            (Offer::Http2, Some(_)) => Err(OriginError::invalid_request("upgrade over HTTP/2")),
        }
    }

    fn kept(&self, attempt: Attempt, offer: Offer) -> Option<Connection> {
        let opened_since = match attempt {
            Attempt::Any(_) => None,
            Attempt::Fresh(since) => Some(since),
        };
        let shared = if offer == Offer::Http1 { None } else { self.pool.reserve_stream(opened_since) };
        let kept = match (shared, attempt) {
            (Some(slot), _) => Connection::Http2(slot),
            (None, Attempt::Any(now)) if offer != Offer::Http2 => Connection::Http1(self.pool.checkout(now)?),
            (None, _) => return None,
        };
        self.counters.connections_reused.fetch_add(1, Relaxed);
        Some(kept)
    }

    async fn open(&self, offer: Offer, users: Users) -> Result<(Connection, Kept), OriginError> {
        let (stream, negotiated) = self.connector.connect(offer).await?;
        if offer == Offer::Either {
            self.chose_http1.store(negotiated == Negotiated::Http1, Relaxed);
        }
        let connection = match negotiated {
            Negotiated::Http1 => {
                Connection::Http1(Http1Connection::open(stream, self.memory.clone(), &self.counters))
            }
            Negotiated::Http2 => {
                let connection = Http2Connection::open(stream, &self.counters).await?;
                let slot = connection.reserve_first();
                if users == Users::Many {
                    self.pool.share(&connection);
                }
                Connection::Http2(slot)
            }
        };
        Ok((connection, Kept::No))
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
