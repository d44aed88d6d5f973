//! Load on HTTP servers: HTTP/1.1 and HTTP/2, with and without TLS, in a closed or an open loop.
//!
//! The loop in `drive` sends prepared bytes (`prepare`), and answers are parsed only as far as needed to find their ends (`h1`, and
//! `h2` with the crate of that name). The protocols have no sockets, so tests can cut an answer into any sequence of reads. Memory
//! is bounded: histograms have a fixed size, and a connection holds at most one partial head.
//!
//! The caller's thread collects and reports while the others work. To run a load alongside something else, give it its own thread.

mod chunked;
mod codec;
mod collect;
mod error;
mod h1;
mod h2;
pub mod list;
mod load;
mod plan;
mod prepare;
mod response;
mod side;
mod tally;
#[cfg(test)]
mod tests;
mod tls;
mod words;

pub use collect::{run, run_in_turn};
pub use error::LoadError;
pub use load::{
    Detail, HttpLoad, Order, Pace, Protocol, Reuse, Scheme, Session, Target, TlsSettings, Trust, Until, Url,
};
pub(crate) use tls::Tls;
