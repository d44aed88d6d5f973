//! Header field lines packed into one allocation, in the order they arrived.
//!
//! A `HeaderMap` costs an allocation per value and forgets the order of different names. Packed lines are
//! at the same time the HTTP/1.1 wire form: a stored response's head is sent by copying one slice.

use bytes::Bytes;
use caching::{FieldLine, conditional};

/// An owned header section: `name: value\r\n` for each line, plus where each part begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedFields {
    wire: Vec<u8>,
    lines: Vec<LineSpan>,
}

#[derive(Clone, Copy, Debug)]
struct LineSpan {
    start: u32,
    name_bytes: u16,
    /// Decided once, when a line comes in, and not with every 304; it stands where the compiler leaves room anyway.
    belongs_in_304: bool,
    value_bytes: u32,
}

const SEPARATOR: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

impl PackedFields {
    pub(crate) fn with_capacity(lines: usize) -> Self {
        Self { wire: Vec::with_capacity(lines * 40), lines: Vec::with_capacity(lines) }
    }

    pub(crate) fn from_lines<'a>(lines: impl IntoIterator<Item = FieldLine<'a>>) -> Self {
        let lines = lines.into_iter();
        let mut packed = match lines.size_hint() {
            (0, _) => Self::default(),
            (known, _) => Self::with_capacity(known),
        };
        lines.for_each(|(name, value)| packed.push(name, value));
        packed
    }

    /// Appends a line. Names and values come from parsed messages, which contain no CR, LF or NUL.
    pub(crate) fn push(&mut self, name: &str, value: &[u8]) {
        debug_assert!(!value.contains(&b'\n') && !value.contains(&b'\r'));
        let start = u32::try_from(self.wire.len()).expect("header sections are limited far below 4 GiB");
        self.wire.extend_from_slice(name.as_bytes());
        self.wire.extend_from_slice(SEPARATOR);
        self.wire.extend_from_slice(value);
        self.wire.extend_from_slice(LINE_END);
        self.lines.push(LineSpan {
            start,
            name_bytes: u16::try_from(name.len()).expect("field names are limited far below 64 KiB"),
            belongs_in_304: conditional::belongs_in_304(name),
            value_bytes: u32::try_from(value.len()).expect("header sections are limited far below 4 GiB"),
        });
    }

    /// Appends a line whose name may have letters of both cases.
    pub(crate) fn push_lowercase(&mut self, name: &str, value: &[u8]) {
        let start = self.wire.len();
        self.push(name, value);
        self.wire[start..start + name.len()].make_ascii_lowercase();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn lines(&self) -> impl ExactSizeIterator<Item = FieldLine<'_>> + Clone {
        // To check the whole section costs less than to check each name; only an odd value makes that necessary.
        let text = std::str::from_utf8(&self.wire).ok();
        self.lines.iter().map(move |span| (self.name(*span, text), self.value_bytes(span)))
    }

    fn name<'a>(&'a self, span: LineSpan, text: Option<&'a str>) -> &'a str {
        let start = span.start as usize;
        let name = text.and_then(|text| text.get(start..start + usize::from(span.name_bytes)));
        name.or_else(|| std::str::from_utf8(self.name_bytes(&span)).ok()).unwrap_or_default()
    }

    /// The lines that a 304 repeats of a response with these fields.
    pub(crate) fn lines_of_304(&self) -> impl Iterator<Item = FieldLine<'_>> {
        self.spans_of_304().map(|span| (self.name(*span, None), self.value_bytes(span)))
    }

    /// The same in wire form.
    pub(crate) fn wire_of_304(&self) -> impl Iterator<Item = &[u8]> {
        self.spans_of_304().map(|span| {
            let start = span.start as usize;
            let content_bytes = usize::from(span.name_bytes) + SEPARATOR.len() + span.value_bytes as usize;
            &self.wire[start..start + content_bytes + LINE_END.len()]
        })
    }

    fn spans_of_304(&self) -> impl Iterator<Item = &LineSpan> {
        self.lines.iter().filter(|span| span.belongs_in_304)
    }

    /// Borrowed lines in the form that `caching` takes.
    pub(crate) fn to_lines(&self) -> Vec<FieldLine<'_>> {
        self.lines().collect()
    }

    /// The lines in a form to keep: all values share one allocation.
    pub(crate) fn shared_lines(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let wire = Bytes::copy_from_slice(&self.wire);
        self.lines().zip(&self.lines).map(move |((name, value), span)| {
            let start = span.start as usize + name.len() + SEPARATOR.len();
            (name, wire.slice(start..start + value.len()))
        })
    }

    /// The HTTP/1.1 wire form of all lines, without the empty line that ends a head.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// The value of the first line called `name`.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        let is_name = |span: &&LineSpan| self.is_called(span, name);
        self.lines.iter().find(is_name).map(|span| self.value_bytes(span))
    }

    /// The values of all lines called `name`.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(|span| self.is_called(span, name)).map(|span| self.value_bytes(span))
    }

    /// The length first, which most names differ by; and as bytes, since only what leaves here has to be text.
    fn is_called(&self, span: &LineSpan, name: &str) -> bool {
        usize::from(span.name_bytes) == name.len()
            && self.name_bytes(span).eq_ignore_ascii_case(name.as_bytes())
    }

    fn name_bytes(&self, span: &LineSpan) -> &[u8] {
        let start = span.start as usize;
        &self.wire[start..start + usize::from(span.name_bytes)]
    }

    fn value_bytes(&self, span: &LineSpan) -> &[u8] {
        let start = span.start as usize + usize::from(span.name_bytes) + SEPARATOR.len();
        &self.wire[start..start + span.value_bytes as usize]
    }

    /// Heap bytes in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        store::allocated_bytes(self.wire.capacity())
            + store::allocated_bytes(self.lines.capacity() * size_of::<LineSpan>())
    }

    pub(crate) fn shrink(&mut self) {
        self.wire.shrink_to_fit();
        self.lines.shrink_to_fit();
    }
}

/// The lines of a header map, equal names together.
pub(crate) fn map_lines(map: &http::HeaderMap) -> impl Iterator<Item = FieldLine<'_>> {
    map.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// The value of the first line called `name`, as text.
pub(crate) fn text<'a>(lines: &[FieldLine<'a>], name: &str) -> Option<&'a str> {
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
        assert_eq!(packed.to_lines(), lines);
        assert_eq!(packed.wire(), b"Set-Cookie: a=1\r\nX-Odd: \xff\x80\r\nset-cookie: b=2\r\nEmpty: \r\n");
        assert_eq!(packed.value("SET-COOKIE"), Some(&b"a=1"[..]));
        let shared: Vec<(&str, Bytes)> = packed.shared_lines().collect();
        assert!(shared.iter().map(|(name, value)| (*name, &**value)).eq(lines));
    }

    #[test]
    fn a_304_has_the_same_lines_in_both_forms() {
        let lines: Vec<FieldLine<'_>> =
            vec![("ETag", b"\"1\""), ("Content-Type", b"text/html"), ("Vary", b"Accept"), ("Trailer", b"X")];
        let packed = PackedFields::from_lines(lines);
        assert_eq!(packed.lines_of_304().map(|(name, _)| name).collect::<Vec<_>>(), ["ETag", "Vary"]);
        let wire: Vec<_> = packed.wire_of_304().collect();
        assert_eq!(wire, [&b"ETag: \"1\"\r\n"[..], b"Vary: Accept\r\n"]);
    }
}
