//! Walks over the table, a few entries at a time, for background expiry and for visits to stored records.

use std::hash::RandomState;
use std::sync::Arc;

use quick_cache::sync::Iter;

use super::shared::{Shared, is_expired};
use super::table::{Departures, EntryKey, Value, Weights};
use crate::Record;

type Entries<'m, R> = Iter<'m, EntryKey, Value<R>, Weights, RandomState, Departures<R>>;

/// A walk over the table that removes expired records. It takes a short shared lock for each entry, and reaches every entry that existed
/// when the walk began.
pub struct Sweep<'m, R: Record> {
    shared: &'m Shared<R>,
    entries: Entries<'m, R>,
}

/// Result of one step of a [`Sweep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepStep {
    /// Expired records that were removed.
    pub expired: usize,
    /// Whether the walk is over.
    pub end: bool,
}

impl<'m, R: Record> Sweep<'m, R> {
    pub(super) fn new(shared: &'m Shared<R>) -> Self {
        shared.count_slack();
        Self { shared, entries: shared.table.iter() }
    }

    /// Visits up to `entries_max` entries, and removes the records that have expired at `now_ms`.
    pub fn step(&mut self, now_ms: u64, entries_max: usize) -> SweepStep {
        let mut seen = 0;
        let mut expired = 0;
        for (key, value) in self.entries.by_ref().take(entries_max) {
            seen += 1;
            let due = is_expired(&value, now_ms);
            drop(value);
            expired += usize::from(due && self.shared.remove_if_expired(key.lookup(), now_ms));
        }
        SweepStep { expired, end: seen < entries_max }
    }
}

/// A walk over the records. It takes a short shared lock for each entry, and reaches every record that existed when the walk began and
/// still exists.
pub struct Walk<'m, R: Record> {
    entries: Entries<'m, R>,
}

impl<'m, R: Record> Walk<'m, R> {
    pub(super) fn new(shared: &'m Shared<R>) -> Self {
        Self { entries: shared.table.iter() }
    }

    /// Visits up to `entries_max` entries, and passes the records among them to `visit` with their keys. Returns `false` at the end.
    pub fn step(&mut self, entries_max: usize, mut visit: impl FnMut(&[u8], &Arc<R>)) -> bool {
        let mut seen = 0;
        for (key, value) in self.entries.by_ref().take(entries_max) {
            seen += 1;
            if let (EntryKey::Record(key), Value::Record(record)) = (&key, &value) {
                visit(key, record);
            }
        }
        seen == entries_max
    }
}
