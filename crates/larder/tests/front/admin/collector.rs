//! An OpenTelemetry collector: accepts spans by OTLP over HTTP, and decodes them with the types published by OpenTelemetry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use testkit::{Exchange, Received, ScriptedOrigin, wait};

#[derive(Clone, Debug)]
pub(crate) struct CollectedSpan {
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Id of the parent span; empty for a root.
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) is_error: bool,
    /// Attributes, with numbers as text.
    pub(crate) attributes: BTreeMap<String, String>,
    /// Links, as trace and span.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) resource: BTreeMap<String, String>,
}

impl CollectedSpan {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    pub(crate) fn service(&self) -> &str {
        self.resource.get("service.name").map_or("", String::as_str)
    }
}

pub(crate) struct Collector {
    server: ScriptedOrigin,
    spans: Arc<Mutex<Vec<CollectedSpan>>>,
}

impl Collector {
    /// Starts a collector that accepts all requests.
    pub(crate) fn start() -> Self {
        Self::answering(|_| true)
    }

    /// Starts a collector that accepts the requests for which `is_taken` returns true. For other requests, `is_taken` itself sends a
    /// response or none.
    pub(crate) fn answering(is_taken: impl Fn(&mut Exchange<'_>) -> bool + Send + Sync + 'static) -> Self {
        let spans: Arc<Mutex<Vec<CollectedSpan>>> = Arc::default();
        let taken = Arc::clone(&spans);
        let server = ScriptedOrigin::start(move |exchange| {
            exchange.read_body();
            if !is_taken(exchange) {
                return;
            }
            let read = read(&exchange.request);
            taken.lock().expect("no holder panics").extend(read);
            exchange.respond("200 OK", PROTOBUF, ExportTraceServiceResponse::default().encode_to_vec());
        });
        Self { server, spans }
    }

    /// Returns the answer of a collector that rejects some of the spans.
    pub(crate) fn partial_success(rejected_spans: i64) -> Vec<u8> {
        let partial_success =
            Some(ExportTracePartialSuccess { rejected_spans, error_message: "too old".to_owned() });
        ExportTraceServiceResponse { partial_success }.encode_to_vec()
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.server.received()
    }

    pub(crate) fn spans(&self) -> Vec<CollectedSpan> {
        self.spans.lock().expect("no holder panics").clone()
    }

    /// Waits until the collector has a matching span, and returns the first one.
    #[track_caller]
    pub(crate) fn one(&self, fits: impl Fn(&CollectedSpan) -> bool) -> CollectedSpan {
        self.wait_for(1, fits).remove(0)
    }

    /// Waits until the collector has `count` spans for which `fit` returns true, and returns them.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize, fit: impl Fn(&CollectedSpan) -> bool) -> Vec<CollectedSpan> {
        wait::until("the collector has the spans", || {
            let spans: Vec<_> = self.spans().into_iter().filter(&fit).collect();
            (spans.len() >= count).then_some(spans)
        })
    }

    pub(crate) fn stop(&mut self) {
        self.server.stop();
    }
}

const PROTOBUF: &str = "Content-Type: application/x-protobuf\r\n";

/// Returns the spans of a request. Panics if it violates the specification.
fn read(request: &Received) -> Vec<CollectedSpan> {
    assert_eq!((request.method(), request.field("content-type")), ("POST", "application/x-protobuf"));
    let message = ExportTraceServiceRequest::decode(&*request.body).expect("a message");
    let mut spans = Vec::new();
    for of_resource in message.resource_spans {
        let resource = attributes(&of_resource.resource.expect("a resource").attributes);
        for of_scope in of_resource.scope_spans {
            assert_eq!(of_scope.scope.expect("a scope").name, "larder");
            spans.extend(of_scope.spans.into_iter().map(|span| collected(span, &resource)));
        }
    }
    assert!(!spans.is_empty(), "a request without spans");
    spans
}

fn collected(span: Span, resource: &BTreeMap<String, String>) -> CollectedSpan {
    assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.start_time_unix_nano > 0);
    CollectedSpan {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: match span.kind() {
            SpanKind::Server => "server",
            SpanKind::Client => "client",
            SpanKind::Internal => "internal",
            other => panic!("a span is {other:?}"),
        },
        is_error: span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error),
        state: span.trace_state,
        name: span.name,
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: attributes(&span.attributes),
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        resource: resource.clone(),
    }
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let read = |attribute: &KeyValue| {
        let value = attribute.value.clone().and_then(|value| value.value);
        let value = match value {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            other => panic!("{} is {other:?}", attribute.key),
        };
        (attribute.key.clone(), value)
    };
    let all: BTreeMap<_, _> = attributes.iter().map(read).collect();
    assert_eq!(all.len(), attributes.len(), "an attribute is repeated: {attributes:?}");
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
