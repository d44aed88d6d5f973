//! A stored body of which some bytes may be missing: never fetched (RFC 9111 section 3.3), or evicted since.
//!
//! The representation is laid out on a grid of cells, each the size of a segment. A whole cell is a segment of the one
//! group that stands for this representation; eviction takes cells, and a later fill puts them back in their place
//! without a new record. What is less than a cell is a fragment, with a group of its own, and named in the record: so
//! the number of fragments is limited, and the number of cells is not.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use caching::ByteRange;
use caching::partial::Extents;
use store::{
    ARC_HEADER_BYTES, Memory, Place, Record, Segment, SegmentGroup, SegmentPut, Slice, allocated_bytes,
};

use crate::cache::inflight::fill::INLINE_BODY_BYTES_MAX;

/// Fragments of one stored response; the shortest is removed to make room.
pub(crate) const FRAGMENTS_MAX: usize = 64;

/// Cells of one stored response: a part that lies further in isn't stored. Dropping a group costs a look-up per cell up
/// to the last one, whatever is held.
pub(crate) const CELLS_MAX: u64 = 1 << 16;

/// Room for so many pieces is made at once; a reply with more makes room as it goes.
const PIECES_EXPECTED: usize = 1024;

/// A body on the grid.
#[derive(Clone, Debug)]
pub(crate) struct Segmented {
    /// The whole cells, by index. Also the identity of the representation: two bodies with the same group can be told
    /// apart by nothing but their fragments.
    pub(crate) group: Arc<SegmentGroup>,
    pub(crate) segment_bytes: usize,
    /// The length of the representation, where it is known.
    pub(crate) complete_bytes: Option<u64>,
    /// In order, none across a cell border, none that overlap or touch within a cell.
    fragments: Box<[Fragment]>,
}

/// Less than a cell; its bytes are the only segment of its group.
#[derive(Clone, Debug)]
struct Fragment {
    range: ByteRange,
    group: Arc<SegmentGroup>,
}

impl Segmented {
    pub(crate) fn new(group: Arc<SegmentGroup>, segment_bytes: usize, complete_bytes: Option<u64>) -> Self {
        Self { group, segment_bytes, complete_bytes, fragments: Box::default() }
    }

