//! Upstreams: an origin with its servers, its policy, its limits and its connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use caching::explain::Finding;
use message::client::Client;
use message::explain_record::{Record, note};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use store::Budget;
use tokio::time::{Instant, sleep};

use super::admission::{Admission, Entrance, Permit};
use super::body::Exchange;
use super::circuit::{Circuit, Probe};
use super::ejection::Verdict;
use super::endpoint::{Connection, Eligible, Endpoint};
use super::error::OriginError;
use super::request::{OriginRequest, RequestHead, accepted};
use super::request_body::{Arrival, RequestBody};
use super::response::{Failure, Kept, OriginResponse, Processing};
use super::retry::{Anew, Cause, Elsewhere, Failed, Next, Repeatable, Replay, RetryBudget, next};
use super::servers::{Server, Servers};
use super::stats::{BreakerStats, Counters, OriginStats, Working};
use super::timing::{Awaited, HeadWait, Interim, Limits};
use super::{http1_exchange, http2_exchange};
use crate::settings::{OriginConfig, OriginTimeouts};

/// An origin with its policy and its limits. It lives as long as anything uses it.
pub struct Upstream {
    pub(super) config: OriginConfig,
    pub(super) servers: Arc<Servers>,
    pub(super) budget: Mutex<RetryBudget>,
    pub(super) circuit: Option<Circuit>,
    pub(super) admission: Admission,
    pub(super) memory: Option<Arc<Budget>>,
    pub(super) counters: Arc<Counters>,
}

/// The server that answered a request, or that was tried last, for logs and traces, which are written in a different place.
#[derive(Debug, Default)]
pub struct Tried(Mutex<Option<Arc<str>>>);

impl Tried {
    /// Returns the URL of the server, unless none was tried.
    pub fn last(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    /// Records that the request goes to this server.
    fn note(&self, server: &Arc<str>) {
        *self.0.lock() = Some(Arc::clone(server));
    }

    /// Forgets the server, because the request is sent anew and may not reach any server.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}

/// Maximum request content, in bytes, that is awaited before the request counts as in flight: most forms and API calls are smaller.
/// Larger or slower content is forwarded at the pace of its client.
const ARRIVED_BYTES_MAX: usize = 64 * 1024;
/// Maximum wait for this content: long enough for content that is sent without a pause, over any distance; short enough for streaming
/// calls in both directions.
const ARRIVAL_MAX: Duration = Duration::from_millis(250);

/// Path of a request from server to server.
struct Course {
    key: u64,
    began: Instant,
    server: usize,
    /// Servers tried so far, the present one included.
    tried: SmallVec<[usize; 4]>,
    eligible: Eligible,
    /// The latest pause after a refusal.
    pause: Duration,
}

/// Pause before a refused request is sent again: this long after the first refusal, doubled after each further one.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(160);

impl Course {
    fn turn_to(&mut self, server: usize, now: Instant) {
        self.server = server;
        self.tried.push(server);
        self.eligible = Eligible::Any(now);
    }

    /// Returns whether the same server may be tried again. A refused request may be retried for as long as a request may wait for a
    /// connection.
    fn anew(&self, cause: Cause, limits: Limits, now: Instant) -> Anew {
        match self.eligible {
            _ if cause == Cause::Refused => {
                match now.saturating_duration_since(self.began) < limits.connect {
                    true => Anew::Free,
                    false => Anew::Taken,
                }
            }
            Eligible::Any(_) => Anew::Free,
            Eligible::OpenedSince(_) => Anew::Taken,
        }
    }

    /// Waits before the next attempt at a server that refused one.
    async fn pause(&mut self) {
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        sleep(self.pause).await;
        self.eligible = Eligible::Any(Instant::now());
    }
}

impl Upstream {
    /// Returns the counts of this origin.
    #[must_use]
    pub fn stats(&self) -> OriginStats {
        let opened = self.counters.breaker_opened.load(Relaxed);
        let breaker = self.circuit.as_ref().map(|circuit| BreakerStats { state: circuit.state(), opened });
        OriginStats { breaker, servers: self.servers.stats(), ..self.counters.snapshot() }
    }

    /// Sends a request and waits for the response head; interim responses are passed on as they arrive. Dropping the future cancels
    /// the request. The response is on the heap, because it is moved many times. `tried` records the server that gets the request.
    ///
    /// # Errors
    /// If no response arrives, or none in time.
    pub fn send<'a>(
        &'a self,
        mut request: OriginRequest,
        timeouts: &OriginTimeouts,
        interim: &'a mut (dyn FnMut(Interim) + Send),
        tried: Option<&'a Tried>,
    ) -> impl Future<Output = Result<Box<OriginResponse>, OriginError>> + Send + use<'a> {
        let now = Instant::now();
        let mut waiting =
            HeadWait::new(Limits::new(timeouts, self.config.interim_responses_max, now), interim);
        let probe = request.probe.take();
        // This call is outside the async block, so that the future doesn't have to store the original request.
        let request = accepted(&self.config, request);
        async move {
            let sent = match request {
                Ok((request, body)) => self.send_guarded((&request, body), probe, tried, &mut waiting).await,
                Err(error) => Err(error),
            };
            sent.inspect_err(|error| self.counters.count_error(error))
        }
    }

