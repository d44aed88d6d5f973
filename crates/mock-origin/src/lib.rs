//! The mock origin server behind `larder origin`: for demos, tests and experiments.
//!
//! The path of a request selects the resource, and query knobs select its behaviour (slow, cacheable or not). The server counts the
//! requests that reach it, so that a test can prove which ones a gateway forwarded. It stores no content from requests.
//!
//! Main types: [`OriginOptions`] (addresses and behaviour of the process), [`run`] (the whole server), [`BoundAddresses`] (the addresses
//! it listens on), and inside `knobs::Knobs`, `answer::Answer`, `content::Content`.
//!
//! Each worker is a thread with its own runtime, and all workers accept from the same sockets. The caller's runtime therefore stays free
//! while a handler burns CPU.

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