    /// Whether both are parts of one representation.
    pub(crate) fn is_same_representation(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.group, &other.group)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let group_bytes = allocated_bytes(size_of::<SegmentGroup>() + ARC_HEADER_BYTES);
        allocated_bytes(size_of_val(&*self.fragments)) + self.fragments.len() * group_bytes
    }

    /// The bytes from `start` to `end`, where all of them are held.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> Option<VecDeque<Slice>> {
        let cells = end.saturating_sub(start).div_ceil(self.segment_bytes.max(1) as u64) + 1;
        let mut pieces =
            VecDeque::with_capacity(usize::try_from(cells).map_or(0, |cells| cells.min(PIECES_EXPECTED)));
        let mut position = start;
        while position < end {
            let piece = self.piece_at(position, end)?;
            position += piece.len() as u64;
            pieces.push_back(piece);
        }
        Some(pieces)
    }

    /// Some bytes from `position`, at most up to `end`; `None` where the byte at `position` is missing. Never empty.
    pub(crate) fn piece_at(&self, position: u64, end: u64) -> Option<Slice> {
        let (first, segment) = self.cell_at(position).or_else(|| self.fragment_at(position))?;
        let from = position.checked_sub(first)?;
        let to = (end.checked_sub(first)?).min(segment.len() as u64);
        (from < to).then(|| segment.slice(from as usize, to as usize))
    }

    fn cell_at(&self, position: u64) -> Option<(u64, Segment)> {
        let size = self.segment_bytes as u64;
        let index = position / size;
        Some((index * size, self.group.segment(u32::try_from(index).ok()?)?))
    }

    fn fragment_at(&self, position: u64) -> Option<(u64, Segment)> {
        let index = self.fragments.partition_point(|fragment| fragment.range.last < position);
        let fragment = self.fragments.get(index)?;
        Some((fragment.range.first, fragment.group.segment(0)?))
    }

    /// What is missing from `position` on, if the byte there is: up to the next byte that is held, or to `end`.
    pub(crate) fn hole_at(&self, position: u64, end: u64) -> Option<ByteRange> {
        if position >= end || self.piece_at(position, end).is_some() {
            return None;
        }
        let size = self.segment_bytes as u64;
        let cells = position / size + 1..u64::from(self.group.count()).min(end.div_ceil(size));
        let is_held =
            |index: &u64| u32::try_from(*index).is_ok_and(|index| self.group.segment(index).is_some());
        let cell = cells.into_iter().find(is_held).map(|index| index * size);
        let fragment = self
            .fragments
            .iter()
            .find(|fragment| fragment.range.first > position && fragment.group.segment(0).is_some())
            .map(|fragment| fragment.range.first);
        let next = cell.into_iter().chain(fragment).fold(end, u64::min);
        Some(ByteRange { first: position, last: next - 1 })
    }

    /// The first hole between `start` and `end`.
    //= RFC 9110 section 15.3.7.3: what is not whole is a 206
    pub(crate) fn first_hole(&self, start: u64, end: u64) -> Option<ByteRange> {
        let mut position = start;
        while let Some(piece) = self.piece_at(position, end) {
            position += piece.len() as u64;
        }
        self.hole_at(position, end)
    }

    /// Adds what a part brought: segments one behind the other from `start`, none across a cell border.
    pub(crate) fn with_part(
        mut self,
        memory: &Memory<impl Record>,
        start: u64,
        segments: Vec<Segment>,
        complete_bytes: Option<u64>,
    ) -> Self {
        let length_is_new = self.complete_bytes.is_none() && complete_bytes.is_some();
        self.complete_bytes = self.complete_bytes.or(complete_bytes);
        let mut position = start;
        for segment in segments {
            let next = position + segment.len() as u64;
            self.insert(memory, position, segment);
            position = next;
        }
        if length_is_new {
            self.settle_end(memory);
        }
        self
    }

    /// The end of the representation has become known: the fragment there may be a whole cell now.
    fn settle_end(&mut self, memory: &Memory<impl Record>) {
        let Some(last) = self.fragments.last().cloned() else { return };
        if let Some(segment) = last.group.segment(0) {
            self.insert(memory, last.range.first, segment);
        }
    }

    fn insert(&mut self, memory: &Memory<impl Record>, position: u64, segment: Segment) {
        let range = ByteRange { first: position, last: position + segment.len() as u64 - 1 };
        let cell = self.cell_of(position);
        let index = position / self.segment_bytes as u64;
        let Ok(index) = u32::try_from(index) else { return };
        debug_assert!(cell.first <= range.first && range.last <= cell.last, "a piece lies within its cell");
        let (neighbours, mut others): (Vec<Fragment>, Vec<Fragment>) = std::mem::take(&mut self.fragments)
            .into_iter()
            .partition(|fragment| cell.first <= fragment.range.first && fragment.range.last <= cell.last);
        if range == cell {
            self.group.put(index, segment);
        } else if self.group.segment(index).is_none() {
            let joined = join(memory, neighbours, Piece { range, segment });
            match &joined[..] {
                [whole] if whole.range == cell => {
                    self.group.put(index, whole.segment.clone());
                }
                _ => others.extend(joined.into_iter().filter_map(|piece| piece.into_fragment(memory))),
            }
        }
        others.sort_unstable_by_key(|fragment| fragment.range.first);
        self.fragments = limited(others).into_boxed_slice();
    }

    /// The cell around a position; the last one ends where the representation ends.
    fn cell_of(&self, position: u64) -> ByteRange {
        let size = self.segment_bytes as u64;
        let first = position / size * size;
        let end = first.saturating_add(size);
        ByteRange { first, last: self.complete_bytes.map_or(end, |complete| complete.min(end)) - 1 }
    }

    /// A small body that has become complete.
    pub(crate) fn small_whole(&self) -> Option<Bytes> {
        let small_bytes = self.complete_bytes.filter(|bytes| *bytes <= INLINE_BODY_BYTES_MAX as u64)?;
        concat(self.pieces(0, small_bytes)?)
    }
}

/// One copy of all; `None` where one can't be read.
fn concat(pieces: VecDeque<Slice>) -> Option<Bytes> {
    let pieces: Vec<Bytes> = pieces.into_iter().map(Slice::into_bytes).collect::<Result<_, _>>().ok()?;
    Some(Bytes::from(pieces.concat()))
}

/// Bytes that are held while fragments are joined.
#[derive(Clone)]
struct Piece {
    range: ByteRange,
    segment: Segment,
}

impl Piece {
    fn into_fragment(self, memory: &Memory<impl Record>) -> Option<Fragment> {
        let group = Arc::new(memory.open_group());
        match group.put(0, self.segment) {
            SegmentPut::NotStored(_) => None,
            SegmentPut::Stored | SegmentPut::AlreadyThere => Some(Fragment { range: self.range, group }),
        }
    }

    /// The rest of its bytes from `position`.
    fn rest(&self, position: u64) -> io::Result<Bytes> {
        let from = (position - self.range.first) as usize;
        self.segment.slice(from, self.segment.len()).into_bytes()
    }
}

/// The fragments of one cell with one more, in order. Those that overlap or touch it become one with it, by copying:
/// never more than a cell. Where there is no room for the copy, or one of them
/// can't be read, the new one alone is kept.
fn join(memory: &Memory<impl Record>, held: Vec<Fragment>, added: Piece) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = held
        .into_iter()
        .filter_map(|fragment| Some(Piece { range: fragment.range, segment: fragment.group.segment(0)? }))
        .collect();
    let mut extents: Extents = pieces.iter().map(|piece| piece.range).collect();
    let joined = extents.insert(added.range);
    let mut sources: Vec<Piece> = pieces.drain(joined.replaced.clone()).collect();
    let union = match sources.is_empty() {
        true => added,
        false => {
            sources.push(added.clone());
            gather(memory, &sources, joined.union).unwrap_or(added)
        }
    };
    pieces.insert(joined.replaced.start, union);
    pieces
}

