//! Groups of fills in records: all readers of such a record share one group.

use std::sync::Arc;
use std::thread;

use super::{assert_sums, memory};
use crate::sample::SampleRecord;
use crate::{FillId, Memory, Placement, Segment, SegmentGroup, SegmentPut};

fn put(memory: &Memory<SampleRecord>, group: &SegmentGroup, index: u32) -> SegmentPut {
    group.put(index, Segment::copy(memory.budget(), Placement::Heap, &index.to_le_bytes()).unwrap())
}

fn held(group: &SegmentGroup, index: u32) -> bool {
    let segment = group.segment(index).map(|segment| segment.to_bytes().unwrap());
    segment.is_some_and(|bytes| *bytes == index.to_le_bytes())
}

#[test]
fn groups_of_one_fill_are_one_and_its_segments_stay_until_the_last_is_dropped() {
    let memory = memory(8 << 20);
    let fill = FillId::next();
    let (one, other) = (memory.group_of(fill), memory.group_of(fill));
    assert!(Arc::ptr_eq(&one, &other) && one.fill() == fill);
    assert!(!Arc::ptr_eq(&one, &memory.group_of(FillId::next())));
    (0..200).for_each(|index| assert_eq!(put(&memory, &one, index), SegmentPut::Stored));
    drop(one);
    assert!((0..200).all(|index| held(&other, index)));
    drop(other);
    assert_eq!((memory.usage().segments, memory.listed_groups()), (0, 0));
    assert_eq!(memory.group_of(fill).count(), 0, "a new one");
    assert_sums(&memory);
}

#[test]
fn a_group_of_this_process_is_found_once_it_is_announced() {
    let memory = memory(8 << 20);
    let own = Arc::new(memory.open_group());
    assert_eq!(memory.listed_groups(), 0, "no other process knows its fill");
    put(&memory, &own, 3);
    let fill = own.announced();
    assert_eq!(own.announced(), fill);
    let read = memory.group_of(fill);
    assert!(Arc::ptr_eq(&own, &read));
    drop(own);
    assert!(held(&read, 3));
    drop(read);
    assert_eq!((memory.usage().segments, memory.listed_groups()), (0, 0));
}

#[test]
fn a_group_that_is_read_outlives_its_tier() {
    let memory = memory(8 << 20);
    let group = memory.group_of(FillId::next());
    drop(memory);
    assert!(group.segment(0).is_none());
}

/// The last holder drops the group while other threads request it. Segments that a thread has put or found stay as long as it holds the
/// group.
#[test]
fn who_comes_while_the_last_one_leaves_loses_nothing() {
    const ROUNDS: u32 = 3000;
    let memory = memory(64 << 20);
    let fills = [FillId::next(), FillId::next()];
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let memory = memory.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let group = memory.group_of(fills[(round % 2) as usize]);
                    let indexes = [thread, 70 + round % 7, 150];
                    for index in indexes {
                        assert!(!matches!(put(&memory, &group, index), SegmentPut::NotStored(_)));
                    }
                    assert!(indexes.iter().all(|index| held(&group, *index)), "{thread} in {round}");
                }
            });
        }
    });
    assert_eq!((memory.usage().segments, memory.listed_groups()), (0, 0));
    assert_eq!(memory.usage().evictions, 0);
    assert_sums(&memory);
}
