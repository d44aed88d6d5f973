//! Tests of the crate, one concern per module.

mod bounds;
mod budget;
mod concurrency;
mod groups;
mod lifetimes;
mod model;
mod promises;

use std::sync::Arc;

use crate::sample::SampleRecord;
use crate::{Applied, Change, Memory, MemoryConfig};

fn memory(bytes_max: u64) -> Memory<SampleRecord> {
    Memory::new(MemoryConfig::with_bytes_max(bytes_max))
}

fn record(memory: &Memory<SampleRecord>, payload: &[u8]) -> Arc<SampleRecord> {
    SampleRecord::new(memory.budget(), payload).unwrap()
}

fn put(memory: &Memory<SampleRecord>, key: &[u8], payload: &[u8]) -> Applied {
    let record = record(memory, payload);
    memory.update(key, |_| Change::Put(record))
}

fn expiring(memory: &Memory<SampleRecord>, expires_at_ms: u64) -> Arc<SampleRecord> {
    let charge = memory.budget().reserve_record(size_of::<SampleRecord>()).unwrap();
    Arc::new(SampleRecord { payload: [].into(), expires_at_ms: Some(expires_at_ms), charge })
}

/// Checks that the classes add up to the live bytes, within the limit.
fn assert_sums(memory: &Memory<SampleRecord>) {
    let usage = memory.usage();
    let sum = usage.stored_bytes + usage.filling_bytes + usage.pinned_bytes;
    assert_eq!(sum, memory.budget().live_bytes());
    assert!(sum <= usage.bytes_max, "{usage:?}");
}
