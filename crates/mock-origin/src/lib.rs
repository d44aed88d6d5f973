//! The mock origin server behind `larder origin`: for demos, tests and experiments.
//!
//! The server decides what an origin server would answer, from the path (which resource) and from query knobs (how it behaves: slow,
//! cacheable or not). It counts the requests that reach it, so that a test can prove what a gateway forwarded. It stores
//! nothing that a request sends.
//!
//! Main types: [`OriginOptions`] (addresses and behaviour of the process), [`run`] (the whole server), [`BoundAddresses`] (the addresses
//! it listens on), and inside `knobs::Knobs`, `answer::Answer`, `content::Content`.
//!
//! Each worker is one thread with a runtime of its own, all of them accepting from the same sockets. The caller's runtime therefore stays
//! free while a handler burns CPU.

mod answer;
mod body;
mod conditional;
mod content;
mod counters;
mod knobs;
mod options;
mod routes;
mod server;
#[cfg(test)]
mod tests;
mod tls;

pub use options::OriginOptions;
pub use server::{BoundAddresses, OriginError, run};
pub use tls::TlsError;
