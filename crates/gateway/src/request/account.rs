//! One access-log line and one count per request, written after its last byte.

use message::client::address_of;
use message::clock::now;
use message::fields::text;
use message::head::{ClientEnd, OwnedRequest, RequestHead};
use origin::Tried;
use telemetry::{AccessRecord, CacheResult, Method, RequestOutcome, RuleId, SiteId};
use tokio::time::Instant;

use crate::active::ActiveConfig;
use crate::events::{self, Event};
use crate::request::otel;
use crate::request::plan::Plan;
use crate::request::reply::Reply;
use crate::request::respond::{CLIENT_LEFT, Problem};
use crate::routing::LiveSite;
use crate::worker::Worker;

/// Status and byte counts of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) delivered: Delivered,
}

impl Sent {
    pub(crate) fn with_bytes(self, body_bytes: u64, received_bytes: u64, delivered: Delivered) -> Self {
        Self { body_bytes, received_bytes, delivered, ..self }
    }
}

/// Whether a response reached its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    Whole,
    Broken,
}

impl Reply {
    /// Returns the byte counts of a reply whose body is in memory and was sent completely.
    pub(crate) fn sent(&self) -> Sent {
        let body_bytes = self.body.at_hand().map_or(0, |body| body.len() as u64);
        Sent { status: self.status, body_bytes, received_bytes: 0, delivered: Delivered::Whole }
    }
}

/// Counts and logs one request. Returns the time at which the request ended, so that the caller doesn't have to read the clock again.
pub(crate) fn record(worker: &Worker, request: &RequestHead<'_>, reply: &Reply, sent: Sent) -> Instant {
    let (ended, outcome) = count(worker, request.method, reply, sent);
    if let Some(timeline) = request.timeline {
        otel::end(timeline, reply, (&sent, outcome.cache), (ended, &worker.shared.live.load()));
    }
    if worker.access.is_on() {
        log(worker, (request, None), reply, &outcome);
    }
    ended
}

/// A request as its client sent it, which outlives the buffer of its connection. For a forwarded request, the value includes the
/// servers that were tried.
#[derive(Clone, Copy)]
pub(crate) struct LoggedRequest<'a> {
    pub(crate) request: &'a OwnedRequest,
    pub(crate) tried: Option<&'a Tried>,
}

impl<'a> LoggedRequest<'a> {
    pub(crate) fn of(plan: &'a Plan) -> Self {
        Self { request: plan.asked(), tried: Some(&plan.request.tried) }
    }

    /// Creates the record of a request that is answered without a forward.
    pub(crate) fn at_once(request: &'a OwnedRequest) -> Self {
        Self { request, tried: None }
    }
}

/// Counts and logs a request that outlives the buffer of its connection, like [`record`].
pub(crate) fn record_owned(worker: &Worker, asked: LoggedRequest<'_>, reply: &Reply, sent: Sent) -> Instant {
    let LoggedRequest { request, tried } = asked;
    let (ended, outcome) = count(worker, &request.method, reply, sent);
    if let Some(timeline) = &request.timeline {
        otel::end(timeline, reply, (&sent, outcome.cache), (ended, &worker.shared.live.load()));
    }
    if worker.access.is_on() {
        let server = tried.and_then(Tried::last);
        log(worker, (&request.borrow(&request.fields.to_lines()), server.as_deref()), reply, &outcome);
    }
    ended
}

/// Counts and logs a request whose client left before a response was available. The client received no status, so the log has the
/// status that other proxies use for this case.
pub(crate) fn record_left(plan: &Plan, reason: &'static str, received_bytes: u64) {
    record_unanswered(
        plan,
        &Problem::new(CLIENT_LEFT, reason, "the client left before its response began"),
        received_bytes,
    );
}

/// Counts and logs a request whose content exceeded a limit.
pub(crate) fn record_cut(
    worker: &Worker,
    live: &ActiveConfig,
    (site, request): (Option<&LiveSite>, &OwnedRequest),
    reason: &'static str,
) {
    worker.recorder.client_error(reason);
    let Some(site) = site else { return };
    let lines = request.fields.to_lines();
    let client = address_of(&request.borrow(&lines), &live.config.trusted_proxies);
    events::emit(site, &request.path_and_query, &Event::UploadCut { client, reason });
}

