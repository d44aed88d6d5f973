//! Growth of a body: by whole cells, and by pieces of cells that are joined until the cell is complete.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use caching::ByteRange;
use caching::partial::Extents;
use store::{Memory, Placement, Record, Segment, SegmentPut};

use super::{CELLS_MAX, FRAGMENTS_MAX, Fragment, Segmented};

impl Segmented {
    /// Adds the consecutive segments of a part, beginning at `start`. Segments that cross no cell border fit the grid best.
    pub fn with_part(
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
            self.add(memory, position, segment);
            position = next;
        }
        if length_is_new {
            self.settle_end(memory);
        }
        self
    }

    /// Turns the last fragment into a cell if it fills the last cell, now that the length is known.
    fn settle_end(&mut self, memory: &Memory<impl Record>) {
        let Some(last) = self.fragments.last().cloned() else { return };
        if let Some(segment) = last.group.segment(0) {
            self.insert(memory, last.range.first, segment);
        }
    }

    /// Adds a segment, cut at cell borders if it comes from another grid. If there is no memory for the copy, the segment is not added.
    fn add(&mut self, memory: &Memory<impl Record>, position: u64, segment: Segment) {
        if segment.len() <= first_piece_bytes(position, self.segment_bytes) {
            return self.insert(memory, position, segment);
        }
        let Ok(data) = segment.to_bytes() else { return };
        let pieces = cut(memory, segment.place(), (position, self.segment_bytes), &data);
        let mut position = position;
        for piece in pieces.unwrap_or_default() {
            let next = position + piece.len() as u64;
            self.insert(memory, position, piece);
            position = next;
        }
    }

    fn insert(&mut self, memory: &Memory<impl Record>, position: u64, segment: Segment) {
        let range = ByteRange { first: position, last: position + segment.len() as u64 - 1 };
        let cell = self.cell_of(position);
        let Some(index) = self.index_at(position).filter(|index| u64::from(*index) < CELLS_MAX) else {
            return;
        };
        debug_assert!(cell.first <= range.first && range.last <= cell.last, "a piece lies within its cell");
        let (neighbours, mut others): (Vec<Fragment>, Vec<Fragment>) = std::mem::take(&mut self.fragments)
            .into_iter()
            .partition(|fragment| cell.first <= fragment.range.first && fragment.range.last <= cell.last);
        if range == cell {
            self.put(index, segment);
        } else if self.group.segment(index).is_none() {
            let (held, absent): (Vec<_>, Vec<_>) = neighbours.into_iter().partition(Fragment::is_held);
            let joined = join(memory, held, AddedPiece { range, segment });
            match &joined[..] {
                [whole] if whole.range == cell => {
                    self.put(index, whole.segment.clone());
                }
                _ => {
                    others.extend(self.still_known(absent, &joined));
                    others.extend(joined.into_iter().filter_map(|piece| piece.into_fragment(memory)));
                }
            }
        }
        others.sort_unstable_by_key(|fragment| fragment.range.first);
        self.fragments = limited(others).into_boxed_slice();
    }

    /// Returns the absent fragments that a tier may have and that no held piece covers.
    fn still_known(&self, absent: Vec<Fragment>, held: &[AddedPiece]) -> Vec<Fragment> {
        let is_apart = |fragment: &Fragment| {
            let overlaps = |piece: &AddedPiece| {
                piece.range.first <= fragment.range.last && fragment.range.first <= piece.range.last
            };
            self.is_followed() && !held.iter().any(overlaps)
        };
        absent.into_iter().filter(is_apart).collect()
    }
}

/// Piece of a cell while fragments are being joined.
#[derive(Clone)]
struct AddedPiece {
    range: ByteRange,
    segment: Segment,
}

impl AddedPiece {
    fn into_fragment(self, memory: &Memory<impl Record>) -> Option<Fragment> {
        let group = Arc::new(memory.open_group());
        match group.put(0, self.segment) {
            SegmentPut::NotStored(_) => None,
            SegmentPut::Stored | SegmentPut::AlreadyThere => Some(Fragment { range: self.range, group }),
        }
    }

    /// Returns the bytes of the piece from `position` on.
    fn rest(&self, position: u64) -> io::Result<Bytes> {
        let from = (position - self.range.first) as usize;
        self.segment.slice(from, self.segment.len()).into_bytes()
    }
}

/// Returns the fragments of a cell together with a new fragment, in order. Fragments that overlap or touch the new one are joined with it.
/// Joining copies at most a cell. If there is no memory for the copy, or a fragment can't be read, only the new fragment is kept.
fn join(memory: &Memory<impl Record>, held: Vec<Fragment>, added: AddedPiece) -> Vec<AddedPiece> {
    let mut pieces: Vec<AddedPiece> = held
        .into_iter()
        .filter_map(|fragment| {
            Some(AddedPiece { range: fragment.range, segment: fragment.group.segment(0)? })
        })
        .collect();
    let mut extents: Extents = pieces.iter().map(|piece| piece.range).collect();
    let joined = extents.insert(added.range);
    let mut sources: Vec<AddedPiece> = pieces.drain(joined.replaced.clone()).collect();
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

/// Copies the bytes of several pieces, which cover `union` without gaps, into one.
fn gather(memory: &Memory<impl Record>, sources: &[AddedPiece], union: ByteRange) -> Option<AddedPiece> {
    let place = sources.iter().map(|source| source.segment.place()).find(|place| *place == Placement::File);
    let place = place.unwrap_or(Placement::Heap);
    let mut parts: Vec<Bytes> = Vec::new();
    let mut position = union.first;
    while position <= union.last {
        let covers = |source: &&AddedPiece| source.range.first <= position && position <= source.range.last;
        let source = sources.iter().filter(covers).max_by_key(|source| source.range.last)?;
        parts.push(source.rest(position).ok()?);
        position = source.range.last + 1;
    }
    let segment = Segment::gather(memory.budget(), place, &parts).ok()?;
    Some(AddedPiece { range: union, segment })
}

/// Removes the shortest fragments beyond `FRAGMENTS_MAX`.
fn limited(mut fragments: Vec<Fragment>) -> Vec<Fragment> {
    while fragments.len() > FRAGMENTS_MAX {
        let shortest = (0..fragments.len()).min_by_key(|index| fragments[*index].range.len_bytes());
        shortest.map(|index| fragments.remove(index));
    }
    fragments
}

/// Cuts `data`, which begins at `start`, at cell borders.
///
/// # Errors
/// If the memory budget has no room.
pub fn cut(
    memory: &Memory<impl Record>,
    place: Placement,
    (start, segment_bytes): (u64, usize),
    data: &[u8],
) -> Result<Vec<Segment>, store::OverBudget> {
    let (head, rest) = data.split_at(first_piece_bytes(start, segment_bytes).min(data.len()));
    let pieces = std::iter::once(head).chain(rest.chunks(segment_bytes)).filter(|piece| !piece.is_empty());
    pieces.map(|piece| Segment::copy(memory.budget(), place, piece)).collect()
}

/// Returns the number of bytes from `start` to the end of its cell.
pub fn first_piece_bytes(start: u64, segment_bytes: usize) -> usize {
    segment_bytes - (start % segment_bytes as u64) as usize
}
