//! The admin listener: probes, metrics, purges, reloads.
//!
//! Decides which routes exist (one table, [`ROUTES`]), which requests may use them, and the form of the responses.
//! Never purges or reloads by itself: it calls [`Control`], which the binary implements. Never reads configuration or
//! token files.
//!
//! | route | effect or response |
//! |---|---|
//! | `GET /` | the list of routes |
//! | `GET /live` | the process runs |
//! | `GET /ready` | requests are accepted |
//! | `GET /metrics` | Prometheus text |
//! | `POST /explain` | make one request and report the decisions about it |
//! | `POST /purge` | purge stored responses |
//! | `POST /reload` | load the configuration again |
//! | `POST /upgrade` | start the program again, and pass the listening sockets to it |
//!
//! Main types: [`AdminConfig`], [`Control`], [`Bound`] (bound listeners), and [`Admin`] (running listeners). `hyper` serves the listener,
//! which carries no client traffic.
//!
//! Access: if a token is configured, every request needs it. Without a token, the listener must be on loopback, and
//! requests that a browser could be tricked into are refused. The probes listener has no token and only the routes
//! that change nothing.

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
