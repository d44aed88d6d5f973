//! Timelines of requests: the decision which requests have one, their traces, and the attributes of exchanges.

use std::sync::Arc;

use caching::{HopByHop, fields};
use message::client::address_of;
use message::fields::text;
use message::head::{Nominations, RequestHead, Trust};
use message::timeline::{
    ASKING_FIELD, Ended, PARENT_FIELD, STATE_FIELD, Standing, Telling, Timeline, method_attributes, span_name,
};
use telemetry::CacheResult;
use telemetry::trace::{Attribute, SpanStatus, TraceContext, TraceFlags, trace_state};
use tokio::time::Instant;

use crate::active::ActiveConfig;
use crate::config::{AcceptParent, ServerTiming, TracingConfig};
use crate::request::account::{Delivered, Sent};
use crate::request::plan::Step;
use crate::request::reply::Reply;
use crate::request::respond::CLIENT_LEFT;
use crate::worker::Worker;

/// Creates the timeline of a request that has begun, if it needs one.
pub(crate) fn begin(
    worker: &Worker,
    live: &ActiveConfig,
    request: &RequestHead<'_>,
    started: Instant,
) -> Option<Arc<Timeline>> {
    if !live.has_timelines {
        return None;
    }
    let telling = telling(live, request);
    let sink = worker.shared.spans.as_ref().zip(live.config.tracing.as_ref());
    let Some((sink, tracing)) = sink else {
        return (telling == Telling::ServerTiming).then(|| Arc::new(Timeline::new(started, telling)));
    };
    let standing = standing(tracing, request);
    let flags = standing.context.flags;
    let timeline = Timeline::new(started, telling).standing(standing);
    Some(Arc::new(match flags.is_sampled() {
        true => {
            let attributes = attributes(live, tracing, request);
            timeline.recorded(Arc::clone(sink), span_name(request.method), attributes)
        }
        false => timeline,
    }))
}

fn telling(live: &ActiveConfig, request: &RequestHead<'_>) -> Telling {
    let site = live.routes.site(request.authority, request.path_and_query);
    let is_told = match site.map_or(ServerTiming::Off, |site| site.config.server_timing) {
        ServerTiming::Off => false,
        ServerTiming::OnRequest => {
            request.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(ASKING_FIELD))
        }
        ServerTiming::Always => true,
    };
    if is_told { Telling::ServerTiming } else { Telling::Nothing }
}

/// Returns the position of a request in a trace, from its trace fields if they are trusted.
fn standing(tracing: &TracingConfig, request: &RequestHead<'_>) -> Standing {
    let said = parent_of(request);
    let is_believed = match tracing.accept_parent {
        AcceptParent::Always => true,
        AcceptParent::FromTrustedProxies => request.peer.trust == Trust::Trusted,
        AcceptParent::Never => false,
    };
    match said {
        Some(parent) if is_believed => {
            let is_recorded = tracing.sampling.flags(Some(&parent), parent.trace_id).is_sampled();
            Standing {
                context: if is_recorded { parent.child() } else { parent },
                parent: Some(parent.span_id),
                state: trace_state(fields::values(request.fields, STATE_FIELD)).map(Into::into),
                links: Vec::new(),
            }
        }
        said => {
            let root = TraceContext::root(TraceFlags::NOT_SAMPLED);
            let flags = tracing.sampling.flags(None, root.trace_id);
            Standing {
                context: TraceContext { flags, ..root },
                parent: None,
                state: None,
                links: said.into_iter().collect(),
            }
        }
    }
}

/// Returns the `traceparent` of a request. If there are several `traceparent` fields, all are ignored. A field that
/// `Connection` names counts as absent.
fn parent_of(request: &RequestHead<'_>) -> Option<TraceContext> {
    let is_nominated = || HopByHop::of(request.fields).contains(PARENT_FIELD);
    if request.nominations == Nominations::Some && is_nominated() {
        return None;
    }
    let mut parents = fields::values(request.fields, PARENT_FIELD);
    let parent = parents.next()?;
    if parents.next().is_some() { None } else { TraceContext::parse(parent) }
}

/// Returns the attributes known at the start of a request, named by the semantic conventions.
fn attributes(live: &ActiveConfig, tracing: &TracingConfig, request: &RequestHead<'_>) -> Vec<Attribute> {
    let mut attributes = method_attributes(request.method);
    let (path, query) = match request.path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.path_and_query, None),
    };
    let (host, port) = host_and_port(request.authority);
    let client = address_of(request, &live.config.trusted_proxies);
    attributes.push(("url.scheme", request.scheme.as_str().into()));
    attributes.push(("url.path", tracing.redaction.shown(path.as_bytes()).into()));
    attributes.push(("server.address", host.to_owned().into()));
    attributes.push(("network.protocol.version", request.version.of_protocol().into()));
    attributes.push(("client.address", client.to_string().into()));
    if let Some(query) = query {
        // Redaction recognises a parameter by the character before it, which is `?` for the first one.
        let shown = tracing.redaction.shown(format!("?{query}").as_bytes());
        attributes.push(("url.query", shown[1..].to_owned().into()));
    }
    if let Some(port) = port {
        attributes.push(("server.port", port.into()));
    }
    if let Some(agent) = text(request.fields, "user-agent") {
        attributes.push(("user_agent.original", tracing.redaction.shown(agent.as_bytes()).into()));
    }
    attributes
}

fn host_and_port(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}

/// Ends the timeline of an exchange, with the byte counts.
pub(crate) fn end(
    timeline: &Timeline,
    reply: &Reply,
    (sent, cache): (&Sent, CacheResult),
    (ended, live): (Instant, &ActiveConfig),
) {
    if !timeline.is_recorded() {
        return;
    }
    let mut cache_status = Vec::with_capacity(96);
    reply.cache_status.write(&live.cache_name, &mut cache_status);
    let cache_status = String::from_utf8_lossy(&cache_status).into_owned();
    let mut attributes: Vec<Attribute> = vec![
        ("http.response.status_code", sent.status.into()),
        ("http.response.body.size", sent.body_bytes.into()),
        ("larder.cache.result", cache.as_str().into()),
        ("larder.cache.status", cache_status.into()),
    ];
    if let Some(site) = &reply.account.site {
        attributes.push(("larder.site", site.config.name.clone().into()));
    }
    let (status, error) = match sent.delivered {
        Delivered::Broken if sent.status == CLIENT_LEFT => {
            (SpanStatus::Unset, Some("client-gone".to_owned()))
        }
        Delivered::Broken => (SpanStatus::Error, Some("broken-off".to_owned())),
        Delivered::Whole if sent.status >= 500 => (SpanStatus::Error, Some(sent.status.to_string())),
        Delivered::Whole => (SpanStatus::Unset, None),
    };
    attributes.extend(error.map(|error| ("error.type", error.into())));
    timeline.end(ended, Ended { status, attributes });
}

/// Adds the timings to the reply, if the first half of the exchange has created a reply and its client requested
/// timings.
pub(crate) fn tell(timeline: Option<&Arc<Timeline>>, step: &mut Step) {
    if let (Some(timeline), Step::Reply(reply)) = (timeline, step) {
        tell_in(timeline, reply);
    }
}

/// Adds the timings to a reply if its client requested them. Stored responses never contain timings.
pub(crate) fn tell_in(timeline: &Timeline, reply: &mut Reply) {
    let told = timeline.server_timing(reply.account.result.as_str(), Instant::now());
    if let Some(value) = told {
        reply.extra.push("server-timing", value.as_bytes());
    }
}
