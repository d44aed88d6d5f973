//! Values of RESP2 and RESP3.

/// A decoded value that borrows from the buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `+OK`
    Simple(&'a [u8]),
    /// `-ERR message`
    Error(&'a [u8]),
    /// `:1`
    Integer(i64),
    /// `$5`, then `hello`
    Bulk(&'a [u8]),
    /// `$-1`: the RESP2 null for a bulk string
    NullBulk,
    /// `*-1`: the RESP2 null for an array
    NullArray,
    /// `_`: the null of RESP3
    Null,
    /// `*2`, then the elements
    Array(Vec<Self>),
    /// `#t`
    Boolean(bool),
    /// `,1.5`
    Double(f64),
    /// `(123`: the digits
    BigNumber(&'a [u8]),
    /// `!5`, then `ERR x`
    BulkError(&'a [u8]),
    /// `=9`, then `txt:hello`
    Verbatim {
        /// `txt` or `mkd`
        format: [u8; 3],
        text: &'a [u8],
    },
    /// `%1`, then key and value
    Map(Vec<(Self, Self)>),
    /// `~2`, then the elements
    Set(Vec<Self>),
    /// `>2`, then the elements: out-of-band data, not a reply
    Push(Vec<Self>),
    /// `|1`, then key and value, then the value that they describe, which has no attributes itself
    Attributed { attributes: Vec<(Self, Self)>, value: Box<Self> },
}

impl Value<'_> {
    /// Appends the encoded value.
    ///
    /// # Panics
    /// In debug builds, if a simple string or a simple error contains CR or LF: such text needs a bulk
    /// string.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Integer(number) => line(out, b':', itoa::Buffer::new().format(*number).as_bytes()),
            Self::Bulk(bytes) => bulk(out, b'$', &[bytes]),
            Self::NullBulk => line(out, b'$', b"-1"),
            Self::NullArray => line(out, b'*', b"-1"),
            Self::Null => line(out, b'_', b""),
            Self::Array(elements) => all(out, b'*', elements),
            Self::Boolean(truth) => line(out, b'#', if *truth { b"t" } else { b"f" }),
            Self::Double(number) => line(out, b',', double(*number).as_bytes()),
            Self::BigNumber(digits) => line(out, b'(', digits),
            Self::BulkError(text) => bulk(out, b'!', &[text]),
            Self::Verbatim { format, text } => bulk(out, b'=', &[format, b":", text]),
            Self::Map(pairs) => all_pairs(out, b'%', pairs),
            Self::Set(elements) => all(out, b'~', elements),
            Self::Push(elements) => all(out, b'>', elements),
            Self::Attributed { attributes, value } => {
                all_pairs(out, b'|', attributes);
                value.encode(out);
            }
        }
    }

    /// Returns the text of a simple error or a bulk error.
    #[must_use]
    pub fn error(&self) -> Option<&[u8]> {
        match self {
            Self::Error(text) | Self::BulkError(text) => Some(text),
            Self::Attributed { value, .. } => value.error(),
            _ => None,
        }
    }

    /// Returns whether this is one of the three nulls.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match self {
            Self::NullBulk | Self::NullArray | Self::Null => true,
            Self::Attributed { value, .. } => value.is_null(),
            _ => false,
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    debug_assert!(memchr::memchr2(b'\r', b'\n', text).is_none(), "a line holds no line end");
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn length(out: &mut Vec<u8>, kind: u8, length: usize) {
    line(out, kind, itoa::Buffer::new().format(length).as_bytes());
}

pub(crate) fn bulk(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    length(out, kind, parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

fn all(out: &mut Vec<u8>, kind: u8, elements: &[Value<'_>]) {
    length(out, kind, elements.len());
    elements.iter().for_each(|element| element.encode(out));
}

fn all_pairs(out: &mut Vec<u8>, kind: u8, pairs: &[(Value<'_>, Value<'_>)]) {
    length(out, kind, pairs.len());
    for (key, value) in pairs {
        key.encode(out);
        value.encode(out);
    }
}

/// Formats a double as the shortest text that parses to an equal number, with an exponent if that is shorter.
fn double(number: f64) -> String {
    if number.is_nan() { "nan".to_owned() } else { format!("{number:?}") }
}
