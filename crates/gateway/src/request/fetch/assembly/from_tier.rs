//! Source of the next byte of a body, and the segments that a reply has loaded from the tier.

use std::collections::VecDeque;

use cache::entry::segmented::{Absent, KnownFrom, Segmented};
use caching::ByteRange;
use fleet::segments::LOAD_BYTES_MAX;
use store::{Segment, SegmentId, Slice};

/// Source of the byte at a position.
#[derive(Debug)]
pub(super) enum Turn {
    /// Held, with some bytes after it.
    Held(Slice),
    /// Absent: a tier may have it, with some bytes after it.
    Absent(Absent),
    /// Missing, with all bytes after it that are missing too: the origin has them.
    Missing(ByteRange),
}

/// Segments that one reply has loaded. They are read in order.
#[derive(Debug)]
pub(super) struct FromTier {
    /// Segments not passed yet, each with the position of its first byte. Memory may have refused or evicted them.
    loaded: VecDeque<(u64, Segment)>,
    /// Position before which the tier is not asked again.
    known: KnownFrom,
    /// Loads in a row without a result.
    in_vain: u32,
}

impl FromTier {
    pub(super) fn new() -> Self {
        Self { loaded: VecDeque::new(), known: KnownFrom::START, in_vain: 0 }
    }

    /// Returns the source of the byte at `position`. `None` if that is just changing: look again.
    pub(super) fn turn(&mut self, body: &Segmented, position: u64, end: u64) -> Option<Turn> {
        self.loaded.retain(|(first, segment)| position < first + segment.len() as u64);
        if let Some(piece) = body.piece_at(position, end).or_else(|| self.piece_at(position, end)) {
            return Some(Turn::Held(piece));
        }
        if KnownFrom(position) >= self.known
            && let Some(absent) = body.absent_at(position, end, LOAD_BYTES_MAX)
        {
            return Some(Turn::Absent(absent));
        }
        body.hole_at(position, end, self.known).map(Turn::Missing)
    }

    fn piece_at(&self, position: u64, end: u64) -> Option<Slice> {
        let (first, segment) = self
            .loaded
            .iter()
            .find(|(first, segment)| *first <= position && position < first + segment.len() as u64)?;
        let to = (end - first).min(segment.len() as u64);
        Some(segment.slice((position - first) as usize, to as usize))
    }

    /// Takes in the tier's answer for `absent`. After `None`, no answer, the tier is not asked again for this reply.
    pub(super) fn take(&mut self, body: &Segmented, absent: &Absent, answer: Option<Vec<Option<Segment>>>) {
        let Some(answer) = answer else {
            self.known = KnownFrom::NOWHERE;
            return;
        };
        let mut first_found = None;
        for ((index, range), segment) in absent.segments.iter().zip(answer) {
            let Some(segment) = segment else { continue };
            first_found.get_or_insert(range.first);
            body.keep(SegmentId { fill: absent.fill, index: *index }, segment.clone());
            self.loaded.push_back((range.first, segment));
        }
        let asked_from = absent.segments.first().map_or(0, |(_, range)| range.first);
        self.known = KnownFrom(first_found.unwrap_or_else(|| self.skipped(asked_from)));
        self.in_vain = if first_found.is_some() { 0 } else { self.in_vain + 1 };
    }

    /// Returns the position from which the tier is asked again after a load without a result. The distance doubles each time: if a tier
    /// has lost most of a body, the origin gets few requests for large parts, not one for each load.
    fn skipped(&self, from: u64) -> u64 {
        from.saturating_add(LOAD_BYTES_MAX.saturating_mul(2_u64.saturating_pow(self.in_vain)))
    }

    /// Returns the last segment kept for the client even if memory drops it, and the total size of all such segments.
    pub(super) fn held(&self) -> Option<(Slice, u64)> {
        let (_, last) = self.loaded.back()?;
        let bytes = self.loaded.iter().map(|(_, segment)| segment.len() as u64).sum();
        Some((last.slice(0, last.len()), bytes))
    }
}
