//! The memory tier with several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::{assert_sums, memory, put, record};
use crate::sample::SampleRecord;
use crate::{Change, Placement, Segment};

/// A known bug of other caches: an entry that is replaced by removal and insertion is briefly missing.
#[test]
fn hot_key_32_readers_no_miss() {
    let memory = memory(8 << 20);
    put(&memory, b"hot", b"0");
    let done = AtomicBool::new(false);
    let misses = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    misses.fetch_add(usize::from(memory.get(b"hot").is_none()), Ordering::Relaxed);
                }
            });
        }
        for n in 0..2000u32 {
            put(&memory, b"hot", &n.to_le_bytes());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(misses.into_inner(), 0);
    assert_eq!(memory.usage().pinned_bytes, 0);
}

#[test]
fn updates_of_one_key_lose_nothing() {
    let memory = memory(8 << 20);
    let count = |current: Option<&Arc<SampleRecord>>| match current {
        Some(record) => u64::from_le_bytes(record.payload[..].try_into().unwrap()),
        None => 0,
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    memory.update(b"count", |current| {
                        Change::Put(record(&memory, &(count(current) + 1).to_le_bytes()))
                    });
                }
            });
        }
    });
    assert_eq!(count(memory.get(b"count").as_ref()), 4000);
}

/// Readers, writers, fills and sweeps at the limit. The live bytes never exceed it, and all counters agree once the threads have ended.
#[test]
fn the_limit_holds_under_threads() {
    let memory = memory(2 << 20);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let memory = memory.clone();
            scope.spawn(move || (0..3000u64).for_each(|n| traffic(&memory, thread, n)));
        }
    });
    assert_sums(&memory);
    assert_eq!((memory.usage().filling_bytes, memory.usage().pinned_bytes), (0, 0));
    assert!(memory.usage().evictions > 0);
    let before = memory.usage();
    let counted = (0..500u64).filter(|n| memory.remove(&n.to_le_bytes())).count();
    assert_eq!(before.entries, counted as u64);
}

fn traffic(memory: &crate::Memory<SampleRecord>, thread: u64, n: u64) {
    let key = (n * 7 + thread * 13) % 500;
    let bytes = (n * 131 % 8000) as usize;
    let fill = memory.budget().reserve(bytes);
    if let Ok(record) = SampleRecord::new(memory.budget(), &vec![0; bytes]) {
        memory.update(&key.to_le_bytes(), |_| Change::Put(record));
    }
    let reader = memory.get(&((key + 1) % 500).to_le_bytes());
    let group = memory.open_group();
    if let Ok(segment) = Segment::copy(memory.budget(), Placement::File, &vec![0; bytes]) {
        group.put(0, segment);
    }
    if n.is_multiple_of(10) {
        memory.remove(&((key + 2) % 500).to_le_bytes());
    }
    if n.is_multiple_of(500) {
        let mut sweep = memory.sweep();
        while !sweep.step(n, 100).end {}
    }
    assert!(memory.budget().live_bytes() <= memory.budget().bytes_max());
    drop((fill, reader, group));
}

#[test]
fn handles_cross_threads() {
    fn crosses<T: Send>() {}
    crosses::<crate::Memory<SampleRecord>>();
    crosses::<crate::Sweep<'static, SampleRecord>>();
    crosses::<crate::SegmentGroup>();
    crosses::<Segment>();
    crosses::<crate::Charge>();
}