    /// Applies the circuit breaker around admission and retries: a refused request takes no permit, and a retried request counts once.
    /// A probe begins when the content has arrived, because a slow client must not occupy a probe slot.
    async fn send_guarded(
        &self,
        (request, mut body): (&OriginRequest, RequestBody),
        probe: Option<Probe>,
        tried: Option<&Tried>,
        waiting: &mut HeadWait<'_>,
    ) -> Result<Box<OriginResponse>, OriginError> {
        let circuit = self.circuit.as_ref();
        if probe.is_none() {
            circuit.map_or(Ok(()), Circuit::refuse_at_once)?;
        }
        let entrance = self.entrance(request, &mut body).await?;
        let admit = |circuit: &Circuit| match probe {
            Some(Probe(permit)) => Ok(permit),
            None => circuit.admit(entrance, request.client),
        };
        let admitted = circuit.map(|circuit| Ok((circuit, admit(circuit)?))).transpose()?;
        let sent = self.send_admitted((request, body), entrance, tried, waiting).await;
        if let Some((circuit, permit)) = admitted {
            let answered = sent.as_ref().map(|response| response.status.as_u16());
            if let Some(time) = circuit.report(permit, answered, waiting.awaited) {
                self.counters.breaker_opened.fetch_add(1, Relaxed);
                tracing::warn!(origin = %self.config.name, ?time, "the circuit breaker of an origin is open");
            }
        }
        sent
    }

    /// Admits the request, picks a server and makes the attempt. Repeats the attempt as its outcome allows.
    async fn send_admitted(
        &self,
        (request, mut body): (&OriginRequest, RequestBody),
        entrance: Entrance,
        tried: Option<&Tried>,
        waiting: &mut HeadWait<'_>,
    ) -> Result<Box<OriginResponse>, OriginError> {
        let permit = self
            .admission
            .enter(entrance, request.client, request.timeline.as_ref(), waiting.limits.total_at)
            .await?;
        let now = Instant::now();
        self.counters.requests.fetch_add(1, Relaxed);
        let mut course = self.begin(request.key, now, request.record.as_ref());
        loop {
            let endpoint = &*self.servers.list()[course.server].endpoint;
            tried.iter().for_each(|tried| tried.note(&endpoint.label));
            let head = RequestHead::new(&self.config, request, &body);
            let way = (course.eligible, Some(&permit));
            let failed = match attempt(endpoint, way, &head, body, waiting).await {
                Ok(mut response) => {
                    self.servers.note_answer((course.server, waiting.awaited), &mut response);
                    return Ok(response);
                }
                Err(failed) => *failed,
            };
            let method = Repeatable::of(&request.method);
            let (next, again) =
                self.after(failed, (method, waiting), &mut course, request.record.as_ref())?;
            self.counters.retries.fetch_add(1, Relaxed);
            body = again;
            if next == Next::Later {
                // On the heap, so that the future stays small: most requests are never refused.
                Box::pin(course.pause()).await;
            }
        }
    }

    /// Counts a response that the gateway could not use. It does not affect ejection or the breaker: the cause is probably the URL,
    /// not the server, and clients choose URLs.
    pub fn count_unusable(&self, error: &OriginError, tried: Option<&str>) {
        self.counters.count_error(error);
        let is_tried = |server: &&Server| tried == Some(&*server.endpoint.label);
        if let Some(server) = self.servers.list().iter().find(is_tried) {
            server.endpoint.known.work.count_failure(error);
        }
    }

    /// Picks the first server.
    fn begin(&self, key: u64, now: Instant, record: Option<&Arc<Record>>) -> Course {
        let server =
            self.servers.pick(key, &[], now).expect("one takes requests, as the configuration demands");
        self.servers.note_pick(server, now, record);
        if self.servers.list().len() > 1 {
            self.budget.lock().count_request(now);
        }
        Course {
            key,
            began: now,
            server,
            tried: smallvec![server],
            eligible: Eligible::Any(now),
            pause: Duration::ZERO,
        }
    }

