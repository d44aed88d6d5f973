//! Finds the end of a reply.

use crate::line::{self, Length, LineScan};
use crate::{DecodeError, Limits, Problem};

/// Finds the end of a value in a growing buffer.
///
/// Scalars are checked when they are parsed. The scanner checks only the limits and the parts that determine
/// the end.
#[derive(Clone, Debug)]
pub struct Scanner {
    limits: Limits,
    /// Offset of the next line, or of the rest of a bulk string.
    at: usize,
    line: LineScan,
    /// Length of a bulk string that begins at `at`.
    bulk: Option<usize>,
    elements: usize,
    /// Open aggregates, the innermost last. Empty for a scalar, which then allocates nothing.
    open: Vec<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    missing: usize,
    purpose: Purpose,
}

/// The role of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// An element of the enclosing aggregate.
    Element,
    /// A description of the element that follows.
    Attribute,
}

impl Scanner {
    /// Creates a scanner for a sequence of values.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, at: 0, line: LineScan::default(), bulk: None, elements: 0, open: Vec::new() }
    }

    /// Returns the length of the value at the beginning of `bytes`, or `None` if it is incomplete. In that
    /// case, call it again with the same bytes and more. After a value or an error, it starts over.
    ///
    /// # Errors
    /// If the bytes are not a value, or exceed the limits.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        let result = self.advance(bytes);
        if !matches!(result, Ok(None)) {
            let open = std::mem::take(&mut self.open);
            *self = Self::new(self.limits);
            self.open = open;
            self.open.clear();
        }
        result
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        loop {
            let is_element = match self.bulk {
                Some(length) => self.skip_bulk(bytes, length)?.then_some(Purpose::Element),
                None => match self.read_line(bytes)? {
                    Line::Missing => None,
                    Line::Begun => continue,
                    Line::Whole(purpose) => Some(purpose),
                },
            };
            let Some(purpose) = is_element else { return Ok(None) };
            if self.close(purpose) {
                return Ok(Some(self.at));
            }
        }
    }

    /// Skips a bulk string and its line end once it has arrived completely.
    fn skip_bulk(&mut self, bytes: &[u8], length: usize) -> Result<bool, DecodeError> {
        let end = self.at + length;
        let is_whole = match bytes.get(end..).unwrap_or_default() {
            [b'\r', b'\n', ..] => true,
            [] | [b'\r'] => false,
            [b'\r', ..] => return Err(Problem::BulkEnd.at(end + 1)),
            _ => return Err(Problem::BulkEnd.at(end)),
        };
        if is_whole {
            self.at = end + 2;
            self.bulk = None;
        }
        Ok(is_whole)
    }

    fn read_line(&mut self, bytes: &[u8]) -> Result<Line, DecodeError> {
        let Some(&kind) = bytes.get(self.at) else { return Ok(Line::Missing) };
        let begin = self.at;
        if !KINDS.contains(&kind) {
            return Err(Problem::UnknownType(kind).at(begin));
        }
        let Some(length) = self.line.scan(bytes, begin + 1, &self.limits)? else { return Ok(Line::Missing) };
        let text = &bytes[begin + 1..begin + 1 + length];
        self.at = begin + 1 + length + 2;
        self.count_element(begin)?;
        match kind {
            b'$' | b'!' | b'=' => self.begin_bulk(kind, text, begin),
            b'*' | b'~' | b'>' => self.begin_aggregate(kind, text, begin, 1),
            b'%' | b'|' => self.begin_aggregate(kind, text, begin, 2),
            _ => Ok(Line::Whole(Purpose::Element)),
        }
    }

    fn begin_bulk(&mut self, kind: u8, text: &[u8], begin: usize) -> Result<Line, DecodeError> {
        let limit = self.limits.bulk_bytes_max;
        match line::length(text).map_err(|problem| problem.at(begin + 1))? {
            Length::Null if kind == b'$' => Ok(Line::Whole(Purpose::Element)),
            Length::Null => Err(Problem::Length.at(begin + 1)),
            Length::Of(length) if length > limit => Err(Problem::BulkOverLimit { limit }.at(begin + 1)),
            Length::Of(length) => {
                self.bulk = Some(length);
                Ok(Line::Begun)
            }
        }
    }

    fn begin_aggregate(
        &mut self,
        kind: u8,
        text: &[u8],
        begin: usize,
        each: usize,
    ) -> Result<Line, DecodeError> {
        let purpose = if kind == b'|' { Purpose::Attribute } else { Purpose::Element };
        let length = match line::length(text).map_err(|problem| problem.at(begin + 1))? {
            Length::Null if kind == b'*' => return Ok(Line::Whole(purpose)),
            Length::Null => return Err(Problem::Length.at(begin + 1)),
            Length::Of(length) => length,
        };
        // The limit is checked before any element arrives, so that a peer can't announce more than it may
        // send.
        let limit = self.limits.elements_max;
        let missing = length.checked_mul(each).filter(|missing| *missing <= limit - self.elements);
        let missing = missing.ok_or_else(|| Problem::ElementsOverLimit { limit }.at(begin + 1))?;
        if self.open.len() == self.limits.depth_max {
            return Err(Problem::DepthOverLimit { limit: self.limits.depth_max }.at(begin));
        }
        if missing == 0 {
            return Ok(Line::Whole(purpose));
        }
        self.open.push(Open { missing, purpose });
        Ok(Line::Begun)
    }

    fn count_element(&mut self, begin: usize) -> Result<(), DecodeError> {
        let limit = self.limits.elements_max;
        self.elements += 1;
        if self.elements > limit { Err(Problem::ElementsOverLimit { limit }.at(begin)) } else { Ok(()) }
    }

    /// Marks an element as complete, and returns whether the whole value is complete.
    fn close(&mut self, purpose: Purpose) -> bool {
        if purpose == Purpose::Attribute {
            return false;
        }
        while let Some(innermost) = self.open.last_mut() {
            innermost.missing -= 1;
            if innermost.missing > 0 {
                return false;
            }
            if self.open.pop().is_some_and(|closed| closed.purpose == Purpose::Attribute) {
                return false;
            }
        }
        true
    }
}

/// Result of reading the line of a value.
enum Line {
    Missing,
    /// Elements or bytes follow.
    Begun,
    Whole(Purpose),
}

/// The type bytes of RESP2, then those of RESP3.
const KINDS: &[u8] = b"+-:$*_,#!=(%~>|";
