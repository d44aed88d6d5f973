//! Held and missing bytes, in any order of parts.

use proptest::prelude::*;
use store::format::{Fragment as LayoutFragment, Run};
use store::{FillId, Memory, Placement};

use super::sample::{COMPLETE_BYTES, NoRecord, SEGMENT_BYTES, content, empty, memory, read};
use super::*;

fn add(body: Segmented, memory: &Memory<NoRecord>, range: ByteRange, complete: Option<u64>) -> Segmented {
    let segments = cut(memory, Placement::Heap, (range.first, SEGMENT_BYTES), &content(range)).unwrap();
    body.with_part(memory, range.first, segments, complete)
}

fn byte_range() -> impl Strategy<Value = ByteRange> {
    (0..COMPLETE_BYTES, 0..COMPLETE_BYTES)
        .prop_map(|(one, other)| ByteRange { first: one.min(other), last: one.max(other) })
}

/// Returns the bytes that `body` holds from 0 to the end, found by following pieces and holes.
fn walk(body: &Segmented) -> Vec<Option<u8>> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < COMPLETE_BYTES {
        let position = bytes.len() as u64;
        match (
            body.piece_at(position, COMPLETE_BYTES),
            body.hole_at(position, COMPLETE_BYTES, KnownFrom::START),
        ) {
            (Some(piece), None) => bytes.extend(piece.into_bytes().unwrap().iter().map(|byte| Some(*byte))),
            (None, Some(hole)) => bytes.extend((hole.first..=hole.last).map(|_| None)),
            both => panic!("neither or both at {position}: {both:?}"),
        }
    }
    bytes
}

proptest! {
    /// The body holds exactly the bytes that were added, in any order, with the right content. The complete length may become known at any
    /// time.
    #[test]
    fn what_is_held_is_what_came(
        parts in prop::collection::vec((byte_range(), any::<bool>()), 0..12),
    ) {
        let memory = memory();
        let mut body = empty(&memory, None);
        let mut expected = vec![None; COMPLETE_BYTES as usize];
        for (range, tells_length) in parts {
            body = add(body, &memory, range, tells_length.then_some(COMPLETE_BYTES));
            let model = expected.iter_mut().skip(range.first as usize);
            model.zip(content(range)).for_each(|(held, byte)| *held = Some(byte));
            prop_assert_eq!(walk(&body), expected.clone());
        }
    }

    /// Filling hole after hole completes any range, even if cells are evicted in between.
    #[test]
    fn filling_holes_completes_a_range(
        parts in prop::collection::vec(byte_range(), 0..8), asked in byte_range(), evicted in any::<u8>(),
    ) {
        let memory = memory();
        let mut body = parts.into_iter().fold(empty(&memory, Some(COMPLETE_BYTES)), |body, range| {
            add(body, &memory, range, None)
        });
        (0..8u32).filter(|index| evicted & (1 << index) != 0).for_each(|index| evict(&memory, &body, index));
        while let Some(hole) = body.first_hole(asked.first, asked.last + 1) {
            prop_assert!(asked.first <= hole.first && hole.last <= asked.last);
            body = add(body, &memory, hole, None);
        }
        let pieces = body.pieces(asked.first, asked.last + 1).expect("no hole is left");
        prop_assert_eq!(concat(pieces).unwrap(), content(asked));
    }
}

/// Evicts a cell. A test can't make memory evict a given segment, so it removes the segment, which has the same effect for readers.
fn evict(memory: &Memory<NoRecord>, body: &Segmented, index: u32) {
    let id = SegmentId { fill: body.group.fill(), index };
    let kept: Vec<(u32, Segment)> = (0..index).filter_map(|at| Some((at, body.group.segment(at)?))).collect();
    memory.remove_segments(id.fill, index + 1);
    for (at, segment) in kept {
        body.group.put(at, segment);
    }
}

#[test]
fn fragments_are_limited_and_the_shortest_go() {
    let memory = memory();
    let mut body = empty(&memory, None);
    let long = ByteRange { first: 1, last: 6 };
    body = add(body, &memory, long, None);
    for cell in 1..=(FRAGMENTS_MAX as u64 + 5) {
        let first = cell * SEGMENT_BYTES as u64 + 1;
        body = add(body, &memory, ByteRange { first, last: first }, None);
    }
    assert_eq!(body.fragments.len(), FRAGMENTS_MAX);
    assert!(body.pieces(long.first, long.last + 1).is_some(), "the longest stays");
    assert!(body.heap_bytes() >= FRAGMENTS_MAX * size_of::<Fragment>());
}

