//! Coordination of instances that share a tier: look-ups and writes behind memory, leases, and the purge log.
//!
//! A single instance doesn't need this crate: `cache` works the same without it. [`Tier`] is the tier behind a memory,
//! and implements [`cache::RemoteTier`] for the cache.

pub mod answer;
pub mod counts;
#[cfg(feature = "test-double")]
pub mod faults;
mod late_write_guard;
pub mod leases;
mod names;
pub mod origins;
pub mod purge_log;
mod queue;
pub mod regions;
pub mod segments;
mod single_flight;
pub mod tier;
mod touch;
pub mod turn;
mod write_behind;

pub use self::tier::{Coherence, Left, MemoryUse, StartTier, TIER_WRITERS, Tier};
