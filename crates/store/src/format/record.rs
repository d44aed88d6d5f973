//! Encoding of a primary record, and of a response that is stored apart from it.

use super::body::Body;
use super::bytes::{Reader, Writer};
use super::error::FormatError;
use super::frame::{self, Kind, TagKeys};
use crate::FillId;
use crate::backing::{LogCursor, LogId, LogOffset};

/// Name and value of a field line, unparsed.
pub type FieldLine<'a> = (&'a [u8], &'a [u8]);

/// Name, and value or null.
pub type NamedValue<'a> = (&'a [u8], Option<&'a [u8]>);

/// Record under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Full cache key.
    pub key: &'a [u8],
    /// Note for instances that wait for the key.
    pub note: Option<Note<'a>>,
    /// Stored responses, the newest first.
    pub variants: Vec<Variant<'a>>,
}

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Record under a cache key.
    Primary,
    /// Record under an id: one variant, with its response.
    Response,
}

/// Outcome of a fetch without a response that instances can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note<'a> {
    /// Kind of the outcome.
    pub kind: NoteKind,
    /// Requests to which the note applies, as a number defined by the gateway.
    pub scope: u8,
    /// Expiry time.
    pub until_ms: u64,
    /// Reason code, at most 64 bytes.
    pub because: &'a [u8],
}

/// Kinds of notes, with their numbers in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// Responses for this key are not shared.
    NotShared = 1,
    /// The fetching instance gave up. The reason has no meaning, although older versions wrote one.
    GaveUp = 2,
}

/// One response under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant<'a> {
    /// Fields nominated by `Vary`, with their values in the request; null for a missing field.
    pub nominated: Vec<NamedValue<'a>>,
    /// Id of the response.
    pub id: FillId,
    /// The response; `None` if it is stored apart, under its id.
    pub response: Option<Box<Response<'a>>>,
}

/// A response, and the request that it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// Status code.
    pub status: u16,
    /// Properties of the request that aren't in its fields.
    pub marks: RequestMarks,
    /// Time at which the request was sent.
    pub request_time_ms: u64,
    /// Time at which the response, or the last 304, arrived.
    pub response_time_ms: u64,
    /// Time at which the record was written.
    pub store_time_ms: u64,
    /// Time since which it is stale, whatever its fields say.
    pub stale_since_ms: Option<u64>,
    /// End of the purge log when the fetch began.
    pub log: Option<LogCursor>,
    /// Method of the request.
    pub method: &'a [u8],
    /// Target URI of the request.
    pub target: &'a [u8],
    /// Reason phrase; `None` for the default one of the status.
    pub reason: Option<&'a [u8]>,
    /// Fields as delivered.
    pub head: Vec<FieldLine<'a>>,
    /// Fields as received, if caching decisions depend on them and they aren't in the head.
    pub judged: Vec<FieldLine<'a>>,
    /// Fields of the request; null for values that must stay private.
    pub request: Vec<NamedValue<'a>>,
    /// Stored parts of the body.
    pub body: Body<'a>,
}

/// Properties of the request that aren't in its fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestMarks {
    /// The request had credentials, by the rules of the instance that stored the response.
    pub had_credentials: bool,
    /// The request announced content.
    pub had_content: bool,
}

/// Encodes a record and appends it.
///
/// # Errors
/// If it exceeds a limit or breaks a rule of the format; nothing is appended in that case.
pub fn encode_record(
    record: &Record<'_>,
    kind: RecordKind,
    keys: Option<&TagKeys>,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    record.check(kind)?;
    frame::seal(out, kind.of_frame(), keys, |writer| record.write(writer))
}

/// Decodes the requested record.
///
/// # Errors
/// If the bytes are anything else; [`FormatError::meaning`] says what to do.
pub fn decode_record<'a>(
    bytes: &'a [u8],
    kind: RecordKind,
    key: &[u8],
    keys: Option<&TagKeys>,
) -> Result<Record<'a>, FormatError> {
    let mut reader = frame::open(bytes, kind.of_frame(), keys)?;
    let record = Record::read(&mut reader, key)?;
    reader.end()?;
    record.check(kind)?;
    Ok(record)
}

