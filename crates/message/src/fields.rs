//! Header field lines packed into one allocation, in the order they arrived.
//!
//! A `HeaderMap` costs an allocation per value and loses the order of different names. Packed lines are also the HTTP/1.1 wire
//! form, so the head of a stored response is sent by copying one slice.

use std::ops::Range;

use caching::{FieldLine, conditional};
use smallvec::SmallVec;

/// A header section under construction: `name: value\r\n` for each line, plus the lengths of each part.
#[derive(Clone, Debug, Default)]
pub struct PackedFields {
    wire: Vec<u8>,
    spans: Vec<LineSpan>,
}

/// A header section for storage: one allocation of the exact size.
#[derive(Clone, Debug)]
pub struct KeptFields {
    /// The wire form, followed by the spans.
    bytes: Box<[u8]>,
    wire_bytes: u32,
}

/// A borrowed header section.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    wire: &'a [u8],
    spans: &'a [LineSpan],
}

/// Lengths of a line's name and value. Lines in [`KeptFields`] also record whether a 304 repeats them, so that this is decided only
/// once. A span has only four bytes, because each line of each stored response has one.
type LineSpan = [u8; 4];

const BELONGS_IN_304: u32 = 1 << 31;
/// Marks a span whose lengths don't fit into four bytes. The name then ends at the first colon, and the value at the first CR.
const IS_UNMEASURED: u32 = 1 << 30;
const NAME_SHIFT: u32 = 24;
const NAME_BYTES_MAX: usize = 0x3f;
const VALUE_BYTES_MAX: usize = 0xff_ffff;

const SEPARATOR: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

#[inline]
fn span(name: &str, value_bytes: usize) -> LineSpan {
    let lengths = match name.len() <= NAME_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX {
        true => (name.len() as u32) << NAME_SHIFT | value_bytes as u32,
        false => IS_UNMEASURED,
    };
    lengths.to_le_bytes()
}

impl PackedFields {
    #[inline]
    pub fn with_capacity(lines: usize) -> Self {
        Self { wire: Vec::with_capacity(lines * 40), spans: Vec::with_capacity(lines) }
    }

