//! A single request to an origin server, made by a step.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use cache::entry::stored::StoredHead;
use caching::Asked;
use caching::explain::{Finding, seconds};
use futures_util::future::{self, Either};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use message::client::address_of;
use message::fields::PackedFields;
use message::head::Version;
use message::timeline::{
    Measuring, PARENT_FIELD, STATE_FIELD, Stage, Timeline, measure, method_attributes, span_name,
};
use origin::settings::{Balance, OriginAddress, OriginConfig, ServerConfig};
use origin::{
    FIELDS_MAX, HEAD_BYTES_MAX, Interim, OriginError, OriginRequest, OriginResponse, Probe, RequestBody,
    balance,
};
use telemetry::OriginAnswer;
use telemetry::trace::{TraceContext, TraceFlags};
use tokio::time::Instant;

use crate::config::{Phase, TraceFields};
use crate::events::{self, Event};
use crate::request::context::OwnedContext;
use crate::rewrite::rules::{self, Seen, SeenAnswer, Validated};
use crate::rewrite::rules::{Context, TooLarge};
use crate::rewrite::{self, Purpose, rule_log};
use crate::routing::LiveSite;
use crate::routing::key_of;
use crate::worker::Worker;

/// A single request to an origin.
pub(crate) struct OriginCall<'a> {
    pub(crate) owned: &'a OwnedContext,
    /// Stored response that is validated, if any.
    pub(crate) validated: Option<&'a StoredHead>,
    /// Permit of the circuit breaker, if the caller already has one.
    pub(crate) probe: Option<Probe>,
}

impl Deref for OriginCall<'_> {
    type Target = OwnedContext;

    fn deref(&self) -> &OwnedContext {
        self.owned
    }
}

