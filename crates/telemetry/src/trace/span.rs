//! What is recorded of a trace.

use std::borrow::Cow;
use std::fmt;

use super::context::TraceContext;
use super::ids::SpanId;

/// Something that took a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its own.
    pub context: TraceContext,
    /// The span that it is a part of; none: it is the root.
    pub parent: Option<SpanId>,
    /// The `tracestate` that came with the request.
    pub state: Option<Box<str>>,
    /// What it was; one of few.
    pub name: &'static str,
    /// On which side of a request.
    pub kind: SpanKind,
    /// Nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Nanoseconds since the Unix epoch.
    pub end_unix_ns: u64,
    /// What else is known of it.
    pub attributes: Vec<Attribute>,
    /// Spans elsewhere that it has to do with.
    pub links: Vec<TraceContext>,
    /// How it ended.
    pub status: SpanStatus,
}

/// On which side of a request a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Inside this process.
    Internal,
    /// A request is answered.
    Server,
    /// A request is made.
    Client,
}

/// How a span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanStatus {
    /// Nothing went wrong that is known of.
    Unset,
    /// Something did.
    Error,
}

/// A name of the semantic conventions, or one of ours, and its value.
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

/// Where spans go that have ended.
pub trait SpanSink: fmt::Debug + Send + Sync {
    /// Takes one, or drops it. Never waits.
    fn take(&self, span: Span);
}
