//! How stored bytes make room for bytes outside of the table.
//!
//! The table knows only its own entries. One ballast entry per shard, never evicted, weighs as much as the shard's
//! share of all bytes that are live outside of the table, so the table's own policy evicts what no longer fits.
//! Lowering the table's capacity instead would also work, but each change of it rounds down the number of evicted
//! keys that the policy remembers, until it remembers none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::table::{Departed, ENTRY_OVERHEAD_BYTES, EntryKey, Lookup, Table, Value};
use super::{Record, Shared};
use crate::budget::GiveWay;

pub(super) struct Ballast {
    /// One key for each shard.
    keys: Box<[EntryKey]>,
    /// What the ballast entries weigh together.
    bytes: AtomicU64,
    /// The ballast moves in steps, so that it moves rarely.
    step_bytes: u64,
    moving: Mutex<()>,
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

    /// Sets the weight of the ballast; returns what was evicted.
    fn place<R: Record>(&self, table: &Table<R>, bytes: u64) -> Departed<R> {
        let mut departed = Departed::new();
        let share = bytes.div_ceil(self.keys.len() as u64);
        for key in &self.keys {
            table.insert_with_lifecycle(key.clone(), Value::Ballast(share), &mut departed);
        }
        self.bytes.store(bytes, Relaxed);
        departed
    }
}

impl<R: Record> Shared<R> {
    /// Lets stored bytes have back what fills and readers no longer hold.
    pub(super) fn relax_ballast(&self) {
        let Ballast { bytes, step_bytes, .. } = &self.ballast;
        if bytes.load(Relaxed) > self.budget.held_bytes() + 3 * step_bytes {
            self.move_ballast(0);
        }
    }

    /// Counts table memory that was grown for more entries than there are now.
    pub(super) fn count_slack(&self) {
        let paid_bytes = self.table.len() as u64 * ENTRY_OVERHEAD_BYTES;
        let table_bytes = self.table.memory_used().total() as u64;
        self.budget.set_slack(table_bytes.saturating_sub(paid_bytes));
        if self.budget.live_bytes() > self.budget.bytes_max() {
            self.move_ballast(0);
        }
    }

    fn move_ballast(&self, more_bytes: u64) {
        let departed = {
            let _moving = self.ballast.moving.lock();
            let bytes_max = self.budget.bytes_max();
            let outside = self.budget.held_bytes().saturating_add(more_bytes).min(bytes_max);
            let wanted = outside.next_multiple_of(self.ballast.step_bytes) + self.ballast.step_bytes;
            self.ballast.place(&self.table, wanted.min(bytes_max))
        };
        let evicted = departed.iter().filter(|(_, value)| value.charge().is_some()).count();
        self.counts.evictions.fetch_add(evicted as u64, Relaxed);
        departed.iter().for_each(|(key, value)| self.leave(key, value));
    }
}

impl<R: Record> GiveWay for Shared<R> {
    fn give_way(&self, bytes: u64) {
        self.move_ballast(bytes);
    }
}

const STEPS: u64 = 128;