impl OriginCall<'_> {
    pub(crate) fn fields(&self, purpose: Purpose) -> PackedFields {
        rewrite::request_fields(&self.request, &self.worker.shared.instance, purpose)
    }

    pub(crate) async fn send(
        mut self,
        mut fields: PackedFields,
        body: RequestBody,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<Box<OriginResponse>, OriginError> {
        let OwnedContext { site, request, .. } = self.owned;
        let (started, tried) = (Instant::now(), &request.tried);
        tried.forget();
        let timeline = request.timeline.as_ref();
        let mut asking = measure(timeline, Stage::Origin);
        if site.config.trace_fields == TraceFields::Written {
            let hidden = &site.config.request_fields_hidden;
            write_trace_fields(timeline, asking.as_ref(), hidden, &mut fields);
        }
        let asked = request.record.as_ref().map(|_| asked_with(&fields));
        // The request becomes a future immediately, because a separate variable would cost a copy on each miss.
        let sending = match self.origin_request(fields, body) {
            Ok(asked) => Either::Left(site.upstream.send(asked, &site.config.timeouts, interim, Some(tried))),
            Err(error) => Either::Right(future::ready(Err(error))),
        };
        let result = sending.await.and_then(|response| self.within_limit(response));
        self.count(&result, started);
        let result = result.and_then(|response| self.transformed(response));
        asking.iter_mut().for_each(|asking| self.describe(asking, &result));
        self.note(|| self.forwarded(&result, asked, started));
        result
    }

    /// Limits the response to the size that its rule permits: a longer declared length is an error, and a longer body is cut short.
    fn within_limit(&self, mut response: Box<OriginResponse>) -> Result<Box<OriginResponse>, OriginError> {
        if let Some(bytes_max) = self.site.response_body_bytes_max(self.rule) {
            response.body.limit(bytes_max)?;
        }
        Ok(response)
    }

    /// Applies the rules of the site to the response, before the cache decides about it, stores it or delivers it.
    fn transformed(&self, mut response: Box<OriginResponse>) -> Result<Box<OriginResponse>, OriginError> {
        let (site, record) = (&self.site, self.request.record.as_ref());
        if !site.has_transforms() {
            return Ok(response);
        }
        let request = self.request.borrow(&[]);
        let client = address_of(&request, &self.request.config().trusted_proxies);
        let recorder = &self.worker.recorder;
        let sent = self.request.matching_sent();
        rule_log::tell(recorder, record, site, Phase::OriginRequest, &sent);
        let seen = Seen::of(&request, client, Phase::OriginResponse);
        let rules = site.transforms(Phase::OriginResponse);
        let status = response.status.as_u16();
        let validated =
            self.validated.map(|head| Validated { status: head.facts.status, fields: head.fields.view() });
        let mut fields = std::mem::take(&mut response.fields);
        let answer = SeenAnswer { status, fields: fields.view(), validated };
        let matching = rules::matching(rules, &seen, Some(&answer));
        Context::of_answer(&seen, &answer)
            .apply(rules, &matching, &mut fields)
            .map_err(|TooLarge| OriginError::protocol("rules make the header section too large"))?;
        response.fields = fields;
        rule_log::tell(recorder, record, site, Phase::OriginResponse, &matching);
        Ok(response)
    }

    /// Returns a finding about a forward: the origin's answer, with the preconditions and ranges of the request.
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
        let mut finding = Finding::new("forward", says, section).with("origin", name, "");
        if result.is_ok() {
            finding = finding.with("first byte after", seconds(took_ms), "");
        }
        match asked.filter(|asked| !asked.is_empty()) {
            Some(asked) => finding.with("asked with", asked, "RFC 9111 section 4.3.1"),
            None => finding,
        }
    }

    fn origin_request(
        &mut self,
        fields: PackedFields,
        body: RequestBody,
    ) -> Result<OriginRequest, OriginError> {
        let request = &self.owned.request;
        let invalid = |what: &str| OriginError::InvalidRequest(what.into());
        let is_too_large = fields.len() > FIELDS_MAX || fields.view().wire().len() > HEAD_BYTES_MAX;
        if self.site.has_transforms() && is_too_large {
            return Err(invalid("rules make the header section too large"));
        }
        Ok(OriginRequest {
            method: Method::from_bytes(request.method.as_bytes()).map_err(|_| invalid("method"))?,
            path_and_query: rewrite::origin_target(&request.path_and_query, &self.site.config),
            authority: self.authority().ok_or_else(|| invalid("authority"))?,
            scheme: match request.scheme {
                message::head::Scheme::Http => http::uri::Scheme::HTTP,
                message::head::Scheme::Https => http::uri::Scheme::HTTPS,
            },
            fields,
            body,
            accepts_trailers: request.accepts_trailers(),
            key: self.key(),
            client: self.client(),
            timeline: request.timeline.clone(),
            record: request.record.clone(),
            probe: self.probe.take(),
            upgrade: request.upgrade.as_deref().and_then(|protocol| HeaderValue::from_str(protocol).ok()),
        })
    }

    /// Returns the key for load balancing: a hash of the URL alone, so that all requests for a URL go to the same server, regardless of
    /// their method.
    fn key(&self) -> u64 {
        let OriginConfig { servers, balance, .. } = &*self.site.config.origin;
        if *balance != Balance::ConsistentHash || servers.len() == 1 {
            return 0;
        }
        let request = &self.request;
        balance::hash(&key_of(&self.site, request.scheme, &request.authority, &request.path_and_query))
    }

    /// Returns `Host` for the origin: the value that the client sent, or the name of the origin's first server if an HTTP/1.0 client
    /// sent none.
    fn authority(&self) -> Option<HeaderValue> {
        match (&self.request.authority[..], &self.site.config.origin.servers[0].endpoint.address) {
            ("", OriginAddress::Tcp { host, port }) => HeaderValue::from_str(&format!("{host}:{port}")).ok(),
            ("", OriginAddress::Unix(_)) => Some(HeaderValue::from_static("localhost")),
            (authority, _) => HeaderValue::from_str(authority).ok(),
        }
    }

    /// Adds the attributes of the request and its result to the span.
    fn describe(&self, asking: &mut Measuring, result: &Result<Box<OriginResponse>, OriginError>) {
        let method = &*self.request.method;
        asking.named(span_name(method));
        method_attributes(method).into_iter().for_each(|(name, value)| asking.with(name, value));
        asking.with("larder.origin", self.site.config.origin.name.clone());
        let tried = self.request.tried.last();
        if let Some(server) = tried.as_ref().and_then(|tried| self.server(tried)) {
            match &server.endpoint.address {
                OriginAddress::Tcp { host, port } => {
                    asking.with("server.address", host.clone());
                    asking.with("server.port", *port);
                }
                OriginAddress::Unix(path) => asking.with("server.address", path.display().to_string()),
            }
        }
        tried.iter().for_each(|tried| asking.with("larder.server", tried.to_string()));
        match result {
            Ok(response) => {
                let status = response.status.as_u16();
                asking.with("http.response.status_code", status);
                asking.with("network.protocol.version", Version::received(response.version).of_protocol());
                if status >= 400 {
                    asking.failed(status.to_string());
                }
            }
            Err(error) => asking.failed(error.reason()),
        }
    }

    /// Returns the settings of the server with this URL.
    fn server(&self, url: &str) -> Option<&ServerConfig> {
        self.site.config.origin.servers.iter().find(|server| server.endpoint.to_string() == url)
    }

    fn count(&self, result: &Result<Box<OriginResponse>, OriginError>, started: Instant) {
        let OwnedContext { worker, site, request, .. } = self.owned;
        if let Err(error) = result {
            let server = request.tried.last();
            let event = Event::OriginFailed { error, server: server.as_deref() };
            events::emit(site, &request.path_and_query, &event);
        }
        let result = result.as_ref().map(|response| response.status.as_u16());
        count(worker, site, &request.method, result, started.elapsed());
    }
}