    #[inline]
    pub fn from_lines<'a>(lines: impl IntoIterator<Item = FieldLine<'a>>) -> Self {
        let lines = lines.into_iter();
        let mut packed = match lines.size_hint() {
            (0, _) => Self::default(),
            (known, _) => Self::with_capacity(known),
        };
        lines.for_each(|(name, value)| packed.push(name, value));
        packed
    }

    /// Appends a line. Names and values come from parsed messages, which contain no CR, LF or NUL.
    #[inline]
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.push_with(name, value.len(), |wire| wire.extend_from_slice(value));
    }

    /// Appends a line whose value consists of several parts.
    #[inline]
    pub fn push_parts(&mut self, name: &str, value: &[&[u8]]) {
        let value_bytes = value.iter().map(|part| part.len()).sum();
        self.push_with(name, value_bytes, |wire| value.iter().for_each(|part| wire.extend_from_slice(part)));
    }

    #[inline]
    fn push_with(&mut self, name: &str, value_bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.wire.reserve(name.len() + SEPARATOR.len() + value_bytes + LINE_END.len());
        self.wire.extend_from_slice(name.as_bytes());
        self.wire.extend_from_slice(SEPARATOR);
        let start = self.wire.len();
        write(&mut self.wire);
        debug_assert_eq!(self.wire.len() - start, value_bytes);
        debug_assert!(!name.contains(':') && !self.wire[start..].iter().any(|byte| b"\r\n".contains(byte)));
        self.wire.extend_from_slice(LINE_END);
        self.spans.push(span(name, value_bytes));
    }

    /// Returns whether the name of any line satisfies the predicate.
    #[inline]
    pub fn has_any(&self, is_such: impl Fn(&[u8]) -> bool) -> bool {
        let fields = self.view();
        fields.parts().any(|part| is_such(&fields.wire[part.name()]))
    }

    /// Removes the lines whose names don't satisfy the predicate.
    #[inline]
    pub fn retain(&mut self, is_kept: impl Fn(&[u8]) -> bool) {
        let fields = self.view();
        let verdict = |part: Part| (is_kept(&fields.wire[part.name()]), part.end - part.start);
        let lines: SmallVec<[(bool, usize); 32]> = fields.parts().map(verdict).collect();
        if lines.iter().all(|(is_kept, _)| *is_kept) {
            return;
        }
        let (mut from, mut to) = (0, 0);
        for (is_kept, bytes) in &lines {
            if *is_kept {
                self.wire.copy_within(from..from + bytes, to);
                to += bytes;
            }
            from += bytes;
        }
        self.wire.truncate(to);
        let mut lines = lines.into_iter();
        self.spans.retain(|_| lines.next().is_none_or(|(is_kept, _)| is_kept));
    }

    /// Replaces all lines called `name` with one.
    #[inline]
    pub fn set(&mut self, name: &str, value: &[u8]) {
        if self.value(name).is_some() {
            self.retain(|other| !other.eq_ignore_ascii_case(name.as_bytes()));
        }
        self.push(name, value);
    }

    /// Appends an element to a list field.
    #[inline]
    pub fn append_to_list(&mut self, name: &str, element: &[&[u8]]) {
        if self.value(name).is_none() {
            return self.push_parts(name, element);
        }
        let mut list = Vec::new();
        for before in self.values(name) {
            list.extend_from_slice(before);
            list.extend_from_slice(b", ");
        }
        element.iter().for_each(|part| list.extend_from_slice(part));
        self.set(name, &list);
    }

    /// Appends a line, with its name in lower case.
    #[inline]
    pub fn push_lowercase(&mut self, name: &str, value: &[u8]) {
        let start = self.wire.len();
        self.push(name, value);
        self.wire[start..start + name.len()].make_ascii_lowercase();
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the number of lines.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub fn view(&self) -> Fields<'_> {
        Fields { wire: &self.wire, spans: &self.spans }
    }

    #[inline]
    pub fn lines(&self) -> impl ExactSizeIterator<Item = FieldLine<'_>> + Clone {
        self.view().lines()
    }

    /// Returns the lines, borrowed, in the form that `caching` expects.
    #[inline]
    pub fn to_lines(&self) -> Vec<FieldLine<'_>> {
        self.lines().collect()
    }

    /// Returns the value of the first line called `name`.
    #[inline]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.view().value(name)
    }

    /// Returns the values of all lines called `name`.
    #[inline]
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.view().values(name)
    }
}

impl KeptFields {
    #[inline]
    pub fn view(&self) -> Fields<'_> {
        let (wire, spans) = self.bytes.split_at(self.wire_bytes as usize);
        Fields { wire, spans: spans.as_chunks().0 }
    }

    #[inline]
    pub fn lines(&self) -> impl ExactSizeIterator<Item = FieldLine<'_>> + Clone {
        self.view().lines()
    }

    /// Returns the lines, borrowed, in the form that `caching` expects.
    #[inline]
    pub fn to_lines(&self) -> Vec<FieldLine<'_>> {
        self.lines().collect()
    }

    /// Returns the value of the first line called `name`.
    #[inline]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.view().value(name)
    }

    /// Returns the number of heap bytes in use.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        store::allocated_bytes(self.bytes.len())
    }
}

impl From<PackedFields> for KeptFields {
    #[inline]
    fn from(packed: PackedFields) -> Self {
        let wire_bytes = packed.wire.len();
        // The buffer gets its exact size, because the spare capacity of a grown list would stay allocated.
        let mut bytes = Vec::with_capacity(wire_bytes + size_of_val(&packed.spans[..]));
        bytes.extend_from_slice(&packed.wire);
        for (span, (name, _)) in packed.spans.iter().zip(packed.lines()) {
            let belongs_in_304 = if conditional::belongs_in_304(name) { BELONGS_IN_304 } else { 0 };
            bytes.extend_from_slice(&(u32::from_le_bytes(*span) | belongs_in_304).to_le_bytes());
        }
        let wire_bytes = u32::try_from(wire_bytes).expect("header sections are limited far below 4 GiB");
        Self { bytes: bytes.into(), wire_bytes }
    }
}