    /// Records the failure of an attempt for its server, and returns the next step of the request with its body.
    ///
    /// # Errors
    /// The error of the attempt, if the request isn't sent again.
    fn after(
        &self,
        (Failure { error, body, processing }, kept): (Failure, Kept),
        (method, waiting): (Repeatable, &HeadWait<'_>),
        course: &mut Course,
        record: Option<&Arc<Record>>,
    ) -> Result<(Next, RequestBody), OriginError> {
        let now = Instant::now();
        self.servers.list()[course.server].endpoint.known.work.count_failure(&error);
        let replay = if body.is_some() { Replay::Whole } else { Replay::Gone };
        let failed = Failed { cause: Cause::of(&error), processing, kept, method, body: replay };
        let verdict = match waiting.awaited {
            Awaited::Client => Verdict::Silent,
            Awaited::Origin => Verdict::of(&failed, course.tried.len()),
        };
        self.servers.note_verdict((course.server, verdict), &error, now);
        let is_last = course.tried.len() >= self.config.retries.attempts_max;
        let other = if is_last { None } else { self.servers.pick(course.key, &course.tried, now) };
        let elsewhere = match other {
            None => Elsewhere::Closed,
            Some(_) if self.budget.lock().has_room(&self.config.retries, now) => Elsewhere::Free,
            Some(_) => Elsewhere::OverBudget,
        };
        let anew = course.anew(failed.cause, waiting.limits, now);
        match (next(failed, elsewhere, anew), other, body) {
            (next @ Next::Elsewhere, Some(server), Some(body)) => {
                self.budget.lock().count_retry(now);
                course.turn_to(server, now);
                note(record, || self.retried(&error, server));
                Ok((next, body))
            }
            (next @ Next::Anew, _, Some(body)) => {
                course.eligible = Eligible::OpenedSince(course.began);
                Ok((next, body))
            }
            (next @ Next::Later, _, Some(body)) => Ok((next, body)),
            (Next::FailOverBudget, ..) => {
                self.counters.retries_over_budget.fetch_add(1, Relaxed);
                Err(error)
            }
            _ => Err(error),
        }
    }

    fn retried(&self, error: &OriginError, server: usize) -> Finding {
        let server = &self.servers.list()[server].endpoint.label;
        Finding::new("retry", format!("{error}: the request goes to {server}"), "RFC 9110 section 9.2.2")
    }

    /// Waits for the request content up to the limits, and returns the line that the request joins.
    async fn entrance(
        &self,
        request: &OriginRequest,
        body: &mut RequestBody,
    ) -> Result<Entrance, OriginError> {
        let arrival = body.arrive(ARRIVED_BYTES_MAX, ARRIVAL_MAX, self.memory.as_ref()).await?;
        Ok(match arrival {
            Arrival::Partial => Entrance::Upload,
            Arrival::Whole if request.upgrade.is_some() => Entrance::Tunnel,
            Arrival::Whole => Entrance::Permit,
        })
    }

    /// Returns the circuit breaker if it isn't closed: the origin then counts as failed, and gets only probes.
    pub fn open_circuit(&self) -> Option<&Circuit> {
        self.circuit.as_ref().filter(|circuit| !circuit.is_closed())
    }

    /// Resolves when a queued request needs a permit that this client holds.
    pub async fn permit_wanted(&self, client: Option<Client>) {
        self.admission.permit_wanted(client).await;
    }

    /// Wakes the next holder of a permit. Call it after an exchange has ended because of [`Upstream::permit_wanted`]: another exchange
    /// may have to end too.
    pub fn permit_given_up(&self, client: Option<Client>) {
        self.admission.pass_on(client);
    }
}

/// Sends a request on a connection, and waits for the response head. The permit is held until the response body has ended. Health
/// checks have no permit, and aren't counted.
///
/// # Errors
/// If no response arrives. The failure contains the whole request body, if it is still available.
pub(super) async fn attempt(
    endpoint: &Endpoint,
    (eligible, permit): (Eligible, Option<&Arc<Permit>>),
    head: &RequestHead<'_>,
    mut body: RequestBody,
    waiting: &mut HeadWait<'_>,
) -> Result<Box<OriginResponse>, Box<(Failure, Kept)>> {
    let failed = |failure: Failure, kept| {
        let error = endpoint.failure_of(head, failure.error);
        Box::new((Failure { error, ..failure }, kept))
    };
    let replay = body.replay();
    waiting.awaited = Awaited::Origin;
    let working = permit.map(|_| Working::begin(&endpoint.known.work));
    let (connection, kept) = match endpoint.acquire(eligible, head, waiting.limits).await {
        Ok(acquired) => acquired,
        Err(error) => {
            let failure = Failure { error, body: Some(body), processing: Processing::Never };
            return Err(failed(failure, Kept::No));
        }
    };
    let (pool, permit) = (Arc::clone(&endpoint.pool), permit.cloned());
    let exchange = Exchange { pool, limits: waiting.limits, permit, working, watch: None };
    let answer = match connection {
        Connection::Http1(connection) => http1_exchange::run(connection, head, body, waiting, exchange).await,
        Connection::Http2(slot) => Box::pin(http2_exchange::run(slot, head, body, waiting, exchange)).await,
    };
    answer.map_err(|failure| failed(Failure { body: failure.body.or(replay), ..failure }, kept))
}