#[test]
fn a_small_body_that_is_complete_becomes_one_with_its_record() {
    let memory = memory();
    let mut body = empty(&memory, Some(20));
    body = add(body, &memory, ByteRange { first: 5, last: 19 }, None);
    assert!(body.small_whole().is_none());
    body = add(body, &memory, ByteRange { first: 0, last: 4 }, None);
    assert_eq!(body.small_whole(), Some(Bytes::from(content(ByteRange { first: 0, last: 19 }))));
}

/// Cells that are held (`h`), known only to a tier (`k`) or missing (`-`), and the resulting holes and loads between two bytes.
#[test]
fn what_is_known_is_no_hole_and_is_asked_for_in_time() {
    type Bytes = Option<(u64, u64)>;
    // A case: cells, first byte, end, the first hole, and the bytes loaded at the first byte that is not held.
    let table: [(&str, u64, u64, Bytes, Bytes); 11] = [
        ("hhhhhhhh", 0, 61, None, None),
        ("kkkkkkkk", 0, 61, None, Some((0, 23))),
        ("kkkkkkkk", 9, 12, None, Some((8, 15))),
        ("hkhhhhhh", 0, 61, None, Some((8, 15))),
        ("hhkk-hhh", 0, 61, Some((32, 39)), Some((16, 31))),
        ("hhkk-hhh", 0, 30, None, Some((16, 31))),
        ("--kk-hhh", 0, 61, Some((0, 15)), None),
        ("kk--kkhh", 5, 61, Some((16, 31)), Some((0, 15))),
        ("hh----kk", 20, 61, Some((20, 47)), None),
        ("hhhhhhhk", 60, 61, None, Some((56, 60))),
        ("--------", 3, 50, Some((3, 49)), None),
    ];
    let memory = memory();
    for (cells, start, end, hole, asked) in table {
        let body = read(&memory, cells, Vec::new());
        let pair = |range: ByteRange| (range.first, range.last);
        assert_eq!(body.first_hole(start, end).map(pair), hole, "{cells} {start} {end}");
        let position = body.first_not_held(start, end).unwrap_or(end);
        let absent = body.absent_at(position, end, 24);
        let bytes = absent.map(|absent| (absent.segments[0].1.first, absent.segments.last().unwrap().1.last));
        assert_eq!(bytes, asked, "{cells} {start} {end}");
        // If the tier turns out to have none of the known bytes, they are a hole like any other.
        let unknown = body.hole_at(position, end, KnownFrom::NOWHERE).map(pair);
        let held = cells.replace('k', "-");
        assert_eq!(unknown, read(&memory, &held, Vec::new()).first_hole(start, end).map(pair), "{cells}");
    }
}

#[test]
fn what_a_tier_lacks_is_a_hole_up_to_what_it_may_have() {
    let memory = memory();
    let body = read(&memory, "hkkkkh-k", Vec::new());
    let hole = |known| body.hole_at(8, 61, known).map(|range| (range.first, range.last));
    assert_eq!(hole(KnownFrom::START), None);
    assert_eq!(hole(KnownFrom(24)), Some((8, 23)));
    assert_eq!(hole(KnownFrom::NOWHERE), Some((8, 39)));
}

#[test]
fn without_a_tier_nothing_is_known() {
    let memory = memory();
    let mut body = add(empty(&memory, Some(COMPLETE_BYTES)), &memory, ByteRange { first: 0, last: 60 }, None);
    assert!(!body.is_followed() && body.layout().is_none());
    evict(&memory, &body, 3);
    assert_eq!(body.first_hole(0, 61), Some(ByteRange { first: 24, last: 31 }));
    assert!(body.absent_at(24, 61, 24).is_none());
    body = body.with_loaded([]);
    assert_eq!(body.heap_bytes(), 0);
}

#[test]
fn a_fragment_that_is_known_is_loaded_and_stays_known_beside_what_comes() {
    let memory = memory();
    let fragment = LayoutFragment { first: 17, bytes: 2, fill: FillId::next() };
    let body = read(&memory, "hh-hhhhh", vec![fragment]);
    assert_eq!(body.first_hole(0, 61), Some(ByteRange { first: 16, last: 16 }));
    let absent = body.absent_at(17, 61, 24).unwrap();
    assert_eq!(
        absent,
        Absent { fill: fragment.fill, segments: vec![(0, ByteRange { first: 17, last: 18 })] }
    );
    let body = add(body, &memory, ByteRange { first: 21, last: 22 }, None);
    assert_eq!(body.layout().unwrap().fragments.len(), 2);
    let segment = Segment::copy(memory.budget(), Placement::Heap, &content(absent.segments[0].1)).unwrap();
    body.keep(SegmentId { fill: fragment.fill, index: 0 }, segment);
    let body = add(body, &memory, ByteRange { first: 19, last: 20 }, None);
    assert_eq!(body.first_hole(17, 23), None);
    let fragments = body.layout().unwrap().fragments;
    assert_eq!((fragments.len(), fragments[0].first, fragments[0].bytes), (1, 17, 6));
    let body = add(body, &memory, ByteRange { first: 16, last: 23 }, None);
    assert_eq!(body.layout().unwrap().runs, [Run { first: 0, count: 8 }], "the cell is whole");
}

