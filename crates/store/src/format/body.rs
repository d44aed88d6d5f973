//! Bodies: the stored parts, and where they are.

use super::bytes::{Reader, Writer};
use super::error::FormatError;
use crate::{FillId, SEGMENT_BYTES_MAX};

/// Maximum size of a body inside its record, in bytes.
pub const INLINE_BYTES_MAX: usize = 4 << 10;

/// The body of a stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body<'a> {
    /// Whether the body is complete.
    pub state: BodyState,
    /// Length of the representation, if known.
    pub complete_bytes: Option<u64>,
    /// Location of the bytes.
    pub content: Content<'a>,
}

/// Completeness of a stored body, with its number in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyState {
    /// The whole body is stored.
    Complete = 1,
    /// A part of the body is stored.
    Part = 2,
}

/// Location of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content<'a> {
    /// The whole body, inside the record.
    Inline(&'a [u8]),
    /// Segments outside the record.
    Segments(Layout),
}

/// A body divided into cells of equal size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Fill that holds the whole cells: cell i is segment i of the fill.
    pub fill: FillId,
    /// Size of a cell in bytes.
    pub cell_bytes: u32,
    /// Runs of whole cells, in order and not adjacent.
    pub runs: Vec<Run>,
    /// Stored parts of the other cells, in order.
    pub fragments: Vec<Fragment>,
}

/// Adjacent whole cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of the first cell.
    pub first: u32,
    /// Number of cells; at least one.
    pub count: u32,
}

/// A part of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Position of the first byte in the representation.
    pub first: u64,
    /// Number of bytes; at least one.
    pub bytes: u32,
    /// Fill whose segment 0 holds the bytes.
    pub fill: FillId,
}

impl<'a> Body<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, FormatError> {
        let state = match reader.u8()? {
            1 => BodyState::Complete,
            2 => BodyState::Part,
            RESERVED_STATE => return Err(FormatError::Reserved),
            _ => return Err(FormatError::Invalid("the state of a body is not known")),
        };
        let complete_bytes = reader.some_u64()?;
        let content = match reader.u8()? {
            1 => {
                let count = reader.u16()?;
                Content::Inline(reader.bytes(usize::from(count))?)
            }
            2 => Content::Segments(Layout::read(reader)?),
            _ => return Err(FormatError::Invalid("the form of a body is not known")),
        };
        let body = Self { state, complete_bytes, content };
        body.check()?;
        Ok(body)
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        self.check()?;
        writer.u8(self.state as u8);
        writer.some_u64(self.complete_bytes)?;
        match &self.content {
            Content::Inline(data) => {
                writer.u8(1);
                writer.u16(data.len() as u16);
                writer.bytes(data);
            }
            Content::Segments(layout) => {
                writer.u8(2);
                layout.write(writer);
            }
        }
        Ok(())
    }

    /// Checks the invariants, before writing and after reading.
    fn check(&self) -> Result<(), FormatError> {
        let is_right = match &self.content {
            Content::Inline(data) => {
                let is_all = self.complete_bytes == Some(data.len() as u64);
                self.state == BodyState::Complete && is_all && data.len() <= INLINE_BYTES_MAX
            }
            Content::Segments(layout) => {
                let held = layout.held_bytes(self.complete_bytes)?;
                self.state != BodyState::Complete || Some(held) == self.complete_bytes
            }
        };
        if is_right {
            Ok(())
        } else {
            Err(FormatError::Invalid("the state of a body doesn't match its bytes"))
        }
    }
}

