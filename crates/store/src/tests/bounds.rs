//! The limit holds under any traffic, and the memory is used.

use std::sync::Arc;

use super::{assert_sums, memory, put};
use crate::sample::SampleRecord;
use crate::{Applied, Change, Memory, Placement, Segment, SegmentId, Usage};

const BYTES_MAX: u64 = 4 << 20;

/// A small random generator with a fixed seed; its high bits are good enough for traffic.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn ten_times_the_capacity_stays_within_the_limit() {
    let memory = memory(BYTES_MAX);
    let mut numbers = Numbers(1);
    let mut offered = 0;
    while offered < 10 * BYTES_MAX {
        let bytes = numbers.below(20_000) as usize;
        offered += bytes as u64;
        put(&memory, &numbers.below(10_000).to_le_bytes(), &vec![0; bytes]);
        assert_sums(&memory);
    }
    let usage = memory.usage();
    assert!(usage.evictions > 0);
    assert_eq!(usage.reservations_refused + usage.admissions_refused, 0, "{usage:?}");
    assert!(usage.stored_bytes > BYTES_MAX * 9 / 10, "the room is used: {usage:?}");
}

fn fill_with_records(memory: &Memory<SampleRecord>) {
    (0..BYTES_MAX / 2000)
        .for_each(|n| assert_eq!(put(memory, &n.to_le_bytes(), &[0; 4000]), Applied::Stored));
}

#[test]
fn fills_take_room_from_stored_bytes_and_give_it_back() {
    let memory = memory(BYTES_MAX);
    fill_with_records(&memory);
    let full = memory.usage().stored_bytes;
    let fills: Vec<_> = std::iter::from_fn(|| memory.budget().reserve(10_000).ok()).collect();
    let filling = memory.usage();
    assert!(filling.filling_bytes > BYTES_MAX / 2 - 10_000, "fills may use their share: {filling:?}");
    assert!(filling.stored_bytes > BYTES_MAX * 4 / 10, "and no more than that: {filling:?}");
    assert_sums(&memory);
    drop(fills);
    fill_with_records(&memory);
    assert!(memory.usage().stored_bytes >= full * 99 / 100, "{:?}", memory.usage());
}

#[test]
fn readers_of_everything_cannot_push_the_sum_over_the_limit() {
    let memory = memory(BYTES_MAX);
    let mut readers = Vec::new();
    for n in 0..10_000u64 {
        let Ok(record) = SampleRecord::new(memory.budget(), &[0; 1000]) else { continue };
        memory.update(&n.to_le_bytes(), |_| Change::Put(record));
        readers.extend(memory.get(&n.to_le_bytes()));
        assert_sums(&memory);
    }
    assert!(memory.usage().reservations_refused > 0, "what is read cannot be evicted");
    drop(readers);
    fill_with_records(&memory);
    assert!(memory.usage().stored_bytes > BYTES_MAX * 9 / 10, "{:?}", memory.usage());
    assert_eq!(memory.usage().pinned_bytes, 0);
}

#[test]
fn a_hopeless_reservation_evicts_nothing() {
    let memory = memory(BYTES_MAX);
    fill_with_records(&memory);
    let before = memory.usage();
    for bytes in [BYTES_MAX as usize + 1, usize::MAX] {
        assert!(memory.budget().reserve(bytes).is_err());
        assert!(memory.budget().reserve_record(bytes).is_err());
    }
    assert_eq!(Usage { reservations_refused: 0, ..memory.usage() }, before);
}

#[test]
fn segments_and_records_share_the_limit() {
    let memory = memory(BYTES_MAX);
    let groups: Vec<_> = (0..40).map(|_| Arc::new(memory.open_group())).collect();
    for group in &groups {
        let segment =
            Segment::copy(memory.budget(), Placement::File, &vec![0; memory.segment_bytes_max()]).unwrap();
        group.put(0, segment);
        put(&memory, &group.fill().sequence.to_le_bytes(), &[0; 100]);
        assert_sums(&memory);
    }
    let held = groups.iter().filter(|group| group.segment(0).is_some()).count();
    assert!((11..=16).contains(&held), "a sixteenth of the tier each, {held} held");
    drop(groups);
    assert_eq!(memory.usage().segments, 0);
}

#[test]
fn orphans_are_evicted_like_anything_else() {
    let memory = memory(BYTES_MAX);
    let fill = crate::FillId::next();
    for index in 0..1000 {
        let segment = Segment::copy(memory.budget(), Placement::File, &[0; 50_000]).unwrap();
        memory.put_segment(SegmentId { fill, index }, segment);
        assert_sums(&memory);
    }
    assert!(memory.usage().segments < 100);
}

#[test]
fn a_scan_does_not_evict_what_is_read_often() {
    let memory = memory(BYTES_MAX);
    let hot: Vec<_> = (0..100u64).map(|n| (n + 1_000_000).to_le_bytes()).collect();
    for _ in 0..3 {
        for key in &hot {
            if memory.get(key).is_none() {
                put(&memory, key, &[0; 1000]);
            }
        }
    }
    for n in 0..20_000u64 {
        put(&memory, &n.to_le_bytes(), &[0; 1000]);
        memory.get(&hot[n as usize % hot.len()]);
    }
    let left = hot.iter().filter(|key| memory.get(*key).is_some()).count();
    assert!(left >= 99, "{left} of 100 left");
}

#[test]
fn table_memory_that_no_entry_pays_for_is_counted() {
    let memory = memory(BYTES_MAX);
    (0..15_000u64).for_each(|n| assert_eq!(put(&memory, &n.to_le_bytes(), b""), Applied::Stored));
    (0..15_000u64).for_each(|n| assert!(memory.remove(&n.to_le_bytes())));
    assert_eq!(memory.budget().live_bytes(), 0);
    memory.sweep();
    assert!(memory.usage().stored_bytes > 100_000, "{:?}", memory.usage());
    assert_sums(&memory);
}