#[test]
fn two_bodies_of_one_record_are_one_representation_and_share_what_is_loaded() {
    let memory = memory();
    let one = read(&memory, "kkkkkkkk", Vec::new());
    let other = Segmented::restored(&memory, &one.layout().unwrap(), Some(COMPLETE_BYTES)).unwrap();
    assert!(one.is_same_representation(&other));
    assert!(!one.is_same_representation(&read(&memory, "kkkkkkkk", Vec::new())));
    let id = SegmentId { fill: one.group.fill(), index: 2 };
    one.keep(id, Segment::copy(memory.budget(), Placement::Heap, &[1; 8]).unwrap());
    drop(one);
    assert!(other.held(id).is_some());
    let foreign = SegmentId { fill: FillId::next(), index: 0 };
    other.keep(foreign, Segment::copy(memory.budget(), Placement::Heap, &[1; 8]).unwrap());
    assert!(other.group.segment(0).is_none() && other.held(foreign).is_none());
}

/// Memory may refuse segments from a tier.
#[test]
fn what_was_loaded_for_one_reply_is_held_by_its_body_alone() {
    let memory = memory();
    let body = read(&memory, "hkkhhhhh", Vec::new());
    let absent = body.absent_at(8, 61, 1 << 20).unwrap();
    let loaded: Vec<_> = absent
        .segments
        .iter()
        .map(|(index, range)| {
            let id = SegmentId { fill: absent.fill, index: *index };
            (id, Segment::copy(memory.budget(), Placement::Heap, &content(*range)).unwrap())
        })
        .collect();
    let whole = body.clone().with_loaded(loaded);
    assert_eq!(concat(whole.pieces(0, 61).unwrap()).unwrap(), content(ByteRange { first: 0, last: 60 }));
    assert!(body.pieces(0, 61).is_none());
}

/// Instances of a fleet may differ in segment size.
#[test]
fn parts_on_another_grid_are_cut_at_the_borders_of_the_cells() {
    let memory = memory();
    for grid in [1, 3, 8, 16, 64] {
        let mut body = empty(&memory, Some(COMPLETE_BYTES)).followed();
        for range in [ByteRange { first: 20, last: 60 }, ByteRange { first: 0, last: 19 }] {
            let segments = cut(&memory, Placement::Heap, (range.first, grid), &content(range)).unwrap();
            body = body.with_part(&memory, range.first, segments, None);
        }
        assert_eq!(
            walk(&body),
            content(ByteRange { first: 0, last: 60 }).into_iter().map(Some).collect::<Vec<_>>()
        );
        assert_eq!(body.layout().unwrap().runs, [Run { first: 0, count: 8 }], "{grid}");
    }
}

proptest! {
    /// A layout can describe any body, and never claims bytes that were not held at some time. Known parts survive eviction.
    #[test]
    fn a_layout_is_what_was_held(
        parts in prop::collection::vec((byte_range(), any::<bool>()), 0..12), evicted in any::<u8>(),
    ) {
        let memory = memory();
        let mut body = empty(&memory, None).followed();
        let mut expected = [false; COMPLETE_BYTES as usize];
        for (range, tells_length) in parts {
            body = add(body, &memory, range, tells_length.then_some(COMPLETE_BYTES));
            expected[range.first as usize..=range.last as usize].fill(true);
        }
        let layout = body.layout().unwrap();
        let held = expected.iter().filter(|held| **held).count() as u64;
        prop_assert_eq!(layout.held_bytes(body.complete_bytes), Ok(held));
        (0..8u32).filter(|index| evicted & (1 << index) != 0).for_each(|index| evict(&memory, &body, index));
        prop_assert_eq!(&body.layout().unwrap(), &layout);
        let read = Segmented::restored(&memory, &layout, body.complete_bytes).unwrap();
        prop_assert_eq!(&read.layout().unwrap(), &layout);
        let is_all = body.first_hole(0, COMPLETE_BYTES).is_none();
        prop_assert_eq!(is_all, held == COMPLETE_BYTES);
    }
}