impl OwnedContext {
    /// Returns the error for a response that wasn't requested: 304 without conditions, or 206 without a range. Counts the error for the
    /// origin.
    pub(crate) fn unasked(&self, asked: Asked, status: StatusCode) -> Option<OriginError> {
        let Self { worker, site, request, .. } = self;
        let error = OriginError::protocol(asked.unasked(status.as_u16())?);
        let server = request.tried.last();
        site.upstream.count_unusable(&error, server.as_deref());
        worker.recorder.origin_error(site.origin_metrics, error.reason());
        let event = Event::OriginFailed { error: &error, server: server.as_deref() };
        events::emit(site, &request.path_and_query, &event);
        Some(error)
    }
}

/// Counts a request to the origin of a site, or a request refused by the circuit breaker.
pub(crate) fn count(
    worker: &Worker,
    site: &LiveSite,
    method: &str,
    result: Result<u16, &OriginError>,
    took: Duration,
) {
    if let Err(error) = result {
        worker.recorder.origin_error(site.origin_metrics, error.reason());
    }
    worker.recorder.origin_request(&OriginAnswer {
        origin: site.origin_metrics,
        method: telemetry::Method::from_token(method.as_bytes()),
        status: result.ok(),
        duration_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
    });
}

/// Writes the trace fields for the span of the origin request. The client's own trace fields have already been removed.
fn write_trace_fields(
    timeline: Option<&Arc<Timeline>>,
    asking: Option<&Measuring>,
    hidden: &[HeaderName],
    fields: &mut PackedFields,
) {
    let own = asking.and_then(Measuring::context);
    let context = own.or_else(|| timeline?.context());
    // Without a `traceparent` that isn't sampled, the origin would make its own sampling decision.
    let context = context.unwrap_or_else(|| TraceContext::root(TraceFlags::NOT_SAMPLED));
    let mut write = |name: &str, value: &[u8]| {
        if !hidden.iter().any(|hidden| hidden == name) {
            fields.push(name, value);
        }
    };
    write(PARENT_FIELD, context.to_traceparent().as_bytes());
    if let Some(state) = timeline.and_then(|timeline| timeline.state()) {
        write(STATE_FIELD, state.as_bytes());
    }
}

/// Returns a field value as printable text, without escaping quotes.
fn readable(value: &[u8]) -> String {
    let escaped = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte).to_string(),
        other => other.escape_ascii().to_string(),
    };
    value.iter().map(escaped).collect()
}

/// Returns the preconditions and ranges of a request to the origin as text.
fn asked_with(fields: &PackedFields) -> String {
    let names =
        ["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range"];
    let shown = |name: &str| Some(format!("{name}: {}", readable(fields.value(name)?)));
    names.into_iter().filter_map(shown).collect::<Vec<_>>().join(", ")
}