impl RecordKind {
    fn of_frame(self) -> Kind {
        match self {
            Self::Primary => Kind::Primary,
            Self::Response => Kind::Response,
        }
    }
}

impl<'a> Record<'a> {
    fn read(reader: &mut Reader<'a>, asked_key: &[u8]) -> Result<Self, FormatError> {
        let key = reader.text()?;
        if key != asked_key {
            return Err(FormatError::Other);
        }
        let note = Note::read(reader)?;
        let variants = usize::from(reader.u8()?);
        if variants > VARIANTS_MAX {
            return Err(TOO_MANY_VARIANTS);
        }
        let mut lines_left = LINES_MAX;
        let variants =
            reader.list(variants, VARIANT_BYTES_MIN, |reader| Variant::read(reader, &mut lines_left))?;
        Ok(Self { key, note, variants })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        writer.text(self.key)?;
        match &self.note {
            None => writer.u8(0),
            Some(note) => note.write(writer)?,
        }
        writer.u8(self.variants.len() as u8);
        self.variants.iter().try_for_each(|variant| variant.write(writer))
    }

    /// Checks the invariants, before writing and after reading.
    fn check(&self, kind: RecordKind) -> Result<(), FormatError> {
        if self.variants.len() > VARIANTS_MAX {
            return Err(TOO_MANY_VARIANTS);
        }
        if self.variants.iter().map(Variant::lines).sum::<usize>() > LINES_MAX {
            return Err(TOO_MANY_LINES);
        }
        let is_of_kind = match (kind, &self.variants[..]) {
            (RecordKind::Primary, _) => true,
            (RecordKind::Response, [only]) => only.response.is_some() && self.note.is_none(),
            (RecordKind::Response, _) => false,
        };
        if is_of_kind { Ok(()) } else { Err(FormatError::Invalid("expected one variant, stored inside")) }
    }
}

impl<'a> Note<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Option<Self>, FormatError> {
        let kind = match reader.u8()? {
            0 => return Ok(None),
            1 => NoteKind::NotShared,
            2 => NoteKind::GaveUp,
            _ => return Err(FormatError::Invalid("the note is not known")),
        };
        let note = Self { kind, scope: reader.u8()?, until_ms: reader.u64()?, because: reader.text()? };
        note.check()?;
        Ok(Some(note))
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        self.check()?;
        writer.u8(self.kind as u8);
        writer.u8(self.scope);
        writer.u64(self.until_ms);
        writer.text(self.because)
    }

    fn check(&self) -> Result<(), FormatError> {
        let is_short = self.because.len() <= BECAUSE_BYTES_MAX;
        if is_short { Ok(()) } else { Err(FormatError::Invalid("a reason code is too long")) }
    }
}

impl<'a> Variant<'a> {
    fn read(reader: &mut Reader<'a>, lines_left: &mut usize) -> Result<Self, FormatError> {
        let nominated = lines(reader, lines_left, Reader::text_or_null)?;
        let id = reader.fill()?;
        let response = match reader.u8()? {
            1 => Some(Box::new(Response::read(reader, lines_left)?)),
            2 => None,
            _ => return Err(FormatError::Invalid("the place of a variant is not known")),
        };
        Ok(Self { nominated, id, response })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        write_lines(writer, &self.nominated)?;
        writer.fill(self.id);
        match &self.response {
            Some(response) => {
                writer.u8(1);
                response.write(writer)
            }
            None => {
                writer.u8(2);
                Ok(())
            }
        }
    }

    fn lines(&self) -> usize {
        let response = self.response.as_deref();
        let inside =
            response.map_or(0, |inside| inside.head.len() + inside.judged.len() + inside.request.len());
        self.nominated.len() + inside
    }
}

