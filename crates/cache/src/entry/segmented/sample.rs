//! Bodies for tests, of 61 bytes on a grid of 8.

use std::sync::Arc;

use caching::ByteRange;
use store::format::{Fragment, Layout};
use store::{Charge, FillId, Memory, MemoryConfig, Placement, Record, Segment};

use super::Segmented;
use super::known::Known;

/// A stand-in for the record type, for tests of bodies without records.
#[derive(Debug)]
pub struct NoRecord;

impl Record for NoRecord {
    fn charge(&self) -> &Charge {
        unreachable!("none is made")
    }

    fn expires_at_ms(&self) -> Option<u64> {
        None
    }

    fn responses(&self) -> u64 {
        0
    }
}

pub const SEGMENT_BYTES: usize = 8;
pub const COMPLETE_BYTES: u64 = 61;

pub fn memory() -> Memory<NoRecord> {
    Memory::new(MemoryConfig::with_bytes_max(64 << 20))
}

pub fn empty(memory: &Memory<NoRecord>, complete_bytes: Option<u64>) -> Segmented {
    Segmented::new(Arc::new(memory.open_group()), SEGMENT_BYTES, complete_bytes)
}

pub fn content(range: ByteRange) -> Vec<u8> {
    (range.first..=range.last).map(|position| (position * 37 + 11) as u8).collect()
}

/// Returns a body that knows the cells marked `h` or `k`, of which memory holds those marked `h`.
pub fn read(memory: &Memory<impl Record>, cells: &str, fragments: Vec<Fragment>) -> Segmented {
    let known = cells.bytes().enumerate().filter(|(_, cell)| *cell != b'-');
    let mut runs = Known::default();
    known.for_each(|(index, _)| runs.insert(index as u32));
    let layout = Layout { fill: FillId::next(), cell_bytes: 8, runs: runs.runs, fragments };
    let body = Segmented::restored(memory, &layout, Some(COMPLETE_BYTES)).unwrap();
    for (index, _) in cells.bytes().enumerate().filter(|(_, cell)| *cell == b'h') {
        let range = body.cell_of(index as u64 * 8);
        let segment = Segment::copy(memory.budget(), Placement::Heap, &content(range)).unwrap();
        body.group.put(index as u32, segment);
    }
    body
}
