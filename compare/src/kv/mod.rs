//! `make compare WHAT=kv`: the kv server compared with the null server, Redis and memcached.
//!
//! The rows are measured like the rows of the gateway: one core for the server, another for the load. All servers of a row run and take
//! turns. The figure is the time that the server's core was not idle.

mod budgets;
mod memory;
mod speed;
mod store;
mod tools;
mod turns;

pub(crate) use budgets::of as budgets;
pub(crate) use store::Store;

use std::path::Path;

use crate::Effort;
use crate::plan::What;
use crate::row::Row;

/// Measures the rows of one part.
///
/// # Errors
/// Returns an error if a server gives wrong replies, or the generator fails.
pub(crate) fn measure(wish: &Wish<'_>, what: What) -> anyhow::Result<Vec<Row>> {
    match what {
        What::KvGet | What::KvSet | What::KvValues | What::KvKeys => speed::measure(wish, what),
        What::KvMemory => memory::measure(wish),
        What::KvTools => tools::measure(wish),
        _ => Ok(Vec::new()),
    }
}

/// The rows that the user requested, and the settings to measure them with.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) larder: &'a Path,
    pub(crate) effort: Effort,
    /// Only rows with this text in their title.
    pub(crate) only: Option<&'a str>,
}

impl Wish<'_> {
    fn has(&self, title: &str) -> bool {
        self.only.is_none_or(|text| title.contains(text))
    }
}

/// Few enough keys to stay in the processor's caches.
const HOT_KEYS: u64 = 100_000;
/// Size of a value, unless the row specifies another.
const VALUE_BYTES: usize = 12;