fn record_unanswered(plan: &Plan, problem: &Problem, received_bytes: u64) {
    let mut reply = plan.at().failure(problem);
    reply.account.rule = plan.site.rule_metrics(plan.rule);
    let sent = reply.sent().with_bytes(0, received_bytes, Delivered::Broken);
    record_owned(&plan.worker, LoggedRequest::of(plan), &reply, sent);
}

/// A request that waits for its response. If a draining process drops this value before the wait ends, the drain limit is the cause.
pub(crate) struct AwaitedReply<'a> {
    plan: &'a Plan,
    has_ended: bool,
}

impl<'a> AwaitedReply<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self { plan, has_ended: false }
    }

    pub(crate) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for AwaitedReply<'_> {
    fn drop(&mut self) {
        if !self.has_ended && self.plan.worker.is_draining() {
            record_unanswered(
                self.plan,
                &Problem::new(503, "drain-limit", "the drain limit was reached before the response arrived"),
                0,
            );
        }
    }
}

#[inline]
fn count(worker: &Worker, method: &str, reply: &Reply, sent: Sent) -> (Instant, RequestOutcome) {
    let account = &reply.account;
    let ended = Instant::now();
    let duration = ended.saturating_duration_since(account.started);
    let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let cache = match sent.delivered {
        Delivered::Whole => account.result,
        Delivered::Broken => CacheResult::Error,
    };
    let outcome = RequestOutcome {
        site: account.site.as_ref().map_or(SiteId::NONE, |site| site.metrics),
        rule: account.rule,
        method: Method::from_token(method.as_bytes()),
        status: sent.status,
        cache,
        duration_ns,
        body_bytes_sent: sent.body_bytes,
        body_bytes_received: sent.received_bytes,
    };
    worker.recorder.request(&outcome);
    (ended, outcome)
}

fn log(
    worker: &Worker,
    (request, server): (&RequestHead<'_>, Option<&str>),
    reply: &Reply,
    outcome: &RequestOutcome,
) {
    let mut cache_status = Vec::with_capacity(96);
    let live = worker.shared.live.load();
    reply.cache_status.write(&live.cache_name, &mut cache_status);
    worker.access.record(&AccessRecord {
        unix_ms: unix_ms().saturating_sub(outcome.duration_ns / 1_000_000),
        client: Some(address_of(request, &live.config.trusted_proxies)),
        method: request.method.as_bytes(),
        target: request.path_and_query.as_bytes(),
        host: Some(request.authority.as_bytes()),
        protocol: request.version.as_str(),
        status: outcome.status,
        body_bytes: outcome.body_bytes_sent,
        duration_ns: outcome.duration_ns,
        site: reply.account.site.as_ref().map(|site| site.config.name.as_str()),
        server,
        cache: outcome.cache,
        cache_status: Some(&cache_status),
        referer: text(request.fields, "referer").map(str::as_bytes),
        user_agent: text(request.fields, "user-agent").map(str::as_bytes),
        tls_version: request.tls.map(|tls| tls.version),
        sni: request.tls.and_then(|tls| tls.server_name.as_deref()),
        trace: request.timeline.and_then(|timeline| timeline.logged_context()),
    });
}

/// Counts and logs a request that could not be read.
pub(crate) fn record_refused(worker: &Worker, client: &ClientEnd, problem: &Problem, body_bytes: u64) {
    worker.recorder.request(&RequestOutcome {
        site: SiteId::NONE,
        rule: RuleId::NONE,
        method: Method::Other,
        status: problem.status,
        cache: CacheResult::Local,
        duration_ns: 0,
        body_bytes_sent: body_bytes,
        body_bytes_received: 0,
    });
    worker.access.record(&AccessRecord {
        unix_ms: unix_ms(),
        client: Some(client.peer.ip()),
        method: b"",
        target: b"",
        host: None,
        protocol: "",
        status: problem.status,
        body_bytes,
        duration_ns: 0,
        site: None,
        server: None,
        cache: CacheResult::Local,
        cache_status: Some(problem.reason.as_bytes()),
        referer: None,
        user_agent: None,
        tls_version: client.tls.as_ref().map(|tls| tls.version),
        sni: client.tls.as_ref().and_then(|tls| tls.server_name.as_deref()),
        trace: None,
    });
}

fn unix_ms() -> u64 {
    u64::try_from(now().as_ms()).unwrap_or(0)
}
