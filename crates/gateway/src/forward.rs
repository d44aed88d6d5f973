//! Forwards requests to the origin: the call itself, and exchanges that have nothing to do with the cache.

use std::sync::Arc;

use caching::explain::{Finding, seconds};
use caching::invalidation::Target;
use caching::{CacheStatus, ExchangeTimes, FwdReason, Outcome};
use http::{HeaderValue, Method};
use telemetry::{CacheResult, OriginOutcome};
use tokio::time::Instant;

use crate::cache::written::Written;
use crate::cache::{head_update, invalidate, stand_in};
use crate::client::Client;
use crate::config::OriginEndpoint;
use crate::events::{self, Event};
use crate::exchange::{Interims, PassReason, Plan, Way};
use crate::explain::note;
use crate::fields::PackedFields;
use crate::head::{OwnedRequest, Version};
use crate::origin::{BodyFraming, Interim, OriginError, OriginRequest, OriginResponse, RequestBody};
use crate::reading::Inbound;
use crate::reason::Reason;
use crate::reply::{Account, Body, Length, Reply, ReplyHead, has_no_content, x_cache};
use crate::respond::{self, Problem};
use crate::route::LiveSite;
use crate::transform::{self, Purpose};
use crate::worker::{Worker, now};

/// One request to an origin.
pub(crate) struct OriginCall<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) site: &'a LiveSite,
    pub(crate) request: &'a Inbound,
}

impl OriginCall<'_> {
    pub(crate) fn fields(&self, purpose: Purpose) -> PackedFields {
        transform::request_fields(self.request, &self.worker.shared.instance, purpose)
    }

    pub(crate) async fn send(
        &self,
        fields: PackedFields,
        body: RequestBody,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<Box<OriginResponse>, OriginError> {
        let started = Instant::now();
        let asked = self.request.record.as_ref().map(|_| asked_with(&fields));
        let result = match self.origin_request(fields, body) {
            Ok(request) => self.site.origin.send(request, &self.site.config.timeouts, interim).await,
            Err(error) => Err(error),
        };
        self.count(&result, started);
        note(self.request.record.as_ref(), || self.forwarded(&result, asked, started));
        result
    }

    /// What the origin said, and what it was asked beyond the client's own words.
    fn forwarded(
        &self,
        result: &Result<Box<OriginResponse>, OriginError>,
        asked: Option<String>,
        started: Instant,
    ) -> Finding {
        let name = self.site.config.origin.name.as_str();
        let (says, section) = match result {
            Ok(response) => {
                (format!("the origin answers {}", response.status.as_u16()), "RFC 9111 section 4")
            }
            Err(error) => (format!("the origin fails: {error}"), "RFC 9209 section 2.3"),
        };
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let finding = Finding::new("forward", says, section).with("origin", name, "").with(
            "first byte after",
            seconds(took_ms),
            "",
        );
        match asked.filter(|asked| !asked.is_empty()) {
            Some(asked) => finding.with("asked with", asked, "RFC 9111 section 4.3.1"),
            None => finding,
        }
    }

    fn origin_request(&self, fields: PackedFields, body: RequestBody) -> Result<OriginRequest, OriginError> {
        let request = self.request;
        let invalid = |what: &str| OriginError::InvalidRequest(what.into());
        Ok(OriginRequest {
            method: Method::from_bytes(request.method.as_bytes()).map_err(|_| invalid("method"))?,
            path_and_query: transform::origin_target(&request.path_and_query, &self.site.config),
            authority: self.authority().ok_or_else(|| invalid("authority"))?,
            scheme: match request.scheme {
                crate::head::Scheme::Http => http::uri::Scheme::HTTP,
                crate::head::Scheme::Https => http::uri::Scheme::HTTPS,
            },
            fields,
            body,
            accepts_trailers: trailers_wanted(request),
            client: self.client(),
            upgrade: request.upgrade.as_deref().and_then(|protocol| HeaderValue::from_str(protocol).ok()),
        })
    }

    /// Whom it is counted for.
    pub(crate) fn client(&self) -> Option<Client> {
        Client::of_request(self.request, &self.request.config().trusted_proxies)
    }

    /// `Host` for the origin: what the client said, or the origin's own name for HTTP/1.0 clients that say nothing.
    fn authority(&self) -> Option<HeaderValue> {
        match (&self.request.authority[..], &self.site.config.origin.endpoint) {
            ("", OriginEndpoint::Tcp { host, port }) => HeaderValue::from_str(&format!("{host}:{port}")).ok(),
            ("", OriginEndpoint::Unix(_)) => Some(HeaderValue::from_static("localhost")),
            (authority, _) => HeaderValue::from_str(authority).ok(),
        }
    }

    fn count(&self, result: &Result<Box<OriginResponse>, OriginError>, started: Instant) {
        let outcome = match result {
            Ok(response) => OriginOutcome::from_status(response.status.as_u16()),
            Err(error) => {
                self.worker.recorder.origin_error(self.site.origin_metrics, error.reason());
                events::emit(self.site, &self.request.path_and_query, &Event::OriginFailed(error));
                OriginOutcome::Failed
            }
        };
        let duration_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.worker.recorder.origin_request(self.site.origin_metrics, outcome, duration_ns);
    }
}

/// The preconditions and ranges of a request to the origin, for people.
fn asked_with(fields: &PackedFields) -> String {
    let names =
        ["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range"];
    let shown = |name: &str| Some(format!("{name}: {}", fields.value(name)?.escape_ascii()));
    names.into_iter().filter_map(shown).collect::<Vec<_>>().join(", ")
}