impl<'a> Fields<'a> {
    /// Returns the number of lines.
    #[inline]
    pub fn line_count(self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub fn lines(self) -> impl ExactSizeIterator<Item = FieldLine<'a>> + Clone {
        // Checking the whole section costs less than checking each name. Names are only checked one by one if a value isn't UTF-8.
        let text = std::str::from_utf8(self.wire).ok();
        self.parts().map(move |part| {
            let name = text.and_then(|text| text.get(part.name()));
            name.map_or_else(|| self.line(part), |name| (name, self.value_in(part)))
        })
    }

    /// Iterates over the lines that a 304 repeats. The fields must come from [`KeptFields`].
    #[inline]
    pub fn lines_of_304(self) -> impl Iterator<Item = FieldLine<'a>> {
        self.parts().filter(|part| part.belongs_in_304).map(move |part| self.line(part))
    }

    /// Iterates over the lines that a 304 repeats, in wire form, with adjacent lines joined.
    #[inline]
    pub fn wire_of_304(self) -> impl Iterator<Item = &'a [u8]> {
        let mut parts = self.parts();
        std::iter::from_fn(move || {
            let first = parts.find(|part| part.belongs_in_304)?;
            let more = parts.by_ref().take_while(|part| part.belongs_in_304);
            let end = more.fold(first.end, |_, part| part.end);
            Some(&self.wire[first.start..end])
        })
    }

    #[inline]
    fn parts(self) -> Parts<'a> {
        Parts { wire: self.wire, next: 0, spans: self.spans.iter() }
    }

    /// Returns the HTTP/1.1 wire form of all lines, without the empty line that ends a head.
    #[inline]
    pub fn wire(self) -> &'a [u8] {
        self.wire
    }

    /// Returns the value of the first line called `name`.
    #[inline]
    pub fn value(self, name: &str) -> Option<&'a [u8]> {
        let part = self.parts().find(|part| self.is_called(*part, name))?;
        Some(self.value_in(part))
    }

    #[inline]
    pub fn values(self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.parts().filter(move |part| self.is_called(*part, name)).map(move |part| self.value_in(part))
    }

    /// Compares the lengths first, because most names differ in length, and then bytes, because only returned names have to be text.
    #[inline]
    fn is_called(self, part: Part, name: &str) -> bool {
        part.name_bytes == name.len() && self.wire[part.name()].eq_ignore_ascii_case(name.as_bytes())
    }

    #[inline]
    fn value_in(self, part: Part) -> &'a [u8] {
        &self.wire[part.value()]
    }

    #[inline]
    fn line(self, part: Part) -> FieldLine<'a> {
        (std::str::from_utf8(&self.wire[part.name()]).unwrap_or_default(), self.value_in(part))
    }
}

/// Position of a line in the wire form.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    name_bytes: usize,
    end: usize,
    belongs_in_304: bool,
}

impl Part {
    #[inline]
    fn name(self) -> Range<usize> {
        self.start..self.start + self.name_bytes
    }

    #[inline]
    fn value(self) -> Range<usize> {
        self.start + self.name_bytes + SEPARATOR.len()..self.end - LINE_END.len()
    }
}

/// Iterator over the positions of lines. Skipping a line costs only an addition.
#[derive(Clone)]
struct Parts<'a> {
    wire: &'a [u8],
    next: usize,
    spans: std::slice::Iter<'a, LineSpan>,
}