/// One piece with the bytes of several that cover `union` without a gap.
fn gather(memory: &Memory<impl Record>, sources: &[Piece], union: ByteRange) -> Option<Piece> {
    let place = sources.iter().map(|source| source.segment.place()).find(|place| *place == Place::File);
    let place = place.unwrap_or(Place::Heap);
    let mut parts: Vec<Bytes> = Vec::new();
    let mut position = union.first;
    while position <= union.last {
        let covers = |source: &&Piece| source.range.first <= position && position <= source.range.last;
        let source = sources.iter().filter(covers).max_by_key(|source| source.range.last)?;
        parts.push(source.rest(position).ok()?);
        position = source.range.last + 1;
    }
    let segment = Segment::gather(memory.budget(), place, &parts).ok()?;
    Some(Piece { range: union, segment })
}

/// At most [`FRAGMENTS_MAX`].
fn limited(mut fragments: Vec<Fragment>) -> Vec<Fragment> {
    while fragments.len() > FRAGMENTS_MAX {
        let shortest = (0..fragments.len()).min_by_key(|index| fragments[*index].range.len_bytes());
        shortest.map(|index| fragments.remove(index));
    }
    fragments
}

/// Cuts `data`, small enough to be inside a record, which begins at `start`, at the borders of the cells.
///
/// # Errors
/// When the memory budget has no room.
pub(crate) fn cut(
    memory: &Memory<impl Record>,
    segment_bytes: usize,
    start: u64,
    data: &[u8],
) -> Result<Vec<Segment>, store::OverBudget> {
    let (head, rest) = data.split_at(first_piece_bytes(start, segment_bytes).min(data.len()));
    let pieces = std::iter::once(head).chain(rest.chunks(segment_bytes)).filter(|piece| !piece.is_empty());
    pieces.map(|piece| Segment::copy(memory.budget(), Place::Heap, piece)).collect()
}

/// How many bytes from `start` lie within its cell.
pub(crate) fn first_piece_bytes(start: u64, segment_bytes: usize) -> usize {
    segment_bytes - (start % segment_bytes as u64) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use store::{Charge, MemoryConfig};

    use super::*;

    /// The bodies of these tests lie in no record.
    struct NoRecord;

    impl Record for NoRecord {
        fn charge(&self) -> &Charge {
            unreachable!("none is made")
        }

        fn expires_at_ms(&self) -> Option<u64> {
            None
        }
    }

    const SEGMENT_BYTES: usize = 8;
    const COMPLETE_BYTES: u64 = 61;

    fn memory() -> Memory<NoRecord> {
        Memory::new(MemoryConfig::with_bytes_max(64 << 20))
    }

    fn empty(memory: &Memory<NoRecord>, complete_bytes: Option<u64>) -> Segmented {
        Segmented::new(Arc::new(memory.open_group()), SEGMENT_BYTES, complete_bytes)
    }

    fn content(range: ByteRange) -> Vec<u8> {
        (range.first..=range.last).map(|position| (position * 37 + 11) as u8).collect()
    }

    fn add(body: Segmented, memory: &Memory<NoRecord>, range: ByteRange, complete: Option<u64>) -> Segmented {
        let segments = cut(memory, SEGMENT_BYTES, range.first, &content(range)).unwrap();
        body.with_part(memory, range.first, segments, complete)
    }

    fn byte_range() -> impl Strategy<Value = ByteRange> {
        (0..COMPLETE_BYTES, 0..COMPLETE_BYTES)
            .prop_map(|(one, other)| ByteRange { first: one.min(other), last: one.max(other) })
    }

    /// What `body` holds of 0 to the end, found by following pieces and holes.
    fn walk(body: &Segmented) -> Vec<Option<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < COMPLETE_BYTES {
            let position = bytes.len() as u64;
            match (body.piece_at(position, COMPLETE_BYTES), body.hole_at(position, COMPLETE_BYTES)) {
                (Some(piece), None) => {
                    bytes.extend(piece.into_bytes().unwrap().iter().map(|byte| Some(*byte)))
                }
                (None, Some(hole)) => bytes.extend((hole.first..=hole.last).map(|_| None)),
                both => panic!("neither or both at {position}: {both:?}"),
            }
        }
        bytes
    }

    proptest! {
        /// Whatever comes in whatever order: what is held is what came, and the bytes are right. The complete length
        /// may become known at any time.
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

        /// Filling one hole after the other makes any range whole, also when cells are evicted in between.
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

    /// The tier has no way to evict a certain segment; removing is the same to readers.
    fn evict(memory: &Memory<NoRecord>, body: &Segmented, index: u32) {
        let id = store::SegmentId { fill: body.group.fill(), index };
        let kept: Vec<(u32, Segment)> =
            (0..index).filter_map(|at| Some((at, body.group.segment(at)?))).collect();
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
}
