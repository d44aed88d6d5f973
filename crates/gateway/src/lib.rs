//! The HTTP data plane: listener, exchange, route, collapse, origin, transform.
//!
//! Takes requests in, answers them from the cache or from origin servers, and keeps what may be kept. What may be
//! stored and reused is decided in `caching`; what bytes mean is decided in `http1` and `h2`; where bytes are kept
//! is decided in `store`. This crate acts. It never reads arguments, files or the environment: a checked
//! [`config::Config`] comes in whole.
//!
//! A newcomer reads `request/exchange.rs` first: the life of a request as a list of steps. Then `cache/lookup.rs`
//! (what is there?), `cache/publish/fetch.rs` (ask the origin), `cache/inflight/table.rs` (who waits for it), `cache/inflight/fill/`
//! (a body on its way).
//!
//! Threads: one per worker, each with a `current_thread` runtime, its own listeners (`SO_REUSEPORT`) and its own
//! connections; tasks never move. Workers share the memory tier, the table of forwards in progress, the pools of
//! origin connections and the configuration in force.
//!
//! Locks, none of them held across an await: a shard of the table of fetches, then one fetch's progress; a fill's state.

mod active;
mod allowances;
mod cache;
mod clock;
pub mod config;
pub mod events;
mod fleet;
mod gateway;
mod loops;
mod observe;
mod pace;
mod protection;
mod question;
mod request;
mod rewrite;
mod routing;
mod server;
mod worker;

pub use cache::purge::{
    InstanceReach, PurgeError, PurgeHints, PurgeOrder, PurgeOutcome, PurgeReach, SiteUrls,
};
pub use cache::tiers::counts::TierCounts;
pub use cache::tiers::leases::LeaseLimits;
pub use cache::tiers::{Coherence, MemoryUse, StartTier};
pub use gateway::{Gateway, GatewayControl, NotReloaded, Start, StartError, StoreMeasures};
pub use http1::{BodyError, RequestError};
pub use question::{ExplainError, Explanation, Question};
pub use routing::{path_spellings, route_of};
pub use server::listener::SocketOwner;
pub use server::tls::ServedCertificate;
pub use store::purge::{PurgeMode, TagsMatch};
