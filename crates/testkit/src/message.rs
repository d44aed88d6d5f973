//! HTTP/1.x messages as the tests see them: uncorrected, and refused only if they can't be parsed at all.

use std::io::{self, BufRead, Read};

/// Field lines in the order received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// Returns the value of the first line with this name.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the values of all lines with this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns all values joined with commas; empty if there are none.
    pub fn joined(&self, name: &str) -> String {
        self.all(name).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether there is a line with this name.
    pub fn has(&self, name: &str) -> bool {
        self.one(name).is_some()
    }

    /// Returns whether a comma-separated list has this member.
    pub fn lists(&self, name: &str, member: &str) -> bool {
        self.all(name).flat_map(|value| value.split(',')).any(|own| own.trim().eq_ignore_ascii_case(member))
    }
}

/// Start line and fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The first line without its end.
    pub start: String,
    /// The field lines.
    pub fields: Fields,
}

impl Head {
    /// Reads a head; `None` if the peer closes before its first byte.
    ///
    /// # Errors
    /// Returns an error if the connection breaks or closes inside the head.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(start) = line(reader)? else { return Ok(None) };
        let fields = fields(reader)?;
        Ok(Some(Self { start, fields }))
    }

    /// Returns the n-th word of the first line, from 0; empty if there is none.
    pub fn word(&self, index: usize) -> &str {
        self.start.split(' ').nth(index).unwrap_or_default()
    }

    /// Returns the status code of a response; 0 if there is none.
    pub fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    /// Returns whether the end of the body is known without the end of the connection.
    pub(crate) fn is_framed(&self) -> bool {
        self.is_chunked() || self.content_length().is_some()
    }

    /// Returns whether the last transfer coding is `chunked`.
    fn is_chunked(&self) -> bool {
        let codings = self.fields.joined("transfer-encoding").to_ascii_lowercase();
        codings.rsplit(',').next().is_some_and(|last| last.trim() == "chunked")
    }

    fn content_length(&self) -> Option<usize> {
        self.fields.one("content-length")?.trim().parse().ok()
    }
}

/// Reads field lines up to the empty line.
pub(crate) fn fields(reader: &mut impl BufRead) -> io::Result<Fields> {
    let mut fields = Vec::new();
    loop {
        let line = line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.is_empty() {
            return Ok(Fields(fields));
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// Reads the size of the next chunk.
pub(crate) fn chunk_size(reader: &mut impl BufRead) -> io::Result<usize> {
    let line = line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(digits, 16).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads the line end after the data of a chunk.
pub(crate) fn chunk_end(reader: &mut impl BufRead) -> io::Result<()> {
    let end = line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    if end.is_empty() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Reads a body that its head frames by a length (0 if there is none) or by chunks. After an error, `body` keeps the bytes received before
/// it.
pub(crate) fn body(
    reader: &mut impl BufRead,
    head: &Head,
    body: &mut Vec<u8>,
    trailers: &mut Fields,
) -> io::Result<()> {
    if !head.is_chunked() {
        return exactly(reader, head.content_length().unwrap_or(0), body);
    }
    loop {
        match chunk_size(reader)? {
            0 => {
                *trailers = fields(reader)?;
                return Ok(());
            }
            size => exactly(reader, size, body)?,
        }
        chunk_end(reader)?;
    }
}

/// Appends `count` bytes; after an error, `body` keeps the bytes received before it.
pub(crate) fn exactly(reader: &mut impl BufRead, count: usize, body: &mut Vec<u8>) -> io::Result<()> {
    let wanted = u64::try_from(count).expect("a length fits into 64 bits");
    let read = reader.take(wanted).read_to_end(body)?;
    if read == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a line without its end; `None` at the end of the stream.
fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.pop_if(|last| *last == b'\r');
    Ok(Some(text(line)))
}

/// Converts bytes to text. If they aren't UTF-8, each byte becomes the character with the same number, so that no byte is lost.
pub(crate) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| error.as_bytes().iter().map(|byte| char::from(*byte)).collect())
}
