//! Origin servers: connections to them, requests on those, and what comes back.
//!
//! Decides how an origin is reached, when a connection is used again, when a request may be sent twice, and
//! whether a response body is complete. Never decides what is forwarded, stored or answered to clients.
//!
//! [`Origins`] is one per process and shared by all workers. [`Origin::send`] runs on the caller's runtime;
//! a connection gets its events from the runtime that opened it and may be borrowed by others. Limits are global.

mod admission;
mod binding;
mod body;
pub(crate) mod call;
mod connect;
mod driver;
mod error;
mod exchange;
mod frame;
mod http1;
mod http2;
mod interim;
mod limits;
mod line;
mod parts;
mod pool;
mod request;
mod request_body;
mod resolve;
mod response;
mod stats;
#[cfg(test)]
mod tests;
mod timing;
pub mod tls;
mod upgrade;

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use store::Budget;
use tokio::runtime::Handle;
use tokio::time::Instant;

use self::admission::{Admission, Entrance, Permit};
use self::binding::Binding;
use self::connect::{Connector, Negotiated, Offer};
use self::exchange::{Exchange, Failure, Processing};
use self::http1::Http1Connection;
use self::http2::{Http2Connection, StreamSlot};
use self::pool::Pool;
use self::request::RequestHead;
use self::request_body::Arrival;
use self::resolve::{Resolver, system_settings};
use self::stats::Counters;
use self::timing::{HeadWait, Limits};
use crate::client::Client;
use crate::config::{OriginConfig, OriginTimeouts};

pub use self::admission::Pacing;
pub use self::body::OriginBody;
pub use self::error::{OriginError, OriginErrorKind};
pub use self::frame::{BodyFrame, BodyFraming};
pub use self::interim::Interim;
pub(crate) use self::limits::{FIELDS_MAX, HEAD_BYTES_MAX, UNCHARGED_PIECE_BYTES_MAX};
pub use self::request::OriginRequest;
pub(crate) use self::request_body::Room;
pub use self::request_body::{
    ChannelBody, Gathered, RequestBody, RequestBodyClosed, RequestBodyIncomplete, RequestBodySender,
};
pub use self::response::OriginResponse;
pub use self::stats::OriginStats;
pub use self::upgrade::{OriginTunnel, UpgradeHandle};

/// All origins of the process.
pub struct Origins {
    resolver: Arc<Resolver>,
    memory: Option<Arc<Budget>>,
    /// By name: a start with thousands would search through all of them for each.
    known: Mutex<HashMap<String, Vec<Weak<Origin>>>>,
    /// By origin name, so that counts go on over a reload that changes an origin.
    counters: Mutex<HashMap<String, Arc<Counters>>>,
}

/// One origin: its connections and limits. Kept by whoever uses it.
pub struct Origin {
    config: OriginConfig,
    connector: Connector,
    pool: Arc<Pool>,
    admission: Admission,
    /// Whether ALPN last chose HTTP/1: then a burst of requests needs as many connections.
    chose_http1: AtomicBool,
    memory: Option<Arc<Budget>>,
    counters: Arc<Counters>,
}

impl Origins {
    /// Names are looked up on the background runtime, which must outlive the workers.
    #[must_use]
    pub fn new(background: Handle) -> Self {
        Self::with_resolver(Resolver::new(system_settings(), background))
    }

    fn with_resolver(resolver: Arc<Resolver>) -> Self {
        Self { resolver, memory: None, known: Mutex::default(), counters: Mutex::default() }
    }

    /// Charges what is read of large bodies, or waited for of requests, to a budget.
    #[must_use]
    pub fn charged_to(self, budget: &Arc<Budget>) -> Self {
        Self { memory: Some(Arc::clone(budget)), ..self }
    }

    /// The origin of a configuration. While somebody still uses the origin of an equal configuration, it is
    /// that one with its connections; an origin that nobody uses any more is gone.
    pub fn origin(&self, config: &OriginConfig) -> Arc<Origin> {
        let mut known = self.known.lock();
        let known = known.entry(config.name.clone()).or_default();
        known.retain(|origin| origin.strong_count() > 0);
        if let Some(origin) = known.iter().filter_map(Weak::upgrade).find(|origin| origin.config == *config) {
            return origin;
        }
        let counters = Arc::clone(self.counters.lock().entry(config.name.clone()).or_default());
        let origin =
            Arc::new(Origin::new(config.clone(), Arc::clone(&self.resolver), self.memory.clone(), counters));
        known.push(Arc::downgrade(&origin));
        origin
    }

    /// Forgets the origins that nobody uses any more.
    pub(crate) fn forget_unused(&self) {
        self.known.lock().retain(|_, known| known.iter().any(|origin| origin.strong_count() > 0));
    }

    /// Counts by origin name.
    pub fn stats(&self) -> Vec<(String, OriginStats)> {
        let mut stats: Vec<_> =
            self.counters.lock().iter().map(|(name, counters)| (name.clone(), counters.snapshot())).collect();
        stats.sort_by(|(a, _), (b, _)| a.cmp(b));
        stats
    }
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

impl Origin {
    fn new(
        config: OriginConfig,
        resolver: Arc<Resolver>,
        memory: Option<Arc<Budget>>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            connector: Connector::new(&config, resolver),
            pool: Arc::new(Pool::new(config.pool, Arc::clone(&counters))),
            admission: Admission::new(config.pool, &counters),
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

    /// To be called after the end of an exchange because of [`Origin::place_wanted`]: another one may have to end too.
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
        match (self.connector.offer(self.config.protocol), &head.upgrade) {
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
