//! Visiting stored records, a few at a time.

use std::hash::RandomState;
use std::sync::Arc;

use quick_cache::sync::Iter;

use super::shared::Shared;
use super::table::{Departures, EntryKey, Value, Weights};
use crate::Record;

/// A walk over the records. It takes a short shared lock for each entry, and sees every one that was there when the walk began and still
/// is.
pub struct Walk<'m, R: Record> {
    entries: Iter<'m, EntryKey, Value<R>, Weights, RandomState, Departures<R>>,
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
