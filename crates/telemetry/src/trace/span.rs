//! The recorded data of a trace.

use std::borrow::Cow;
use std::fmt;

use super::context::TraceContext;
use super::ids::SpanId;

/// An operation with its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its own context.
    pub context: TraceContext,
    /// The parent span; `None` for a root.
    pub parent: Option<SpanId>,
    /// The `tracestate` that came with the request.
    pub state: Option<Box<str>>,
    /// The name of the operation, from a small fixed set.
    pub name: &'static str,
    /// The side of a request.
    pub kind: SpanKind,
    /// Start in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// End in nanoseconds since the Unix epoch.
    pub end_unix_ns: u64,
    /// Further properties.
    pub attributes: Vec<Attribute>,
    /// Related spans of other traces.
    pub links: Vec<TraceContext>,
    /// The result.
    pub status: SpanStatus,
}

/// The side of a request that a span is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An operation inside this process.
    Internal,
    /// Answering a request.
    Server,
    /// Sending a request.
    Client,
}

/// The result of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanStatus {
    /// No known error.
    Unset,
    /// An error.
    Error,
}

/// An attribute's name, from the semantic conventions or Larder's own, and its value.
pub type Attribute = (&'static str, SpanValue);

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// Text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for SpanValue {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u16> for SpanValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A receiver of spans that have ended.
pub trait SpanSink: fmt::Debug + Send + Sync {
    /// Takes a span, or drops it. Never blocks.
    fn take(&self, span: Span);
}
