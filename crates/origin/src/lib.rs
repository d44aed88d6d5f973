//! Origin servers: connections, requests and responses.
//!
//! This crate decides which server of an origin gets a request, how to connect to it, when to reuse a connection, when a request may
//! be sent twice, and whether a response body is complete. It never decides what is forwarded, stored or sent to clients.
//!
//! A process has one [`Upstreams`], shared by all workers. [`Upstream::send`] runs on the caller's runtime. A connection gets its
//! events from the runtime that opened it, but other runtimes may borrow it. Limits apply to all workers together.
//!
//! `group` sends a request in steps: circuit breaker, `admission`, choice of a server (`balance`), attempt, and perhaps `retry`.
//! `http1/` and `http2/` implement the protocols. `fair_queue`, `ejection`, `retry` and `balance` decide without a clock.
//! `docs/internals/upstreams.md` explains how they work together.

mod admission;
pub mod balance;
mod body;
mod checks;
mod circuit;
mod connect;
mod ejection;
mod endpoint;
mod error;
mod fair_queue;
mod group;
mod health;
mod http1;
mod http1_exchange;
mod http2;
mod http2_exchange;
mod pool;
mod registry;
mod request;
mod request_body;
mod resolve;
mod response;
mod retry;
mod servers;
pub mod settings;
mod stats;
#[cfg(test)]
mod tests;
mod timing;
pub mod tls;

pub use self::admission::Pacing;
pub use self::body::OriginBody;
pub use self::circuit::Probe;
pub use self::error::{OriginError, OriginErrorKind};
pub use self::group::{Tried, Upstream};
pub use self::registry::Upstreams;
pub use self::request::OriginRequest;
pub use self::request_body::{
    BodyFrame, ChannelBody, Gathered, RequestBody, RequestBodyClosed, RequestBodyIncomplete,
    RequestBodySender, Room,
};
pub use self::response::{OriginResponse, OriginTunnel};
pub use self::settings::{ARRIVING_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX, UNCHARGED_PIECE_BYTES_MAX};
pub use self::stats::{BreakerStats, OriginStats, ServerState, ServerStats};
pub use self::timing::Interim;