//= RFC 9110 section 10.1.4: TE: trailers
pub(crate) fn trailers_wanted(request: &OwnedRequest) -> bool {
    let has_trailers = |value: &[u8]| {
        value.split(|byte| *byte == b',').any(|member| member.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    };
    request.fields.values("te").any(has_trailers)
}

/// Forwards a request as it is; the answer goes to its client alone.
//= RFC 9111 section 4: unsafe methods are written through
pub(crate) async fn pass(
    worker: &Arc<Worker>,
    plan: &Plan,
    body: RequestBody,
    reason: PassReason,
    interims: &Interims,
) -> Reply {
    let call = OriginCall { worker, site: &plan.site, request: &plan.request };
    let fields = call.fields(Purpose::PassOn);
    // A client that expects 100 gets it from this side, which never passes the expectation on.
    let expects = plan.request.fields.value("expect").is_some();
    //= RFC 9110 section 15.2: informational responses
    let mut interim = |interim: Interim| {
        if !(expects && interim.status == http::StatusCode::CONTINUE) {
            interims.push(Arc::new(interim));
        }
    };
    let written = Written::begin(worker, plan);
    let asked = head_update::Asked::begin(worker, plan);
    let sent = now();
    match call.send(fields, body, &mut interim).await {
        Ok(response) => {
            let times = ExchangeTimes { request: sent, response: now() };
            invalidate::apply(worker, plan, &response, written.as_ref().map(Written::participant));
            if let Some(asked) = asked {
                asked.apply(worker, plan, &response, times);
            }
            if let Some(reply) = stand_in::for_response(worker, plan, &response) {
                return reply;
            }
            match written.filter(|written| written.may_store(&response, times)) {
                Some(written) => Box::pin(written.reply(plan, response, times, interims)).await,
                None => private_reply(plan, response, reason),
            }
        }
        Err(error) => stand_in::for_error(worker, plan, &error).unwrap_or_else(|| {
            failed(worker, plan, &Problem::origin(&error, stand_in::candidate(plan)), reason)
        }),
    }
}

/// A reply without a response of the origin.
pub(crate) fn failed(worker: &Worker, plan: &Plan, problem: &Problem, reason: PassReason) -> Reply {
    let mut reply = respond::reply(problem, Some(&plan.site), plan.started, worker);
    reply.cache_status.outcome =
        Outcome::Forwarded { reason: reason.fwd, status: None, stored: false, collapsed: false };
    reply
}

/// Hands an origin's response to the client that asked for it.
//= RFC 9110 section 15.4.5: a 304 to the client's own condition is forwarded
pub(crate) fn private_reply(plan: &Plan, mut response: Box<OriginResponse>, reason: PassReason) -> Reply {
    let (site, server_name) = (&plan.site.config, &plan.live.config.server_name);
    //= RFC 9110 section 9.3.2: HEAD says what GET would
    let declared =
        if plan.request.is_head() { response.fields.value("content-length").and_then(number) } else { None };
    let (fields, received) = (std::mem::take(&mut response.fields), Version::received(response.version));
    let fields = transform::response_fields(fields, site, received, server_name, now);
    let status = response.status.as_u16();
    let was_looked_up = match plan.way {
        Way::Pass { .. } => reason.detail == Reason::KnownUncacheable.into(),
        Way::Fetch(_) => true,
        Way::Query => reason.fwd != FwdReason::Bypass,
    };
    let result = if was_looked_up { CacheResult::Miss } else { CacheResult::Bypass };
    let outcome =
        Outcome::Forwarded { reason: reason.fwd, status: Some(status), stored: false, collapsed: false };
    let phrase = response.reason.take();
    let (length, body) = content(response, declared, plan);
    let detail = Some(reason.detail.as_str()).filter(|detail| *detail != reason.fwd.as_str());
    Reply {
        status,
        head: ReplyHead::Own { reason: phrase, fields },
        extra: PackedFields::default(),
        length,
        body,
        age_s: None,
        cache_status: CacheStatus { outcome, ttl_s: None, key: None, detail },
        x_cache: x_cache(site, result),
        account: Account { site: Some(Arc::clone(&plan.site)), result, started: plan.started },
    }
}

fn content(mut response: Box<OriginResponse>, declared: Option<u64>, plan: &Plan) -> (Length, Body) {
    if let Some(upgraded) = response.upgraded.take() {
        return (Length::None, Body::Tunnel(Box::new(upgraded)));
    }
    if has_no_content(response.status.as_u16()) {
        return (Length::None, Body::Empty);
    }
    if plan.request.is_head() {
        return (declared.map_or(Length::Unknown, Length::Known), Body::Empty);
    }
    match response.body.framing() {
        BodyFraming::Length(bytes) => (Length::Known(bytes), Body::Origin(response)),
        BodyFraming::None => (Length::Known(0), Body::Empty),
        BodyFraming::Chunked | BodyFraming::CloseDelimited => (Length::Unknown, Body::Origin(response)),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The target URI of a request.
pub(crate) fn target(request: &OwnedRequest) -> Target<'_> {
    let (path, query) = match request.path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (request.path_and_query.as_str(), None),
    };
    Target {
        scheme: request.scheme.as_str().as_bytes(),
        authority: request.authority.as_bytes(),
        path: path.as_bytes(),
        query,
    }
}
