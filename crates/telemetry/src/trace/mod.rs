//! OpenTelemetry traces: the trace of a request (W3C Trace Context), whether it is recorded, and the recorded
//! spans. A [`SpanSink`] exports them.

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
