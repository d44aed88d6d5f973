//! Table of the memory tier: keys, values, weights and departures.

use std::hash::{Hash, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Lifecycle, OptionsBuilder, Weighter};

use crate::{Charge, FillId, Record, Segment, SegmentId, allocated_bytes};

/// Table of records and segments. Both share one table, so that one policy weighs them against each other.
pub(super) type Table<R> = Cache<EntryKey, Value<R>, Weights, RandomState, Departures<R>>;

#[derive(Clone, PartialEq, Eq)]
pub(super) enum EntryKey {
    Record(Box<[u8]>),
    /// A [`SegmentId`], split up to leave room for the tag: every entry of the table is as large as the largest variant.
    Segment {
        process: u64,
        sequence: u64,
        index: u32,
    },
    /// An entry that represents bytes outside the table; it is never evicted.
    Ballast(u64),
}

/// A borrowed key, for look-ups without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup<'a> {
    Record(&'a [u8]),
    Segment(SegmentId),
    Ballast(u64),
}

pub(super) enum Value<R> {
    Record(Arc<R>),
    Segment(Segment),
    Ballast(u64),
}

/// Bytes that an entry uses in the table in addition to its key and value: its slot in the slab (56), its slot in the index (6 to 11), and
/// half of another slot for growth and the remembered keys of evicted entries. Table memory that exceeds these charges counts as slack.
pub const ENTRY_OVERHEAD_BYTES: u64 = 96;

impl EntryKey {
    pub(super) fn lookup(&self) -> Lookup<'_> {
        match self {
            Self::Record(key) => Lookup::Record(key),
            Self::Segment { process, sequence, index } => {
                let fill = FillId { process: *process, sequence: *sequence };
                Lookup::Segment(SegmentId { fill, index: *index })
            }
            Self::Ballast(shard) => Lookup::Ballast(*shard),
        }
    }
}

impl Lookup<'_> {
    pub(super) fn to_key(self) -> EntryKey {
        match self {
            Self::Record(key) => EntryKey::Record(key.into()),
            Self::Segment(SegmentId { fill: FillId { process, sequence }, index }) => {
                EntryKey::Segment { process, sequence, index }
            }
            Self::Ballast(shard) => EntryKey::Ballast(shard),
        }
    }

    /// Returns the number of bytes that the entry uses in addition to its value.
    pub(super) fn overhead_bytes(&self) -> u64 {
        match self {
            Self::Record(key) => allocated_bytes(key.len()) as u64 + ENTRY_OVERHEAD_BYTES,
            Self::Segment(_) => ENTRY_OVERHEAD_BYTES,
            Self::Ballast(_) => 0,
        }
    }
}

impl Hash for Lookup<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Record(key) => state.write(key),
            Self::Segment(id) => id.hash(state),
            Self::Ballast(shard) => state.write_u64(*shard),
        }
    }
}

impl Hash for EntryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lookup().hash(state);
    }
}

impl Equivalent<EntryKey> for Lookup<'_> {
    fn equivalent(&self, key: &EntryKey) -> bool {
        *self == key.lookup()
    }
}

impl<R: Record> Value<R> {
    pub(super) fn charge(&self) -> Option<&Charge> {
        match self {
            Self::Record(record) => Some(record.charge()),
            Self::Segment(segment) => Some(segment.charge()),
            Self::Ballast(_) => None,
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Record(one), Self::Record(two)) => Arc::ptr_eq(one, two),
            (Self::Segment(one), Self::Segment(two)) => one.is_same(two),
            _ => false,
        }
    }
}

impl<R> Clone for Value<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Record(record) => Self::Record(Arc::clone(record)),
            Self::Segment(segment) => Self::Segment(segment.clone()),
            Self::Ballast(bytes) => Self::Ballast(*bytes),
        }
    }
}

/// Weighs entries exactly as the budget counts them.
#[derive(Clone)]
pub(super) struct Weights;

impl<R: Record> Weighter<EntryKey, Value<R>> for Weights {
    fn weight(&self, key: &EntryKey, value: &Value<R>) -> u64 {
        match value {
            // The weight is at least 1, because the table treats weightless entries differently.
            Value::Ballast(bytes) => (*bytes).max(1),
            Value::Record(record) => key.lookup().overhead_bytes() + record.charge().bytes() as u64,
            Value::Segment(segment) => key.lookup().overhead_bytes() + segment.charge().bytes() as u64,
        }
    }
}

/// Collects the entries that leave the table during one insertion, so that they are accounted for and dropped outside the table's locks.
/// The table also reports replaced entries here, but returns removed ones.
pub(super) struct Departures<R>(PhantomData<fn() -> R>);

impl<R> Clone for Departures<R> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

/// Entries that have left the table.
pub(super) type Departed<R> = Vec<(EntryKey, Value<R>)>;

impl<R> Lifecycle<EntryKey, Value<R>> for Departures<R> {
    type RequestState = Departed<R>;

    fn is_pinned(&self, _key: &EntryKey, value: &Value<R>) -> bool {
        matches!(value, Value::Ballast(_))
    }

    fn on_evict(&self, departed: &mut Departed<R>, key: EntryKey, value: Value<R>) {
        departed.push((key, value));
    }
}

/// Builds a table for `bytes_max`. There are few, large shards, because each must hold many of the largest entries. More shards would gain
/// little: cores contend for single hot entries, not for many writes.
pub(super) fn build<R: Record>(bytes_max: u64, entries_expected: u64, hasher: RandomState) -> Table<R> {
    let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
    let options = OptionsBuilder::new()
        .shards(1 << shards.ilog2())
        .estimated_items_capacity(entries_expected as usize)
        .weight_capacity(bytes_max)
        .hot_allocation(HOT_SHARE)
        .build()
        .expect("all required options are set");
    Table::with_options(options, Weights, hasher, Departures(PhantomData))
}

/// Share of hot entries. Other entries are on probation, where a new body must survive until its next request; see `benches/README.md`.
const HOT_SHARE: f64 = 0.9;
const SHARD_BYTES_MIN: u64 = 64 << 20;
const SHARDS_MAX: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SampleRecord;

    #[test]
    fn a_slot_of_the_table_stays_small() {
        assert_eq!((size_of::<EntryKey>(), size_of::<Value<SampleRecord>>()), (24, 16));
    }
}
