//! `make compare WHAT=kv`: the kv server beside the null server, Redis and memcached.
//!
//! The shape is that of the gateway's rows: one core for the server, the other for the load; all servers of a row run
//! and take turns; what counts is how long the server's core was not idle.

mod budgets;
mod memory;
mod misses;
mod speed;
mod store;
mod tail;
mod tools;
mod workers;

pub(crate) use budgets::of as budgets;
pub(crate) use misses::Eviction;
pub(crate) use store::Store;

use std::path::Path;

use crate::Effort;
use crate::plan::What;
use crate::row::Row;

/// The rows of one part.
///
/// # Errors
/// When a server gives wrong replies, or the generator fails.
pub(crate) fn measure(larder: &Path, what: What, effort: Effort) -> anyhow::Result<Vec<Row>> {
    match what {
        What::KvGet | What::KvSet | What::KvValues | What::KvKeys => speed::measure(larder, what, effort),
        What::KvMemory => memory::measure(larder),
        What::KvWorkers => Ok(vec![workers::measure(larder, effort)?]),
        What::KvTail => tail::measure(larder, effort),
        What::KvTools => tools::measure(larder, effort),
        What::MissRatio => misses::measure(larder),
        _ => Ok(Vec::new()),
    }
}

/// Where keys are few enough to stay in the processor's caches.
const HOT_KEYS: u64 = 100_000;
