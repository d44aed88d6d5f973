//! The admin listener: probes, metrics, purges, reloads.
//!
//! Decides: which routes exist (one table, [`ROUTES`]), who may call them, what the answers look
//! like. Never does: purge or reload by itself; that is behind [`Control`], which the binary
//! implements. Never reads configuration or token files.
//!
//! | route | what |
//! |---|---|
//! | `GET /` | the list of routes |
//! | `GET /live` | the process runs |
//! | `GET /ready` | requests are accepted |
//! | `GET /metrics` | Prometheus text |
//! | `POST /explain` | make one request and tell what was decided about it |
//! | `POST /purge` | purge one URL with all its variants |
//! | `POST /reload` | load the configuration again |
//! | `POST /upgrade` | start the program anew, and give it the listening sockets |
//!
//! Main types: [`AdminConfig`], [`Control`], [`Bound`], and what becomes of it, [`Admin`]. `hyper` serves the listener: nothing here is
//! on the way of a client.
//!
//! Who may call: with a token, whoever sends it. Without one the listener must be on loopback, and
//! what a browser could be tricked into sending is refused. The probes listener has no token and
//! only the routes that change nothing.

mod answer;
mod control;
mod error;
mod explain;
mod guard;
mod purge;
mod routes;
mod secret;
mod server;

pub use control::{Control, ControlFuture, Readiness};
pub use error::AdminError;
pub use routes::{Parameter, ROUTES, Reach, Route, admin_markdown};
pub use secret::Secret;
pub use server::{Admin, AdminConfig, AdminLimits, Bound, Inherited};