impl<'a> Response<'a> {
    fn read(reader: &mut Reader<'a>, lines_left: &mut usize) -> Result<Self, FormatError> {
        Ok(Self {
            status: reader.u16()?,
            marks: RequestMarks::read(reader)?,
            request_time_ms: reader.u64()?,
            response_time_ms: reader.u64()?,
            store_time_ms: reader.u64()?,
            stale_since_ms: reader.some_u64()?,
            log: read_log(reader)?,
            method: reader.text()?,
            target: reader.text()?,
            reason: reader.text_or_null()?,
            head: lines(reader, lines_left, Reader::text)?,
            judged: lines(reader, lines_left, Reader::text)?,
            request: lines(reader, lines_left, Reader::text_or_null)?,
            body: Body::read(reader)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        writer.u16(self.status);
        self.marks.write(writer);
        writer.u64(self.request_time_ms);
        writer.u64(self.response_time_ms);
        writer.u64(self.store_time_ms);
        writer.some_u64(self.stale_since_ms)?;
        write_log(writer, self.log)?;
        writer.text(self.method)?;
        writer.text(self.target)?;
        writer.text_or_null(self.reason)?;
        write_lines(writer, &self.head)?;
        write_lines(writer, &self.judged)?;
        write_lines(writer, &self.request)?;
        self.body.write(writer)
    }
}

impl RequestMarks {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let bits = reader.u8()?;
        if bits & !(HAD_CREDENTIALS | HAD_CONTENT) != 0 {
            return Err(FormatError::Invalid("a fact of the request is not known"));
        }
        Ok(Self { had_credentials: bits & HAD_CREDENTIALS != 0, had_content: bits & HAD_CONTENT != 0 })
    }

    fn write(self, writer: &mut Writer<'_>) {
        let credentials = if self.had_credentials { HAD_CREDENTIALS } else { 0 };
        let content = if self.had_content { HAD_CONTENT } else { 0 };
        writer.u8(credentials | content);
    }
}

fn read_log(reader: &mut Reader<'_>) -> Result<Option<LogCursor>, FormatError> {
    let (id, offset) = (LogId(reader.array()?), LogOffset(reader.u64()?));
    match (id == NO_LOG, offset.0) {
        (false, _) => Ok(Some(LogCursor { id, offset })),
        (true, 0) => Ok(None),
        (true, _) => Err(FormatError::Invalid("there is a position without a log")),
    }
}

fn write_log(writer: &mut Writer<'_>, log: Option<LogCursor>) -> Result<(), FormatError> {
    if log.is_some_and(|log| log.id == NO_LOG) {
        return Err(FormatError::Invalid("there is a position without a log"));
    }
    writer.bytes(&log.map_or(NO_LOG, |log| log.id).0);
    writer.u64(log.map_or(0, |log| log.offset.0));
    Ok(())
}

/// Reads lines, and subtracts their number from `lines_left`, the number that the record may still
/// have.
fn lines<'a, V>(
    reader: &mut Reader<'a>,
    lines_left: &mut usize,
    value: impl Fn(&mut Reader<'a>) -> Result<V, FormatError>,
) -> Result<Vec<(&'a [u8], V)>, FormatError> {
    let count = usize::from(reader.u16()?);
    *lines_left = lines_left.checked_sub(count).ok_or(TOO_MANY_LINES)?;
    reader.list(count, LINE_BYTES_MIN, |reader| Ok((reader.text()?, value(reader)?)))
}

/// Writes lines. Their number was checked before, so it fits.
fn write_lines<'a, V>(writer: &mut Writer<'_>, lines: &[(&'a [u8], V)]) -> Result<(), FormatError>
where
    V: Copy + Into<Option<&'a [u8]>>,
{
    writer.u16(lines.len() as u16);
    lines.iter().try_for_each(|(name, value)| {
        writer.text(name)?;
        writer.text_or_null((*value).into())
    })
}

const VARIANTS_MAX: usize = 32;
/// Minimum size of a variant: no nominated fields, an id and the location.
const VARIANT_BYTES_MIN: usize = 19;
/// Maximum total number of lines in all lists of a record.
const LINES_MAX: usize = 1024;
const LINE_BYTES_MIN: usize = 4;
const BECAUSE_BYTES_MAX: usize = 64;
const HAD_CREDENTIALS: u8 = 1;
const HAD_CONTENT: u8 = 2;
const NO_LOG: LogId = LogId([0; 16]);
const TOO_MANY_VARIANTS: FormatError = FormatError::Invalid("there are too many variants");
const TOO_MANY_LINES: FormatError = FormatError::Invalid("more field lines than a record may have");
