//! The HTTP data plane: connections of clients, the pipeline of a request, routing, rewriting and protection.
//!
//! Answers requests from the cache or from origin servers, and stores responses. `caching` decides what may be stored and reused;
//! `http1` and `h2` decide what bytes mean; `store` decides where bytes are kept; `origin` asks origin servers. This crate acts. It
//! never reads arguments, files or the environment: it gets a checked [`config::Config`].
//!
//! Read `request/pipeline.rs` first: the life of a request as a list of steps. `ARCHITECTURE.md` has the steps with all their ends,
//! and the folders of this crate from the top down.
//!
//! - A step returns the next one and calls none. It leaves one fact for `Cache-Status`, and one metric.
//! - All stored responses are reached through `Cache`; nothing else names a tier.
//! - Decisions about look-ups, waiters and limits are functions of values; `decide` and `next_move` have tables of every case beside
//!   them.
//! - `request/respond.rs` alone turns errors into statuses. Causes go to the log and to `Cache-Status`, and into a response only if the
//!   site exposes them.
//!
//! Threads: one per worker, each with a `current_thread` runtime, its own listeners (`SO_REUSEPORT`) and its own
//! connections; tasks never move. Workers share the memory tier, the table of forwards in progress, the pools of
//! origin connections and the configuration in force.
//!
//! Locks, none of them held across an await: a shard of the table of fetches, then one fetch's progress; a fill's state.

mod active;
mod allowances;
mod compression;
pub mod config;
mod connection_table;
pub mod events;
mod explain;
mod gateway;
mod in_step;
#[cfg(test)]
mod model;
mod pace;
mod protection;
mod purge;
mod question;
mod request;
mod rewrite;
mod routing;
mod server;
mod stores;
pub mod transform;
mod urls;
mod worker;

pub use gateway::{Gateway, GatewayControl, NotReloaded, Start, StartError, StoreMeasures};
pub use http1::{BodyError, RequestError};
pub use purge::{InstanceReach, PurgeError, PurgeHints, PurgeOrder, PurgeOutcome, PurgeReach, SiteUrls};
pub use question::{ExplainError, Explanation, Question};
pub use routing::{path_spellings, route_of};
pub use server::sockets::SocketOwner;
pub use server::tls::ServedCertificate;
pub use store::purge::{PurgeMode, TagsMatch};