impl Iterator for Parts<'_> {
    type Item = Part;

    #[inline]
    fn next(&mut self) -> Option<Part> {
        let span = u32::from_le_bytes(*self.spans.next()?);
        let (name_bytes, value_bytes) = match span & IS_UNMEASURED {
            0 => ((span >> NAME_SHIFT) as usize & NAME_BYTES_MAX, span as usize & VALUE_BYTES_MAX),
            _ => measured(&self.wire[self.next..]),
        };
        let start = self.next;
        self.next = start + name_bytes + SEPARATOR.len() + value_bytes + LINE_END.len();
        Some(Part { start, name_bytes, end: self.next, belongs_in_304: span & BELONGS_IN_304 != 0 })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl ExactSizeIterator for Parts<'_> {}

/// Returns the lengths of name and value of the first line.
#[cold]
#[inline]
fn measured(wire: &[u8]) -> (usize, usize) {
    let name_bytes = memchr::memchr(b':', wire).unwrap_or_default();
    let line_bytes = memchr::memchr(b'\r', wire).unwrap_or_default();
    (name_bytes, line_bytes - name_bytes - SEPARATOR.len())
}

/// Iterates over the lines of a header map, with equal names together.
#[inline]
pub fn map_lines(map: &http::HeaderMap) -> impl Iterator<Item = FieldLine<'_>> {
    map.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// Returns the value of the first line called `name`, as text.
#[inline]
pub fn text<'a>(lines: &[FieldLine<'a>], name: &str) -> Option<&'a str> {
    let (_, value) = lines.iter().find(|(line_name, _)| line_name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_order_multiplicity_and_bytes() {
        let lines: Vec<FieldLine<'_>> =
            vec![("Set-Cookie", b"a=1"), ("X-Odd", b"\xff\x80"), ("set-cookie", b"b=2"), ("Empty", b"")];
        let packed = PackedFields::from_lines(lines.clone());
        let kept = KeptFields::from(packed.clone());
        for fields in [packed.view(), kept.view()] {
            assert_eq!(fields.lines().collect::<Vec<_>>(), lines);
            assert_eq!(
                fields.wire(),
                b"Set-Cookie: a=1\r\nX-Odd: \xff\x80\r\nset-cookie: b=2\r\nEmpty: \r\n"
            );
            assert_eq!(fields.value("SET-COOKIE"), Some(&b"a=1"[..]));
        }
        assert_eq!(kept.heap_bytes(), store::allocated_bytes(packed.view().wire().len() + 4 * lines.len()));
    }

    #[test]
    fn lengths_that_fit_in_no_span_are_found() {
        for (name_bytes, value_bytes) in
            [(63, 1), (64, 0), (300, 5), (1, 0xff_ffff), (1, 1 << 24), (200, 1 << 24)]
        {
            let (name, value) = ("n".repeat(name_bytes), vec![b':'; value_bytes]);
            let lines = [("before", &b"x"[..]), (&name, &value), ("after", b"y")];
            let packed = PackedFields::from_lines(lines);
            assert!(packed.lines().eq(lines), "{name_bytes} {value_bytes}");
            assert_eq!(packed.value("AFTER"), Some(&b"y"[..]));
            assert_eq!(packed.value(&name), Some(&value[..]));
        }
    }

    #[test]
    fn lines_are_replaced_and_lists_grow() {
        let mut packed = PackedFields::default();
        packed.push_lowercase("Via", b"1.0 a");
        packed.push_lowercase("X-A", b"1");
        packed.push_lowercase("VIA", b"1.1 b");
        packed.append_to_list("via", &[b"1.1 ", b"c"]);
        packed.append_to_list("forwarded", &[b"for=", b"d"]);
        assert_eq!(packed.view().wire(), b"x-a: 1\r\nvia: 1.0 a, 1.1 b, 1.1 c\r\nforwarded: for=d\r\n");
        packed.set("X-a", b"2");
        packed.set("range", b"bytes=0-");
        packed.retain(|name| name != b"via");
        let expected: [FieldLine<'_>; 3] = [("forwarded", b"for=d"), ("X-a", b"2"), ("range", b"bytes=0-")];
        assert_eq!(packed.to_lines(), expected);
        assert_eq!(packed.value("range"), Some(&b"bytes=0-"[..]));
    }

    #[test]
    fn a_304_has_the_same_lines_in_both_forms() {
        let lines: [FieldLine<'_>; 5] = [
            ("ETag", b"\"1\""),
            ("Content-Type", b"text/html"),
            ("Vary", b"Accept"),
            ("Date", b"today"),
            ("Trailer", b"X"),
        ];
        let kept = KeptFields::from(PackedFields::from_lines(lines));
        let names: Vec<_> = kept.view().lines_of_304().map(|(name, _)| name).collect();
        assert_eq!(names, ["ETag", "Vary", "Date"]);
        let wire: Vec<_> = kept.view().wire_of_304().collect();
        assert_eq!(wire, [&b"ETag: \"1\"\r\n"[..], b"Vary: Accept\r\nDate: today\r\n"]);
    }
}
