//! Sends spans to an OpenTelemetry collector, by OTLP over HTTP with protobuf bodies (OTLP 1.x).
//!
//! This crate decides which spans are queued, dropped and sent together, and when a request to the collector is
//! repeated. It never decides which spans exist, and never delays a client's request: [`Exporter`] takes a span or
//! drops it.
//!
//! Main types: [`Exporter`] (the queue, a [`telemetry::trace::SpanSink`]), [`Settings`] with its [`Endpoint`], and
//! [`Export`], which sends until it is stopped.
//!
//! Cost of a span: one lock that is held for a push. The sending task runs in the background, on the runtime that it is
//! spawned on. At most `queue_spans_max` spans are queued, and one batch is being sent.
//!
//! The only lock is the one on the queue.

mod answer;
mod client;
mod endpoint;
mod export;
mod message;
mod queue;

pub use endpoint::{Endpoint, EndpointError};
pub use export::{Export, Settings, probe, start};
pub use queue::{Counts, Exporter};