impl Layout {
    /// Maximum number of cells in a body.
    pub const CELLS_MAX: u32 = CELLS_MAX;
    /// Maximum number of runs.
    pub const RUNS_MAX: usize = RUNS_MAX;
    /// Maximum number of fragments.
    pub const FRAGMENTS_MAX: usize = FRAGMENTS_MAX;

    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (fill, cell_bytes) = (reader.fill()?, reader.u32()?);
        let runs = usize::from(reader.u16()?);
        let within = |count: usize, max: usize| match count <= max {
            true => Ok(count),
            false => Err(FormatError::Invalid("a body has too many pieces")),
        };
        let runs = reader.list(within(runs, RUNS_MAX)?, RUN_BYTES, |reader| {
            Ok(Run { first: reader.u32()?, count: reader.u32()? })
        })?;
        let fragments = usize::from(reader.u8()?);
        let fragments = reader.list(within(fragments, FRAGMENTS_MAX)?, FRAGMENT_BYTES, |reader| {
            Ok(Fragment { first: reader.u64()?, bytes: reader.u32()?, fill: reader.fill()? })
        })?;
        Ok(Self { fill, cell_bytes, runs, fragments })
    }

    /// Writes the layout. The layout was checked before, so the counts fit.
    fn write(&self, writer: &mut Writer<'_>) {
        writer.fill(self.fill);
        writer.u32(self.cell_bytes);
        writer.u16(self.runs.len() as u16);
        for run in &self.runs {
            writer.u32(run.first);
            writer.u32(run.count);
        }
        writer.u8(self.fragments.len() as u8);
        for fragment in &self.fragments {
            writer.u64(fragment.first);
            writer.u32(fragment.bytes);
            writer.fill(fragment.fill);
        }
    }

    fn check(&self) -> Result<(), FormatError> {
        if self.runs.len() > RUNS_MAX || self.fragments.len() > FRAGMENTS_MAX {
            return Err(FormatError::Invalid("a body has too many pieces"));
        }
        if self.cell_bytes == 0 || self.cell_bytes as usize > SEGMENT_BYTES_MAX {
            return Err(FormatError::Invalid("the size of a cell is out of range"));
        }
        // A run begins at least one cell after the end of the previous one.
        let mut free = 0;
        for run in &self.runs {
            let end = run.first.checked_add(run.count).filter(|end| *end <= CELLS_MAX);
            let end = end.filter(|_| run.count > 0 && run.first >= free);
            free = end.ok_or(FormatError::Invalid("cells are out of order or too far in"))? + 1;
        }
        Ok(())
    }

    /// Returns the number of stored bytes, which equals `complete_bytes` if nothing is missing.
    ///
    /// # Errors
    /// If a piece is out of place, or there are too many.
    pub fn held_bytes(&self, complete_bytes: Option<u64>) -> Result<u64, FormatError> {
        self.check()?;
        let cell_bytes = u64::from(self.cell_bytes);
        let complete_bytes = complete_bytes.unwrap_or(u64::MAX);
        let mut held = 0;
        for run in &self.runs {
            let last_begins = u64::from(run.first + run.count - 1) * cell_bytes;
            if last_begins >= complete_bytes {
                return Err(FormatError::Invalid("a cell is past the end"));
            }
            let end = (last_begins + cell_bytes).min(complete_bytes);
            held += end - u64::from(run.first) * cell_bytes;
        }
        let mut free = 0;
        for fragment in &self.fragments {
            free = self.end_of(fragment, free, complete_bytes).ok_or(MISPLACED)?;
            held += u64::from(fragment.bytes);
        }
        Ok(held)
    }

    /// Returns the end of a fragment; `None` if it is out of place.
    fn end_of(&self, fragment: &Fragment, free: u64, complete_bytes: u64) -> Option<u64> {
        let cell_bytes = u64::from(self.cell_bytes);
        let cell = u32::try_from(fragment.first / cell_bytes).ok().filter(|cell| *cell < CELLS_MAX)?;
        let cell_begins = u64::from(cell) * cell_bytes;
        let cell_ends = (cell_begins + cell_bytes).min(complete_bytes);
        let end = fragment.first + u64::from(fragment.bytes);
        let is_whole = fragment.first == cell_begins && end == cell_ends;
        let is_within = fragment.bytes > 0 && fragment.first >= free && end <= cell_ends && !is_whole;
        let is_in_run = self.runs.iter().any(|run| run.first <= cell && cell < run.first + run.count);
        (is_within && !is_in_run).then_some(end)
    }
}

/// State of a body in progress, written by versions that shared bodies while they were arriving.
const RESERVED_STATE: u8 = 3;
/// Limit on the index of a segment.
pub(super) const CELLS_MAX: u32 = 1 << 16;
const RUNS_MAX: usize = 256;
const RUN_BYTES: usize = 8;
const FRAGMENTS_MAX: usize = 64;
const FRAGMENT_BYTES: usize = 28;
const MISPLACED: FormatError = FormatError::Invalid("a fragment is out of place");
