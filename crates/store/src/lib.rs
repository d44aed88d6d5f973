//! Storage tiers of the cache: memory, and tiers behind it that other processes share.
//!
//! This crate decides which entries stay in memory and which are evicted, and counts the live bytes in each class. It never reads a header
//! field or judges freshness. The memory tier never reads a clock or waits; its only files are anonymous ones in memory. Code that waits is
//! in [`backing`] and [`remote`].
//!
//! # Objects
//!
//! A cache key (opaque, injective bytes) has one *primary record*, a type of the gateway that implements [`Record`]. A small body is part
//! of it. A large body is cut into immutable [`Segment`]s of at most [`SEGMENT_BYTES_MAX`], each addressed by a [`SegmentId`], stored and
//! evicted separately; a missing segment is a hole to be fetched again, never an error.
//!
//! # Bytes
//!
//! A [`Budget`] counts every live byte in one of three classes: *filling* (reserved, not stored yet), *stored* (reachable through the
//! table) and *pinned* (evicted, replaced or removed, but still being read). Each record and each segment owns a [`Charge`], which leaves
//! the budget when its last holder drops it. The sum never exceeds `bytes_max`: if a reservation doesn't fit, the memory tier evicts
//! entries, and if that doesn't help, the reservation is refused.
//!
//! # Cost
//!
//! An entry costs [`ENTRY_OVERHEAD_BYTES`] in addition to its key and record, and a segment [`Segment::OVERHEAD_BYTES`] more; both are
//! counted. A look-up takes about 25 ns and doesn't allocate. `benches/README.md` has the figures, and the reasons for using quick_cache as
//! the table.
//!
//! # Main types
//!
//! - [`Memory`]: the memory tier, synchronous, shared by all cores.
//! - [`Budget`], [`Charge`]: accounting. [`Segment`], [`SegmentGroup`]: bodies.
//! - [`purge::PurgeRecord`], [`purge::PurgeIndex`]: purges, which put responses out of use without searching for them.
//! - [`backing::Backing`]: the contract of tiers behind memory, which other processes share. [`remote::Remote`]: one such tier.
//!
//! # Locks
//!
//! Locks are taken in this order: the lock of a key (one of a fixed set, held by [`Memory::update`] while its closure runs), the ballast,
//! the list of groups that other processes know, a shard of the table. Records are dropped after the last lock is released, because
//! dropping one may remove segments, which locks the list and shards.
//!
//! ```
//! use std::sync::Arc;
//! use store::{Change, Charge, Memory, MemoryConfig, Record};
//!
//! struct Page {
//!     body: Box<[u8]>,
//!     charge: Charge,
//! }
//!
//! impl Record for Page {
//!     fn charge(&self) -> &Charge {
//!         &self.charge
//!     }
//!     fn expires_at_ms(&self) -> Option<u64> {
//!         None
//!     }
//!     fn responses(&self) -> u64 {
//!         1
//!     }
//! }
//!
//! let memory = Memory::new(MemoryConfig::with_bytes_max(16 << 20));
//! let body: Box<[u8]> = b"hello".as_slice().into();
//! let bytes = size_of::<Page>() + store::allocated_bytes(body.len());
//! let charge = memory.budget().reserve_record(bytes).unwrap();
//! memory.update(b"key", |_current| Change::Put(Arc::new(Page { body, charge })));
//! assert_eq!(&*memory.get(b"key").unwrap().body, b"hello");
//! ```

mod address;
pub mod backing;
mod budget;
mod files;
pub mod fleet;
pub mod format;
mod memory;
pub mod purge;
mod record;
pub mod remote;
#[cfg(any(test, feature = "sample-record"))]
pub mod sample;
mod segment;
mod slice;

pub use address::{FillId, SEGMENT_BYTES_MAX, SegmentId};
pub use budget::{ARC_HEADER_BYTES, Budget, Charge, OverBudget, allocated_bytes};
pub use files::FilesUnavailable;
pub use memory::{ENTRY_OVERHEAD_BYTES, Memory, MemoryConfig, SegmentGroup, Sweep, SweepStep, Usage, Walk};
pub use record::{Applied, Change, Record, Refusal, SegmentPut};
pub use segment::{Placement, Segment};
pub use slice::{FileRange, Slice};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
