//! The mock origin server behind `larder origin`: for demos, tests and experiments.
//!
//! It decides what an origin server would answer, from the path (which resource) and from query
//! knobs (how it behaves: slow, failing, truncated, cacheable or not). It counts what reached it, so
//! that a test can prove what a gateway forwarded. It is never part of the data plane and stores nothing
//! that a request sends.
//!
//! Main types: [`OriginOptions`] (what to listen on), [`run`] (the whole server), `server::BoundAddresses`
//! (where it listens in fact), and inside `knobs::Knobs`, `answer::Answer`, `content::Content`.
//!
//! Each worker is one thread with a runtime of its own, all of them accepting from the same sockets.
//! The caller's runtime therefore stays free while a handler burns CPU.

mod access_log;
mod answer;
mod body;
mod conditional;
mod connection;
mod content;
mod counters;
mod knobs;
mod metrics;
mod options;
mod prefix;
mod products;
mod routes;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod tls;

pub use options::OriginOptions;
pub use server::{BoundAddresses, OriginError, run};
pub use tls::TlsError;
