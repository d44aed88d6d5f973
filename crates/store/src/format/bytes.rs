//! Reading and writing of numbers and text.

use super::error::FormatError;
use crate::FillId;

/// Input that hasn't been read yet.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FormatError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a number whose highest value means `None`.
    pub(super) fn some_u64(&mut self) -> Result<Option<u64>, FormatError> {
        self.u64().map(|number| (number != NONE).then_some(number))
    }

    pub(super) fn fill(&mut self) -> Result<FillId, FormatError> {
        Ok(FillId { process: self.u64()?, sequence: self.u64()? })
    }

    pub(super) fn text_or_null(&mut self) -> Result<Option<&'a [u8]>, FormatError> {
        match self.u16()? {
            NULL => Ok(None),
            count => self.bytes(usize::from(count)).map(Some),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8], FormatError> {
        self.text_or_null()?.ok_or(FormatError::Invalid("a required text is null"))
    }

    /// Reads a list of `count` items of at least `item_bytes_min` bytes each. Allocates only for items for which enough bytes remain.
    pub(super) fn list<T>(
        &mut self,
        count: usize,
        item_bytes_min: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        if count.saturating_mul(item_bytes_min) > self.rest.len() {
            return Err(ENDS_EARLY);
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(super) fn end(self) -> Result<(), FormatError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FormatError::Invalid("there are trailing bytes")) }
    }
}

/// Output of an encoder.
pub(super) struct Writer<'o> {
    pub(super) out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn u8(&mut self, number: u8) {
        self.out.push(number);
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn some_u64(&mut self, number: Option<u64>) -> Result<(), FormatError> {
        if number == Some(NONE) {
            return Err(FormatError::Invalid("a number is too large"));
        }
        self.u64(number.unwrap_or(NONE));
        Ok(())
    }

    pub(super) fn fill(&mut self, fill: FillId) {
        self.u64(fill.process);
        self.u64(fill.sequence);
    }

    pub(super) fn text_or_null(&mut self, text: Option<&[u8]>) -> Result<(), FormatError> {
        let Some(text) = text else {
            self.u16(NULL);
            return Ok(());
        };
        let count = u16::try_from(text.len()).ok().filter(|count| *count != NULL);
        self.u16(count.ok_or(FormatError::Invalid("a text is too long"))?);
        self.bytes(text);
        Ok(())
    }

    pub(super) fn text(&mut self, text: &[u8]) -> Result<(), FormatError> {
        self.text_or_null(Some(text))
    }
}

const ENDS_EARLY: FormatError = FormatError::Invalid("the input ends early");
/// Length that represents a missing text.
const NULL: u16 = u16::MAX;
const NONE: u64 = u64::MAX;
