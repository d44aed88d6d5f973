//! Load generator, latency reports and experiments.
//!
//! Makes requests as fast, or at the rate, that it is told, and says what came of them: how many, how long each took,
//! what failed, and what a server spent on them. Never links a data plane: what it measures, it meets on a socket.
//!
//! A [`result::Report`] is what every command ends with. It holds [`result::Run`]s (one load on one target),
//! [`result::Chart`]s and [`result::Expectation`]s; a report becomes a table, JSON and an HTML page without being
//! measured again.
//!
//! `http/` and `resp/` are the loads: loops over `mio` with HTTP/1.1 and RESP of our own, because a tool that measures has to cost less than
//! the server; HTTP/2 is the crate `h2`, over bytes in memory. `null/` has minimal servers, `peers/` other servers, `server/` the process
//! under load, `experiments/` whole set-ups, `report/` the output.
//!
//! It has a binary of its own, `larder-bench`, so that the server links no crates for charts, fonts and schemas.

mod alarm;
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
pub mod trace;
mod until;
mod work;
