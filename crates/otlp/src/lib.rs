//! Sends spans to a collector of OpenTelemetry, by OTLP over HTTP with protobuf bodies (OTLP 1.x).
//!
//! Decides: what waits for the collector and what is dropped, what is sent together, what an answer means, and when a
//! request is made again. Never decides what is a span, and never holds a request up: [`Exporter`] takes a span or drops it.
//!
//! Main types: [`Exporter`] (the queue, a [`telemetry::trace::SpanSink`]), [`Settings`] with its [`Endpoint`], and [`Export`], which
//! sends until it is told to stop.
//!
//! Cost of a span: one lock that is held for a push. The task that sends runs on the runtime that it is spawned on, in the
//! background. At most `queue_spans_max` spans wait, and one batch is on its way.
//!
//! Locks: the queue, alone.

mod answer;
mod client;
mod endpoint;
mod export;
mod message;
mod queue;

pub use endpoint::{Endpoint, EndpointError};
pub use export::{Export, Settings, probe, start};
pub use queue::{Counts, Exporter};
