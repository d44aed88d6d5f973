//! The storage engine of `larder kv`: keys and values in memory, within a limit.
//!
//! The engine decides where items are stored, and which are evicted when memory is full. The engine has no
//! protocol, no sockets and no clock: each call takes the time as an argument.
//!
//! An [`Engine`] is a set of [`Shard`]s, each with its own lock (or all with one, if there is only one
//! thread). A call locks the shard of its key, and a call with several keys locks all of their shards. A
//! [`Batch`] is a sequence of calls, in which memory can be prefetched. In a shard, items are appended to
//! segments of 256 KiB, and an index of about ten bytes per key records their positions. Nothing is allocated
//! per item, so memory doesn't fragment and its limit is exact. To free memory, a segment is emptied; the
//! [`Policy`] determines which of its items are kept.
//!
//! `chunks/` obtains memory from the system, and `saved/` serialises a data set. `docs/internals/kv.md`
//! explains the design and the use of memory. The seed of the hash is an argument, too, so that tests can
//! compare each step with a model.
//!
//! ```
//! use engine::{Access, Database, Engine, Expiry, Policy, Settings};
//!
//! let engine = Engine::new(&Settings { bytes_max: 64 << 20, policy: Policy::default(), seed: 1, threads: 1 });
//! let key = engine.key(Database::default(), b"greeting");
//! engine.lock(&key).set(b"hello", Expiry::At(5_000), 1_000)?;
//! let mut found = engine.lock(&key);
//! assert_eq!(found.get(Access::Use, 4_999).map(|found| found.value.to_vec()), Some(b"hello".to_vec()));
//! assert!(found.get(Access::Use, 5_000).is_none());
//! # Ok::<(), engine::OutOfMemory>(())
//! ```

mod bucket;
mod budget;
mod chance;
mod check;
mod chunks;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod cipher;
mod engine;
mod expire;
mod ghosts;
mod hash;
mod index;
mod item;
mod large;
mod located;
mod losses;
mod packed;
mod policy;
mod prefetch;
mod queue;
mod reclaim;
mod renamed;
mod reserve;
mod room;
mod saved;
mod scan;
mod segment;
mod shard;
mod siphash;
mod slot;
mod sync;

pub use chunks::Preparer;
pub use engine::{Batch, Cleared, Engine, Guard, Locked, Settings};
pub use hash::{Database, Key};
pub use index::Hint;
pub use large::Edited;
pub use located::Located;
pub use losses::{Cause, Removal, Removals};
pub use packed::{Packed, Stored};
pub use policy::{Policy, UnknownPolicy};
pub use reserve::Entry;
pub use room::{HandedOver, Stretched};
pub use saved::{Exported, Progress, Saved, SavedError, Source};
pub use scan::Step;
pub use shard::{Access, Counts, Expiry, Found, Lifetimes, OutOfMemory, Shard, Value};
