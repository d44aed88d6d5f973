//! Requests: arrays of bulk strings, and inline commands.

use std::ops::Range;

use crate::line::{self, Length, LineScan};
use crate::quick::{self, ShortScanner};
use crate::{DecodeError, Limits, Problem, value};

/// Appends a command as an array of bulk strings.
pub fn encode_command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    value::length(out, b'*', arguments.len());
    arguments.iter().for_each(|argument| value::bulk(out, b'$', &[argument]));
}

/// Finds the arguments of a request in a growing buffer.
#[derive(Clone, Debug)]
pub struct RequestScanner {
    limits: Limits,
    at: usize,
    line: LineScan,
    state: State,
    /// Positions of the arguments in the caller's buffer, or in `unquoted`.
    ranges: Vec<Range<usize>>,
    /// Arguments of an inline command.
    unquoted: Vec<u8>,
}

/// Memory that a scanner keeps between requests without counting it.
const KEPT_BYTES_MAX: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Arguments { missing: usize },
    Bulk { length: usize, missing: usize },
}

/// The arguments of one request, with the name of the command first. Empty for an empty line or an empty
/// array.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// Bytes of the request in the buffer.
    pub bytes: usize,
    source: &'a [u8],
    ranges: &'a [Range<usize>],
    /// The index and bytes of a detached argument; see [`Self::with`].
    detached: Option<(usize, &'a [u8])>,
}

/// An argument that has not arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Index of the argument; 0 is the name of the command.
    pub index: usize,
    /// Offset of the argument in the request.
    pub at: usize,
    /// Announced length of the argument in bytes.
    pub length: usize,
}

impl<'a> Arguments<'a> {
    /// The slices of `source` at these ranges, for a request of another protocol.
    #[must_use]
    pub fn at_places(source: &'a [u8], ranges: &'a [Range<usize>]) -> Self {
        Self { bytes: source.len(), source, ranges, detached: None }
    }

    /// Substitutes `argument` for the detached one; see [`RequestScanner::detach`].
    #[must_use]
    pub fn with(self, index: usize, argument: &'a [u8]) -> Self {
        Self { detached: Some((index, argument)), ..self }
    }

    /// Bytes of the request, including those of a detached argument.
    #[must_use]
    pub fn bytes_everywhere(&self) -> usize {
        self.bytes + self.detached.map_or(0, |(_, argument)| argument.len())
    }

    /// Number of arguments, including the name of the command.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether the request is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the argument at `index`; 0 is the name of the command.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&'a [u8]> {
        match self.detached {
            Some((detached, argument)) if detached == index => Some(argument),
            _ => self.ranges.get(index).map(|range| &self.source[range.clone()]),
        }
    }

    /// Iterates over the arguments in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let arguments = *self;
        // The iterator has an exact length, so that `collect` allocates once.
        (0..self.len()).map(move |index| arguments.at(index).unwrap_or_default())
    }
}

