//! The HTTP data plane: connections of clients, the pipeline of a request, routing, rewriting and protection.
//!
//! Answers requests from the cache or from origin servers, and stores responses. `caching` decides what may be stored and reused;
//! `http1` and `h2` parse bytes into messages; `store` decides where bytes are kept; `origin` sends requests to origin servers. This
//! crate carries out the decisions. The crate never reads arguments, files or the environment: it receives a checked
//! [`config::Config`].
//!
//! Read `request/pipeline.rs` first. This file shows the life of a request as a list of steps. `ARCHITECTURE.md` has the steps with all
//! their outcomes, and the folders of this crate from the top down.
//!
//! - A step returns the next step, and never calls another step. Each step records one fact for `Cache-Status` and one metric.
//! - All access to stored responses goes through `Cache`; no other code refers to a tier.
//! - Decisions about look-ups, waiters and limits are functions of values; the tables of `decide` and `next_move` list every case.
//! - Only `request/respond.rs` turns errors into statuses. Causes of errors appear in the log and in `Cache-Status`, and in response
//!   bodies only if the site exposes them.
//!
//! Threads: one per worker, each with a `current_thread` runtime, its own listeners (`SO_REUSEPORT`) and its own connections. A task
//! never moves to another worker. Workers share the memory tier, the table of forwards in progress, the pools of origin connections and
//! the configuration in force.
//!
//! Lock order: a shard of the table of fetches, then the progress of one fetch. The state of a fill is a separate lock. No lock is held
//! across an await.

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
pub use purge::{
    InstanceReach, PurgeError, PurgeHints, PurgeOrder, PurgeOutcome, PurgeReach, PurgeWait, RegionReach,
    SiteUrls,
};
pub use question::{ExplainError, Explanation, Question};
pub use routing::{path_spellings, route_of};
pub use server::sockets::SocketOwner;
pub use server::tls::ServedCertificate;
pub use store::purge::{PurgeMode, TagsMatch};
