//! Traces as OpenTelemetry knows them: which trace a request belongs to (W3C Trace Context), whether it is recorded, and
//! what is recorded of it. Where spans go is somebody else's business: a [`SpanSink`].

mod context;
mod ids;
mod sampling;
mod span;
mod state;

pub use context::{TraceContext, TraceFlags};
pub use ids::{SpanId, TraceId};
pub use sampling::Sampling;
pub use span::{Attribute, Span, SpanKind, SpanSink, SpanStatus, SpanValue};
pub use state::trace_state;
