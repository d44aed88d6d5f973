//! Promises of the memory tier, for segments on the heap and in files.

use std::sync::Arc;

use bytes::Bytes;

use super::put;
use crate::sample::SampleRecord;
use crate::{
    Applied, Change, FillId, Memory, MemoryConfig, Placement, SEGMENT_BYTES_MAX, Segment, SegmentId,
    SegmentPut,
};

fn with_each_place(check: impl Fn(&Memory<SampleRecord>)) {
    for file_bytes_min in [None, Some(0), Some(100_000)] {
        check(&Memory::new(MemoryConfig { file_bytes_min, ..MemoryConfig::with_bytes_max(32 << 20) }));
    }
}

fn payload(memory: &Memory<SampleRecord>, key: &[u8]) -> Option<Box<[u8]>> {
    memory.get(key).map(|record| record.payload.clone())
}

fn put_segment(memory: &Memory<SampleRecord>, id: SegmentId, data: &[u8]) -> SegmentPut {
    memory.put_segment(id, Segment::copy(memory.budget(), Placement::File, data).unwrap())
}

fn segment(memory: &Memory<SampleRecord>, id: SegmentId) -> Option<Bytes> {
    memory.segment(id).map(|segment| segment.to_bytes().unwrap())
}

#[test]
fn a_look_up_gives_the_last_record_that_was_put() {
    with_each_place(|memory| {
        assert_eq!(payload(memory, b"k"), None, "a new tier is empty");
        for round in 0..3u8 {
            assert_eq!(put(memory, b"k", &[round]), Applied::Stored);
            assert_eq!(payload(memory, b"k").as_deref(), Some(&[round][..]));
        }
    });
}

#[test]
fn every_byte_of_a_key_counts() {
    let long = vec![b'k'; 8 << 10];
    let longer = vec![b'k'; (8 << 10) + 1];
    let keys: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"/a/b", b"/a:b", b"/A/b", b"{x}y", &long, &longer];
    with_each_place(|memory| {
        for (number, key) in (0..).zip(keys) {
            put(memory, key, &[number]);
        }
        for (number, key) in (0..).zip(keys) {
            assert_eq!(payload(memory, key).as_deref(), Some(&[number][..]), "{number}");
        }
    });
}

#[test]
fn an_update_sees_the_current_record_and_keeps_it() {
    with_each_place(|memory| {
        let mut seen = Vec::new();
        let mut look = || {
            memory.update(b"k", |current| {
                seen.push(current.map(|record| record.payload.clone()));
                Change::Keep
            })
        };
        assert_eq!(look(), Applied::Kept);
        put(memory, b"k", b"one");
        assert_eq!(look(), Applied::Kept);
        assert_eq!(seen, [None, Some(b"one".as_slice().into())]);
        assert_eq!(payload(memory, b"k").as_deref(), Some(b"one".as_slice()));
    });
}

#[test]
fn what_was_removed_stays_removed() {
    let removal = |_: Option<&Arc<SampleRecord>>| Change::Remove;
    with_each_place(|memory| {
        assert!(!memory.remove(b"k"));
        put(memory, b"k", b"one");
        assert!(memory.remove(b"k"));
        assert_eq!(payload(memory, b"k"), None);
        put(memory, b"k", b"two");
        assert_eq!(memory.update(b"k", removal), Applied::Removed);
        assert_eq!(memory.update(b"k", removal), Applied::Absent);
        assert_eq!(payload(memory, b"k"), None);
    });
}

#[test]
fn segments_are_immutable() {
    with_each_place(|memory| {
        let id = SegmentId { fill: FillId::next(), index: 0 };
        assert_eq!(put_segment(memory, id, b"first"), SegmentPut::Stored);
        assert_eq!(put_segment(memory, id, b"second"), SegmentPut::AlreadyThere);
        assert_eq!(segment(memory, id).as_deref(), Some(b"first".as_slice()));
    });
}

#[test]
fn a_missing_segment_is_a_hole() {
    with_each_place(|memory| {
        let fill = FillId::next();
        let ids = [0, 1, 2].map(|index| SegmentId { fill, index });
        put_segment(memory, ids[2], b"end");
        put_segment(memory, ids[0], b"start");
        let held = ids.map(|id| segment(memory, id));
        assert_eq!(held, [Some(Bytes::from_static(b"start")), None, Some(Bytes::from_static(b"end"))]);
        assert_eq!(memory.remove_segments(fill, 3), 2);
        assert_eq!(ids.map(|id| segment(memory, id)), [const { None }; 3]);
    });
}

#[test]
fn the_segments_of_one_fill_are_not_those_of_another() {
    with_each_place(|memory| {
        let ids = [FillId::next(), FillId::next()].map(|fill| SegmentId { fill, index: 7 });
        let largest = vec![b'x'; SEGMENT_BYTES_MAX];
        put_segment(memory, ids[0], &largest);
        put_segment(memory, ids[1], b"other");
        assert_eq!(memory.remove_segments(ids[1].fill, 8), 1);
        assert_eq!(segment(memory, ids[0]).as_deref(), Some(&*largest));
    });
}