impl RequestScanner {
    /// Creates a scanner for a sequence of requests.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let (ranges, unquoted) = (Vec::new(), Vec::new());
        Self { limits, at: 0, line: LineScan::default(), state: State::Begin, ranges, unquoted }
    }

    /// Returns the request at the beginning of `bytes`, or `None` if it is incomplete. In that case, call it
    /// again with the same bytes and more. After a request or an error, it starts over.
    ///
    /// # Errors
    /// If the bytes are not a request, or exceed the limits.
    pub fn scan<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Option<Arguments<'a>>, DecodeError> {
        let quick = self.is_at_begin() && bytes.first() == Some(&b'*') && quick::is_within(&self.limits);
        let found = if quick { quick::array(bytes, &self.limits, &mut self.ranges) } else { None };
        let length = if found.is_some() { found } else { self.advance(bytes)? };
        let source = if bytes.first() == Some(&b'*') { bytes } else { &self.unquoted };
        Ok(length.map(|bytes| Arguments { bytes, source, ranges: &self.ranges, detached: None }))
    }

    /// Sets the limits for the requests that begin from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Memory of a large list of arguments; 0 if it is small.
    #[must_use]
    #[inline]
    pub fn kept_bytes(&self) -> usize {
        let bytes = self.ranges.capacity() * size_of::<Range<usize>>() + self.unquoted.capacity();
        if bytes > KEPT_BYTES_MAX { bytes } else { 0 }
    }

    /// Frees the memory of a large list of arguments. Call it after the last request has been processed.
    #[inline]
    pub fn shrink(&mut self) {
        if self.kept_bytes() > 0 && self.is_at_begin() {
            (self.ranges, self.unquoted) = (Vec::new(), Vec::new());
        }
    }

    /// Returns a scanner for short requests such as GET and SET, or `None` while a request is incomplete.
    #[must_use]
    pub fn short(&self) -> Option<ShortScanner> {
        let may = self.is_at_begin() && quick::is_within(&self.limits) && self.limits.elements_max >= 3;
        may.then(|| ShortScanner::new(&self.limits))
    }

    /// The argument of an array that has begun to arrive and is incomplete.
    #[must_use]
    pub fn begun(&self) -> Option<Begun> {
        match self.state {
            State::Bulk { length, .. } => Some(Begun { index: self.ranges.len(), at: self.at, length }),
            State::Begin | State::Arguments { .. } => None,
        }
    }

    /// The number of complete arguments of an array, and of missing ones; both 0 before the array's length is
    /// known.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        match self.state {
            State::Begin => (0, 0),
            State::Arguments { missing } | State::Bulk { missing, .. } => (self.ranges.len(), missing),
        }
    }

    /// Detaches the incomplete argument: the caller stores its bytes elsewhere, and in the buffer its line
    /// end takes their place. The argument is empty in the request until [`Arguments::with`] substitutes it.
    pub fn detach(&mut self) {
        if let State::Bulk { length, .. } = &mut self.state {
            *length = 0;
        }
    }

    /// Returns whether the scanner is between requests.
    fn is_at_begin(&self) -> bool {
        self.at == 0 && self.state == State::Begin && self.line == LineScan::default()
    }

    /// Returns the length of the request in bytes, with its arguments in `ranges`.
    fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        if self.is_at_begin() {
            self.ranges.clear();
        }
        let Some(&first) = bytes.first() else { return Ok(None) };
        let is_whole = if first == b'*' { self.array(bytes) } else { self.inline(bytes) };
        if is_whole == Ok(false) {
            return Ok(None);
        }
        let length = self.at;
        (self.at, self.line, self.state) = (0, LineScan::default(), State::Begin);
        is_whole.map(|_| Some(length))
    }

    fn array(&mut self, bytes: &[u8]) -> Result<bool, DecodeError> {
        loop {
            let is_advanced = match self.state {
                State::Begin => self.begin(bytes)?,
                State::Arguments { missing: 0 } => return Ok(true),
                State::Arguments { missing } => self.announced(bytes, missing)?,
                State::Bulk { length, missing } => self.argument(bytes, length, missing)?,
            };
            if !is_advanced {
                return Ok(false);
            }
        }
    }

    fn begin(&mut self, bytes: &[u8]) -> Result<bool, DecodeError> {
        let Some(length) = self.length(bytes, line::count)? else { return Ok(false) };
        let limit = self.limits.elements_max;
        self.state = match length {
            Length::Null => State::Arguments { missing: 0 },
            Length::Of(missing) if missing <= limit => State::Arguments { missing },
            Length::Of(_) => return Err(Problem::ElementsOverLimit { limit }.at(1)),
        };
        Ok(true)
    }

    fn announced(&mut self, bytes: &[u8], missing: usize) -> Result<bool, DecodeError> {
        let begin = self.at;
        match bytes.get(begin) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(_) => return Err(Problem::NotBulk.at(begin)),
        }
        let Some(length) = self.length(bytes, line::length)? else { return Ok(false) };
        let limit = self.limits.bulk_bytes_max;
        match length {
            Length::Null => Err(Problem::Length.at(begin + 1)),
            Length::Of(length) if length > limit => Err(Problem::BulkOverLimit { limit }.at(begin + 1)),
            Length::Of(length) => {
                self.state = State::Bulk { length, missing };
                Ok(true)
            }
        }
    }

    fn argument(&mut self, bytes: &[u8], length: usize, missing: usize) -> Result<bool, DecodeError> {
        let end = self.at + length;
        match bytes.get(end..).unwrap_or_default() {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(false),
            [b'\r', ..] => return Err(Problem::BulkEnd.at(end + 1)),
            _ => return Err(Problem::BulkEnd.at(end)),
        }
        self.ranges.push(self.at..end);
        self.at = end + 2;
        self.state = State::Arguments { missing: missing - 1 };
        Ok(true)
    }

    /// Parses the length in a line; the first byte, which is the type, is skipped.
    fn length(
        &mut self,
        bytes: &[u8],
        read: fn(&[u8]) -> Result<Length, Problem>,
    ) -> Result<Option<Length>, DecodeError> {
        let begin = self.at + 1;
        let Some(length) = self.line.scan(bytes, begin, &self.limits)? else { return Ok(None) };
        self.at = begin + length + 2;
        read(&bytes[begin..begin + length]).map(Some).map_err(|problem| problem.at(begin))
    }

    /// Scans an inline command, which may end in LF alone.
    fn inline(&mut self, bytes: &[u8]) -> Result<bool, DecodeError> {
        let found = memchr::memchr(b'\n', &bytes[self.at..]).map(|at| self.at + at);
        let limit = self.limits.line_bytes_max;
        let line = &bytes[..found.unwrap_or(bytes.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > limit {
            return Err(Problem::LineOverLimit { limit }.at(limit));
        }
        let Some(end) = found else {
            self.at = bytes.len();
            return Ok(false);
        };
        self.at = end + 1;
        self.unquoted.clear();
        let mut words = Words { line, at: 0 };
        while let Some(range) = words.next(&mut self.unquoted)? {
            self.ranges.push(range);
        }
        Ok(true)
    }
}

/// Splits an inline command into words with the quoting rules of Redis: `"` with escapes, `'` with `\'` only.
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl Words<'_> {
    /// Appends the next word to `out` and returns its range.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Range<usize>>, DecodeError> {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        let begin = out.len();
        if self.peek().is_none() {
            return Ok(None);
        }
        while let Some(byte) = self.peek().filter(|byte| !is_space(*byte)) {
            let quote = self.at;
            self.at += 1;
            match byte {
                b'"' | b'\'' => self.quoted(byte, out).ok_or_else(|| Problem::Quote.at(quote))?,
                _ => out.push(byte),
            }
        }
        Ok(Some(begin..out.len()))
    }

    /// Reads the rest of a quoted part, after which the word has to end.
    fn quoted(&mut self, quote: u8, out: &mut Vec<u8>) -> Option<()> {
        loop {
            let byte = self.take()?;
            if byte == quote {
                return self.peek().is_none_or(is_space).then_some(());
            }
            let escaped = if byte == b'\\' { self.escaped(quote) } else { None };
            out.push(escaped.unwrap_or(byte));
        }
    }

    /// Returns the byte that an escape stands for, or `None` for a literal backslash.
    fn escaped(&mut self, quote: u8) -> Option<u8> {
        let next = self.peek()?;
        if quote == b'\'' {
            self.at += usize::from(next == quote);
            return (next == quote).then_some(next);
        }
        if next == b'x'
            && let Some(byte) = self.line.get(self.at + 1..self.at + 3).and_then(hexadecimal)
        {
            self.at += 3;
            return Some(byte);
        }
        self.at += 1;
        Some(match next {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'a' => 7,
            other => other,
        })
    }

    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        self.at += 1;
        self.line.get(self.at - 1).copied()
    }
}

#[cfg(test)]
impl RequestScanner {
    /// Returns the length that [`RequestScanner::scan`] finds without the fast path.
    pub(crate) fn scan_any(&mut self, bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        self.advance(bytes)
    }

    /// The ranges of the arguments.
    pub(crate) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let is_plain = digits.iter().all(u8::is_ascii_hexdigit);
    str::from_utf8(digits).ok().filter(|_| is_plain).and_then(|digits| u8::from_str_radix(digits, 16).ok())
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0 | 11 | 12)
}
