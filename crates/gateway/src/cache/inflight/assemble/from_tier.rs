//! Where the next byte of a body comes from, and what a reply has from the tier behind memory.

use std::collections::VecDeque;

use caching::ByteRange;
use store::{Segment, SegmentId, Slice};

use crate::cache::record::segmented::{Absent, KnownFrom, Segmented};
use crate::cache::tiers::segments::LOAD_BYTES_MAX;

/// Where the byte at a position comes from.
#[derive(Debug)]
pub(super) enum Turn {
    /// It is held, with some behind it.
    Held(Slice),
    /// A tier may have it, and some behind it.
    Absent(Absent),
    /// From the origin, with all behind it that is missing too.
    Missing(ByteRange),
}

/// What one reply has loaded. Its bytes are read in order.
#[derive(Debug)]
pub(super) struct FromTier {
    /// What has not been passed yet, each with its first byte. Memory may have refused it, or may have forgotten it.
    loaded: VecDeque<(u64, Segment)>,
    /// What lies before is not asked for again.
    known: KnownFrom,
    /// Loads one after the other that brought nothing.
    in_vain: u32,
}

impl FromTier {
    pub(super) fn new() -> Self {
        Self { loaded: VecDeque::new(), known: KnownFrom::START, in_vain: 0 }
    }

    /// Where the byte at `position` comes from, now. `None` where that is just changing: look again.
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

    /// What the tier had of `absent`; `None` where it gave no answer, and is not asked again for this reply.
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

    /// From where on the tier is asked again after a load that brought nothing. Each time it is further: where a tier has
    /// forgotten most of a body, the origin gets few requests for large parts, and not one for each load.
    fn skipped(&self, from: u64) -> u64 {
        from.saturating_add(LOAD_BYTES_MAX.saturating_mul(2_u64.saturating_pow(self.in_vain)))
    }

    /// What is kept for the client that memory may not keep: the last of it, and how much it is.
    pub(super) fn held(&self) -> Option<(Slice, u64)> {
        let (_, last) = self.loaded.back()?;
        let bytes = self.loaded.iter().map(|(_, segment)| segment.len() as u64).sum();
        Some((last.slice(0, last.len()), bytes))
    }
}
