//! Stored bodies that may lack some bytes, which were never fetched (RFC 9111 section 3.3) or have been evicted.
//!
//! The representation is laid out on a grid of cells, each the size of a segment. A whole cell is a segment of the single group that stands
//! for this representation; eviction removes cells, and a later fill puts them back in place without a new record. A piece smaller than a
//! cell is a fragment, with a group of its own and an entry in the record; so the number of fragments is limited, but the number of cells
//! isn't.
//!
//! *Held* bytes are in memory. With a tier behind memory, the body also has *known* bytes: memory held them when the body was stored, so
//! the tier may have them. Known bytes that aren't held are *absent*: they are loaded when a reply reaches them, and are not a hole.
//! Without a tier, nothing is known, and all bytes that aren't held are holes.

mod adding;
mod known;
mod layout;
#[cfg(any(test, feature = "test-double"))]
pub mod sample;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use caching::ByteRange;
use store::format::Layout;
use store::{ARC_HEADER_BYTES, Segment, SegmentGroup, SegmentId, SegmentPut, Slice, allocated_bytes};

use self::known::Known;
use crate::fill::INLINE_BODY_BYTES_MAX;

pub use self::adding::{cut, first_piece_bytes};
pub use self::known::{Absent, KnownFrom};

/// Maximum number of fragments of one stored response; the shortest is removed to make room.
pub const FRAGMENTS_MAX: usize = Layout::FRAGMENTS_MAX;

/// Maximum number of cells of one stored response: a part beyond them isn't stored. Dropping a group costs a look-up per cell up to the
/// last one, whether or not the cells are held.
pub const CELLS_MAX: u64 = Layout::CELLS_MAX as u64;

/// Maximum number of pieces for which a reply allocates memory in advance.
const PIECES_EXPECTED: usize = 1024;

/// A body, divided into the cells of a grid.
#[derive(Clone, Debug)]
pub struct Segmented {
    /// Whole cells, by index. The fill id of the group also identifies the representation: two bodies with the same fill id differ only in
    /// their fragments.
    pub group: Arc<SegmentGroup>,
    pub segment_bytes: usize,
    /// Length of the representation, if known.
    pub complete_bytes: Option<u64>,
    /// Fragments in order: they don't cross cell borders or overlap, and held ones don't touch within a cell.
    fragments: Box<[Fragment]>,
    /// Whole cells that a tier may have; it may also have all fragments. `None` without a tier.
    known: Option<Box<Known>>,
}

/// A piece smaller than a cell. Its bytes are the only segment of its group.
#[derive(Clone, Debug)]
struct Fragment {
    range: ByteRange,
    group: Arc<SegmentGroup>,
}

impl Fragment {
    fn id(&self) -> SegmentId {
        SegmentId { fill: self.group.fill(), index: 0 }
    }

    fn is_held(&self) -> bool {
        self.group.segment(0).is_some()
    }
}

impl Segmented {
    /// Creates a body without any held bytes. With a tier behind memory, call [`Segmented::followed`] on it.
    pub fn new(group: Arc<SegmentGroup>, segment_bytes: usize, complete_bytes: Option<u64>) -> Self {
        Self { group, segment_bytes, complete_bytes, fragments: Box::default(), known: None }
    }

    /// Returns the body for use with a tier behind memory: from now on, it records each cell that it gets.
    pub fn followed(self) -> Self {
        Self { known: Some(Box::default()), ..self }
    }

    /// Returns whether a tier may have bytes that memory lacks.
    pub fn is_followed(&self) -> bool {
        self.known.is_some()
    }

    /// Returns whether both bodies are parts of one representation.
    pub fn is_same_representation(&self, other: &Self) -> bool {
        self.group.fill() == other.group.fill()
    }

    pub fn heap_bytes(&self) -> usize {
        let group_bytes = allocated_bytes(size_of::<SegmentGroup>() + ARC_HEADER_BYTES);
        let known_bytes = self.known.as_deref().map_or(0, Known::heap_bytes);
        allocated_bytes(size_of_val(&*self.fragments)) + self.fragments.len() * group_bytes + known_bytes
    }

