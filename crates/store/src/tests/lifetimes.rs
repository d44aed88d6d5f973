//! Records and segments that are replaced, removed or evicted, or that expire.

use std::sync::Arc;

use super::{assert_sums, expiring, memory, put, record};
use crate::{Applied, Change, Placement, Refusal, Segment, SegmentPut, allocated_bytes};

#[test]
fn a_replaced_record_is_pinned_while_it_is_read() {
    let memory = memory(1 << 20);
    put(&memory, b"k", &[1; 1000]);
    let reader = memory.get(b"k").unwrap();
    put(&memory, b"k", &[2; 10]);
    assert_eq!(memory.usage().pinned_bytes, reader.charge.bytes() as u64);
    assert_eq!(memory.usage().evictions, 0, "a replacement is no eviction");
    assert_sums(&memory);
    drop(reader);
    assert_eq!(memory.usage().pinned_bytes, 0);
    assert_eq!(memory.usage().entries, 1);
}

#[test]
fn putting_the_current_record_again_changes_nothing() {
    let memory = memory(1 << 20);
    put(&memory, b"k", &[1; 1000]);
    let before = memory.usage();
    assert_eq!(memory.update(b"k", |current| Change::Put(Arc::clone(current.unwrap()))), Applied::Stored);
    assert_eq!(memory.usage(), before);
}

#[test]
fn a_removed_record_leaves_no_byte() {
    let memory = memory(1 << 20);
    put(&memory, b"k", &[1; 1000]);
    assert!(memory.remove(b"k"));
    assert!(!memory.remove(b"k"));
    assert_eq!(memory.budget().live_bytes(), 0);
    assert_eq!(memory.usage().entries, 0);
}

#[test]
fn a_record_over_the_limit_is_refused_and_takes_the_older_with_it() {
    let memory = memory(1 << 20);
    put(&memory, b"k", b"small");
    let outcome = put(&memory, b"k", &vec![0; 1 << 18]);
    assert_eq!(outcome, Applied::NotStored(Refusal::TooLarge));
    assert!(memory.get(b"k").is_none());
    assert_eq!((memory.usage().admissions_refused, memory.budget().live_bytes()), (1, 0));
}

#[test]
fn expired_records_go_by_sweep_and_on_access() {
    let memory = memory(1 << 20);
    for (key, expires_at_ms) in [(b"a", 100), (b"b", 200), (b"c", 300)] {
        let record = expiring(&memory, expires_at_ms);
        memory.update(key, |_| Change::Put(record));
    }
    put(&memory, b"d", b"never");
    assert!(!memory.remove_if_expired(b"b", 199));
    assert!(memory.remove_if_expired(b"b", 200));
    let mut sweep = memory.sweep();
    let mut steps = 0;
    while !sweep.step(250, 1).end {
        steps += 1;
    }
    assert!(steps >= 3, "a step looks at no more than one entry");
    let left = [b"a", b"b", b"c", b"d"].map(|key| memory.get(key).is_some());
    assert_eq!(left, [false, false, true, true]);
    assert_eq!((memory.usage().expirations, memory.usage().evictions), (2, 0));
    assert_sums(&memory);
}

#[test]
fn a_sweep_leaves_the_successor_of_an_expired_record() {
    let memory = memory(1 << 20);
    let old = expiring(&memory, 100);
    memory.update(b"k", |_| Change::Put(old));
    let mut sweep = memory.sweep();
    let new = expiring(&memory, 1000);
    memory.update(b"k", |_| Change::Put(new));
    assert_eq!(sweep.step(500, 10).expired, 0);
    assert!(memory.get(b"k").is_some());
}

#[test]
fn segments_go_with_the_last_holder_of_their_group() {
    let memory = memory(8 << 20);
    let group = Arc::new(memory.open_group());
    for index in 0..3 {
        let segment = Segment::copy(memory.budget(), Placement::File, &[index as u8; 1000]).unwrap();
        assert_eq!(group.put(index, segment), SegmentPut::Stored);
    }
    let reader = Arc::clone(&group);
    drop(group);
    assert_eq!(reader.segment(2).unwrap().to_bytes().unwrap(), [2; 1000].as_slice());
    assert_eq!(memory.usage().segments, 3);
    let pinned = reader.segment(0).unwrap();
    drop(reader);
    assert_eq!(memory.usage().segments, 0);
    assert_eq!(memory.usage().pinned_bytes as usize, allocated_bytes(pinned.len()) + Segment::OVERHEAD_BYTES);
    assert_sums(&memory);
}

#[test]
fn a_group_outlives_its_tier() {
    let memory = memory(8 << 20);
    let budget = Arc::clone(memory.budget());
    let group = memory.open_group();
    group.put(0, Segment::copy(&budget, Placement::File, b"x").unwrap());
    drop(memory);
    assert!(group.segment(0).is_none());
    let late = Segment::copy(&budget, Placement::File, b"y").unwrap();
    assert!(matches!(group.put(1, late), SegmentPut::NotStored(_)));
}

#[test]
fn the_closure_of_an_update_may_reserve_and_drop() {
    let memory = memory(64 << 10);
    (0..100u8).for_each(|n| assert_eq!(put(&memory, &[n], &[n; 500]), Applied::Stored));
    let outcome = memory.update(b"k", |_| Change::Put(record(&memory, &[0; 4000])));
    assert_eq!(outcome, Applied::Stored);
    assert_sums(&memory);
}

#[test]
fn a_tier_of_no_bytes_stores_nothing_and_fails_nothing() {
    let memory = memory(0);
    assert!(Segment::copy(memory.budget(), Placement::File, b"x").is_err());
    assert!(memory.get(b"k").is_none());
    assert_eq!((memory.segment_bytes_max(), memory.body_bytes_max(0)), (0, 0));
}
