//! Ballast: how stored bytes make room for bytes outside the table.
//!
//! The table knows only its own entries. So each shard has one ballast entry, which is never evicted. It weighs as much as the shard's
//! share of all live bytes outside the table, so the table's own policy evicts entries that no longer fit. Lowering the table's capacity
//! instead would also work, but each change of it rounds down the number of evicted keys that the policy remembers, until it remembers
//! none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::table::{Departed, EntryKey, Lookup, Table, Value};
use crate::Record;

pub(super) struct Ballast {
    /// Keys of the ballast entries, one per shard.
    keys: Box<[EntryKey]>,
    /// Weight of all ballast entries together.
    pub(super) bytes: AtomicU64,
    /// The ballast changes in steps of this size, so that it changes rarely.
    pub(super) step_bytes: u64,
    pub(super) moving: Mutex<()>,
}

impl Ballast {
    pub(super) fn new<R: Record>(table: &Table<R>, bytes_max: u64) -> Self {
        let key_of = |shard| {
            (0..).find(|&salt| table.shard_index(&Lookup::Ballast(salt)) == shard).map(EntryKey::Ballast)
        };
        let keys = (0..table.num_shards()).filter_map(key_of).collect();
        let step_bytes = (bytes_max / STEPS).max(1);
        let ballast = Self { keys, bytes: AtomicU64::new(0), step_bytes, moving: Mutex::new(()) };
        // The first value is light, so the entries start on the hot side and stay there.
        ballast.place(table, 0);
        ballast
    }

    /// Sets the weight of the ballast. Returns the evicted entries.
    pub(super) fn place<R: Record>(&self, table: &Table<R>, bytes: u64) -> Departed<R> {
        let mut departed = Departed::new();
        let share = bytes.div_ceil(self.keys.len() as u64);
        for key in &self.keys {
            table.insert_with_lifecycle(key.clone(), Value::Ballast(share), &mut departed);
        }
        self.bytes.store(bytes, Relaxed);
        departed
    }
}

const STEPS: u64 = 128;
