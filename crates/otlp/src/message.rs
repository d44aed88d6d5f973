//! The messages of OTLP for spans, with the numbers of `opentelemetry-proto` 1.x. Unused fields are left out; receivers
//! treat them as empty.

use std::borrow::Cow;

use prost::{Message, Oneof};
use telemetry::trace::{Attribute, Span, SpanKind, SpanStatus, SpanValue, TraceContext};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

const STATUS_ERROR: i32 = 2;
/// The semantic conventions that the attribute names follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
const SCOPE_NAME: &str = "larder";

impl KeyValue {
    pub(crate) fn text(key: &str, text: &str) -> Self {
        let value = Some(Value::Text(text.to_owned()));
        Self { key: key.to_owned(), value: Some(AnyValue { value }) }
    }
}

/// Returns the bytes of a request with these spans.
pub(crate) fn encode(resource: &[KeyValue], version: &str, spans: Vec<Span>) -> Vec<u8> {
    let scope = Scope { name: SCOPE_NAME.to_owned(), version: version.to_owned() };
    let spans = spans.into_iter().map(SpanMessage::from).collect();
    let resource_spans = ResourceSpans {
        resource: Some(Resource { attributes: resource.to_vec() }),
        scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
        schema_url: SCHEMA_URL.to_owned(),
    };
    ExportRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

impl From<Span> for SpanMessage {
    fn from(span: Span) -> Self {
        let TraceContext { trace_id, span_id, flags } = span.context;
        let is_error = span.status == SpanStatus::Error;
        Self {
            trace_id: trace_id.bytes().to_vec(),
            span_id: span_id.bytes().to_vec(),
            trace_state: span.state.map(String::from).unwrap_or_default(),
            parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.bytes().to_vec()),
            name: span.name.to_owned(),
            kind: match span.kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
            },
            start_time_unix_nano: span.start_unix_ns,
            end_time_unix_nano: span.end_unix_ns.max(span.start_unix_ns),
            attributes: span.attributes.into_iter().map(KeyValue::from).collect(),
            links: span.links.iter().map(Link::from).collect(),
            status: is_error.then_some(Status { code: STATUS_ERROR }),
            flags: flags.bits().into(),
        }
    }
}

impl From<&TraceContext> for Link {
    fn from(context: &TraceContext) -> Self {
        Self {
            trace_id: context.trace_id.bytes().to_vec(),
            span_id: context.span_id.bytes().to_vec(),
            flags: context.flags.bits().into(),
        }
    }
}

impl From<Attribute> for KeyValue {
    fn from((key, value): Attribute) -> Self {
        let value = match value {
            SpanValue::Text(text) => Value::Text(Cow::into_owned(text)),
            SpanValue::Number(number) => Value::Number(number),
        };
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}