    /// Stores a whole cell, unless that cell is already held.
    pub fn put(&mut self, index: u32, segment: Segment) -> SegmentPut {
        let put = self.group.put(index, segment);
        if let (Some(known), SegmentPut::Stored | SegmentPut::AlreadyThere) = (&mut self.known, put) {
            known.insert(index);
        }
        put
    }

    /// Stores these whole cells, beginning with the first cell; `None` if one is refused.
    pub fn filled(mut self, segments: &[Segment]) -> Option<Self> {
        for (index, segment) in (0..).zip(segments) {
            if let SegmentPut::NotStored(_) = self.put(index, segment.clone()) {
                return None;
            }
        }
        Some(self)
    }

    /// Returns the bytes from `start` to `end`; `None` if some of them are not held.
    pub fn pieces(&self, start: u64, end: u64) -> Option<VecDeque<Slice>> {
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

    /// Returns some bytes from `position`, at most up to `end`; `None` if the byte at `position` is not held. Never empty.
    pub fn piece_at(&self, position: u64, end: u64) -> Option<Slice> {
        let (first, segment) = self.cell_at(position).or_else(|| self.fragment_at(position))?;
        let from = position.checked_sub(first)?;
        let to = (end.checked_sub(first)?).min(segment.len() as u64);
        (from < to).then(|| segment.slice(from as usize, to as usize))
    }

    fn cell_at(&self, position: u64) -> Option<(u64, Segment)> {
        let index = self.index_at(position)?;
        let loaded = || self.loaded(SegmentId { fill: self.group.fill(), index });
        let segment = self.group.segment(index).or_else(loaded)?;
        Some((u64::from(index) * self.segment_bytes as u64, segment))
    }

    fn fragment_at(&self, position: u64) -> Option<(u64, Segment)> {
        let fragment = self.fragment_behind(position)?;
        let segment = fragment.group.segment(0).or_else(|| self.loaded(fragment.id()))?;
        Some((fragment.range.first, segment))
    }

    /// Returns the fragment with the byte at `position`, or else the next one.
    fn fragment_behind(&self, position: u64) -> Option<&Fragment> {
        let index = self.fragments.partition_point(|fragment| fragment.range.last < position);
        self.fragments.get(index)
    }

    fn loaded(&self, id: SegmentId) -> Option<Segment> {
        self.known.as_ref()?.loaded(id)
    }

    fn index_at(&self, position: u64) -> Option<u32> {
        u32::try_from(position / self.segment_bytes as u64).ok()
    }

    /// Returns the hole at `position`, if the byte there is missing. The hole ends at `end`, at the next held byte, or at the next known
    /// byte from `known` on.
    pub fn hole_at(&self, position: u64, end: u64, known: KnownFrom) -> Option<ByteRange> {
        if position >= end || self.passed(position, end, known).is_some() {
            return None;
        }
        let size = self.segment_bytes as u64;
        let last_known = self.known.as_deref().map_or(0, Known::end);
        let cells_end = u64::from(self.group.count().max(last_known)).min(end.div_ceil(size));
        let is_there = |index: &u64| {
            let is_held = u32::try_from(*index).is_ok_and(|index| self.group.segment(index).is_some());
            is_held || self.known_until(*index * size, known).is_some()
        };
        let cell = (position / size + 1..cells_end).find(is_there).map(|index| index * size);
        let fragment = self
            .fragments
            .iter()
            .filter(|fragment| fragment.range.first > position)
            .find(|fragment| fragment.is_held() || self.known_until(fragment.range.first, known).is_some())
            .map(|fragment| fragment.range.first);
        let next = cell.into_iter().chain(fragment).fold(end, u64::min);
        Some(ByteRange { first: position, last: next - 1 })
    }

    /// Returns the first hole between `start` and `end`: bytes neither held nor known.
    //= RFC 9110 section 15.3.7.3: what is not whole is a 206
    pub fn first_hole(&self, start: u64, end: u64) -> Option<ByteRange> {
        let mut position = start;
        while let Some(next) = self.passed(position, end, KnownFrom::START) {
            position = next;
        }
        self.hole_at(position, end, KnownFrom::START)
    }

    /// Returns the end of the held or known piece at `position`.
    fn passed(&self, position: u64, end: u64, known: KnownFrom) -> Option<u64> {
        let held = self.piece_at(position, end).map(|piece| position + piece.len() as u64);
        held.or_else(|| self.known_until(position, known).filter(|_| position < end))
    }

    /// Returns the end of the known piece with the byte at `position`.
    fn known_until(&self, position: u64, from: KnownFrom) -> Option<u64> {
        let known = self.known.as_ref()?;
        if position < from.0 {
            return None;
        }
        if self.index_at(position).is_some_and(|index| known.has(index)) {
            return Some(self.cell_of(position).last + 1);
        }
        let fragment = self.fragment_behind(position)?;
        (fragment.range.first <= position).then_some(fragment.range.last + 1)
    }

    /// Returns the cell around a position. The last cell ends where the representation ends.
    fn cell_of(&self, position: u64) -> ByteRange {
        let size = self.segment_bytes as u64;
        let first = position / size * size;
        let end = first.saturating_add(size);
        ByteRange { first, last: self.complete_bytes.map_or(end, |complete| complete.min(end)) - 1 }
    }

    /// Returns the first byte between `start` and `end` that is not held.
    pub fn first_not_held(&self, start: u64, end: u64) -> Option<u64> {
        let mut position = start;
        while let Some(piece) = self.piece_at(position, end) {
            position += piece.len() as u64;
        }
        (position < end).then_some(position)
    }

    /// Returns the segments to load for the byte at `position`: its own segment, and the following absent segments up to `end`, in total at
    /// most `bytes_max`. `None` if the byte is held, or in a hole.
    pub fn absent_at(&self, position: u64, end: u64, bytes_max: u64) -> Option<Absent> {
        let known = self.known.as_ref()?;
        if position >= end || self.piece_at(position, end).is_some() {
            return None;
        }
        let (size, first) = (self.segment_bytes as u64, self.index_at(position)?);
        if known.has(first) {
            let cells_max = usize::try_from(bytes_max / size).unwrap_or(usize::MAX).max(1);
            let last = self.index_at(end - 1).unwrap_or(u32::MAX);
            let is_absent = |index: &u32| known.has(*index) && self.group.segment(*index).is_none();
            let cells = (first..=last).take(cells_max).take_while(is_absent);
            let segments = cells.map(|index| (index, self.cell_of(u64::from(index) * size))).collect();
            return Some(Absent { fill: self.group.fill(), segments });
        }
        let fragment = self.fragment_behind(position).filter(|it| it.range.first <= position)?;
        Some(Absent { fill: fragment.group.fill(), segments: vec![(0, fragment.range)] })
    }

    /// Returns the segment of a cell or of a fragment, if held.
    pub fn held(&self, id: SegmentId) -> Option<Segment> {
        self.group_of(id)?.segment(id.index).or_else(|| self.loaded(id))
    }

    /// Puts a segment from a tier into memory, which may refuse it, or evict it immediately.
    pub fn keep(&self, id: SegmentId, segment: Segment) {
        self.group_of(id).map(|group| group.put(id.index, segment));
    }

    /// Returns the group of a cell or of a fragment, if it belongs to this body.
    fn group_of(&self, id: SegmentId) -> Option<&SegmentGroup> {
        let fragments = self.fragments.iter().map(|fragment| &fragment.group);
        let mut groups = std::iter::once(&self.group).chain(fragments);
        groups.find(|group| group.fill() == id.fill).map(Arc::as_ref)
    }

    /// Returns a copy of the body that holds these segments from a tier itself, for one reply.
    pub fn with_loaded(mut self, loaded: impl IntoIterator<Item = (SegmentId, Segment)>) -> Self {
        if let Some(known) = &mut self.known {
            known.hold(loaded);
        }
        self
    }

    /// Returns the bytes of a small body that has become complete.
    pub fn small_whole(&self) -> Option<Bytes> {
        let small_bytes = self.complete_bytes.filter(|bytes| *bytes <= INLINE_BODY_BYTES_MAX as u64)?;
        concat(self.pieces(0, small_bytes)?)
    }
}

/// Copies all pieces into one; `None` if one can't be read.
fn concat(pieces: VecDeque<Slice>) -> Option<Bytes> {
    let pieces: Vec<Bytes> = pieces.into_iter().map(Slice::into_bytes).collect::<Result<_, _>>().ok()?;
    Some(Bytes::from(pieces.concat()))
}
