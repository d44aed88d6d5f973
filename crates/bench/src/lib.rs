//! Load generator, latency reports and experiments.
//!
//! Sends requests as fast as possible or at a fixed rate, and reports the results: number, latencies, failures, and the cost for
//! the server. Never links a data plane: it reaches the measured program through a socket.
//!
//! Every command ends with a [`result::Report`]. It holds [`result::Run`]s (one load on one target), [`result::Chart`]s and
//! [`result::Expectation`]s. A saved report can be rendered as a table, JSON or an HTML page without measuring again.
//!
//! `drive/` is the loop over `mio` that generates load. `http/` and `resp/` are the kinds of load, with our own HTTP/1.1 and RESP, because
//! a measuring tool must cost less than the server; HTTP/2 uses the crate `h2` over bytes in memory. `null/` has minimal servers, `peers/`
//! other servers, `server/` the process under load, `experiments/` whole set-ups, and `report/` the output.
//!
//! The generator has its own binary, `larder-bench`, so that the server doesn't link crates for charts, tables and histograms.

mod drive;
pub mod experiments;
pub mod http;
pub mod interrupt;
pub mod null;
pub mod observe;
pub mod pause;
pub mod peers;
pub mod programs;
pub mod progress;
mod random;
pub mod report;
pub mod resp;
pub mod result;
pub mod server;

pub use drive::{Pace, Reuse, Until};
