//! The head of a response, parsed for a client.

use core::mem::MaybeUninit;
use std::borrow::Cow;

use crate::framing::{ConnectionOptions, Persistence};
use crate::{Limits, ResponseError, Version};

/// The head of one response, borrowed from the bytes `'b` and the line storage `'s`.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'b, 's> {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The reason phrase; empty if it has bytes beyond ASCII.
    pub reason: &'b str,
    /// The version of the response.
    pub version: Version,
    /// The framing of the body. [`ResponseFraming::None`] for every status below 200.
    pub framing: ResponseFraming,
    /// The transfer coding.
    pub transfer_coding: TransferCoding,
    /// The use of the connection that the server requests after the response; the framing may still forbid reuse.
    pub persistence: Persistence,
    /// Whether Connection has options that may be field names: all except `keep-alive` and `upgrade`, whose fields
    /// belong to the connection anyway.
    pub nominates_fields: bool,
    /// The length of the head; the body starts here.
    pub bytes: usize,
    headers: &'s [httparse::Header<'b>],
    folds: Folds,
}

/// Whether values may be folded, which is rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Folds {
    None,
    Possible,
}

/// The framing of a response's body, which determines its end.
//= RFC 9112 section 6.3: message body length of a response
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseFraming {
    /// There is no body: 1xx, 204, 304, or a response to HEAD.
    None,
    /// A body of this many bytes, by Content-Length. May be 0.
    Length(u64),
    /// The chunked transfer coding is the last one.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// The transfer coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferCoding {
    /// No transfer coding.
    None,
    /// Chunked alone.
    Chunked,
    /// Chunked alone, with a Content-Length: a sign of response smuggling. The connection must not be used again.
    ChunkedWithLength,
    /// Another coding, alone or under chunked: the content can't be decoded, and the connection must not be used again.
    Unknown,
}

/// The request properties that affect the framing of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// The status and the fields determine whether the response has a body.
    Content,
    /// HEAD: the response has no body, whatever its fields say.
    Head,
}

/// Storage for the lines of a head during parsing.
#[derive(Debug)]
pub struct LineSpace<'b>([MaybeUninit<httparse::Header<'b>>; Limits::FIELDS_CEILING]);

impl Default for LineSpace<'_> {
    fn default() -> Self {
        Self([const { MaybeUninit::uninit() }; Limits::FIELDS_CEILING])
    }
}

impl<'b, 's> ResponseHead<'b, 's> {
    /// Returns all field lines, in order. A folded value has one space for each fold.
    //= RFC 9112 section 5.2: obsolete line folding in a response is replaced by spaces
    pub fn lines(&self) -> impl ExactSizeIterator<Item = (&'b str, Cow<'b, [u8]>)> + use<'b, 's> {
        let folds = self.folds;
        self.headers.iter().map(move |header| match folds {
            Folds::None => (header.name, Cow::Borrowed(header.value)),
            Folds::Possible => (header.name, unfolded(header.value)),
        })
    }

    /// Returns the values of all lines with this name, in order; names are compared case-insensitively.
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = Cow<'b, [u8]>> + use<'b, 's, 'n> {
        let named = self.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| unfolded(header.value))
    }
}

/// Parses the head of one response from a growing buffer. Scans the bytes again only when their number has doubled, or
/// when the head seems complete. Use one reader per head; the buffer may grow between calls, but its start must not
/// change.
///
/// More lenient than for requests, because no server behind this client could be misled. Accepts some faults that
/// servers make: lines that end in LF alone, whitespace before a colon (RFC 9112 5.1), obsolete line folding (5.2),
/// equal Content-Length values (6.3).
#[derive(Debug, Clone, Default)]
pub struct ResponseReader {
    /// Number of bytes at the last attempt.
    attempted: usize,
    /// Number of bytes searched for the end of the head.
    searched: usize,
}

/// Whether more bytes can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// The buffer may grow.
    Open,
    /// The connection has ended.
    Ended,
}

impl ResponseReader {
    /// Returns the head at the start of `buf`, or `None` until its end has arrived.
    ///
    /// # Errors
    ///
    /// Returns an error if the response exceeds a limit, or breaks a rule of RFC 9112 that can't be tolerated.
    pub fn read<'b, 's>(
        &mut self,
        buf: &'b [u8],
        input: Input,
        asked: Asked,
        limits: &Limits,
        space: &'s mut LineSpace<'b>,
    ) -> Result<Option<ResponseHead<'b, 's>>, ResponseError> {
        let visible = &buf[..buf.len().min(limits.head_bytes_max)];
        let is_over = input == Input::Ended || buf.len() > limits.head_bytes_max;
        if !is_over && !self.is_worth_a_look(visible) {
            return Ok(None);
        }
        self.attempted = visible.len();
        match parse(visible, asked, limits, space)? {
            None if buf.len() > limits.head_bytes_max => Err(ResponseError::HeadTooLarge),
            parsed => Ok(parsed),
        }
    }

    fn is_worth_a_look(&mut self, visible: &[u8]) -> bool {
        let from = self.searched.saturating_sub(2);
        self.searched = visible.len();
        visible.len() >= self.attempted * 2 || has_empty_line(&visible[from..])
    }
}

fn has_empty_line(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

fn parse<'b, 's>(
    buf: &'b [u8],
    asked: Asked,
    limits: &Limits,
    space: &'s mut LineSpace<'b>,
) -> Result<Option<ResponseHead<'b, 's>>, ResponseError> {
    let lines_max = limits.fields_max.min(Limits::FIELDS_CEILING);
    let mut response = httparse::Response::new(&mut []);
    let parsed = tolerant().parse_response_with_uninit_headers(&mut response, buf, &mut space.0[..lines_max]);
    let httparse::Status::Complete(bytes) = parsed.map_err(fault)? else { return Ok(None) };
    let (Some(minor), Some(status)) = (response.version, response.code) else {
        return Err(ResponseError::MalformedStatusLine);
    };
    if !(100..=999).contains(&status) {
        return Err(ResponseError::MalformedStatusLine);
    }
    let headers: &'s [httparse::Header<'b>] = response.headers;
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let mut control = Control::default();
    for header in headers {
        control.note(header)?;
    }
    Ok(Some(ResponseHead {
        status,
        reason: response.reason.unwrap_or_default(),
        version,
        framing: control.framing(asked, status, version)?,
        transfer_coding: control.transfer_coding(),
        persistence: control.options.persistence(version),
        nominates_fields: control.options.nominates(),
        bytes,
        headers,
        folds: folds(&buf[..bytes], headers.len()),
    }))
}

fn tolerant() -> httparse::ParserConfig {
    let mut config = httparse::ParserConfig::default();
    //= RFC 9112 section 5.2: obsolete line folding in a response is replaced by spaces
    config.allow_obsolete_multiline_headers_in_responses(true);
    //= RFC 9112 section 5.1: a proxy removes whitespace before the colon of a response's field
    config.allow_spaces_after_header_name_in_responses(true);
    config
}

const fn fault(error: httparse::Error) -> ResponseError {
    match error {
        httparse::Error::Version => ResponseError::InvalidVersion,
        httparse::Error::Status => ResponseError::MalformedStatusLine,
        httparse::Error::NewLine => ResponseError::BareCarriageReturn,
        httparse::Error::TooManyHeaders => ResponseError::TooManyFields,
        httparse::Error::HeaderValue => ResponseError::InvalidFieldValue,
        httparse::Error::HeaderName | httparse::Error::Token => ResponseError::InvalidFieldName,
    }
}

/// A head without folds has two more line ends than field lines.
fn folds(head: &[u8], lines: usize) -> Folds {
    if memchr::memchr_iter(b'\n', head).count() == lines + 2 { Folds::None } else { Folds::Possible }
}

fn unfolded(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', value).is_none() {
        return Cow::Borrowed(value);
    }
    let lines: Vec<&[u8]> = value.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).collect();
    Cow::Owned(lines.join(&b' '))
}

/// The framing and connection options of the field lines.
#[derive(Debug, Default)]
struct Control {
    length: Length,
    codings: Option<Codings>,
    options: ConnectionOptions,
}

#[derive(Debug, Clone, Copy, Default)]
enum Length {
    #[default]
    None,
    Bytes(u64),
    Invalid(ResponseError),
}

#[derive(Debug, Clone, Copy)]
struct Codings {
    is_only_chunked: bool,
    ends_chunked: bool,
}

impl Control {
    fn note(&mut self, header: &httparse::Header<'_>) -> Result<(), ResponseError> {
        let is = |known: &str| header.name.eq_ignore_ascii_case(known);
        match header.name.len() {
            10 if is("connection") => self.options.note(&unfolded(header.value)),
            14 if is("content-length") => self.length.note(&unfolded(header.value)),
            17 if is("transfer-encoding") => self.note_codings(&unfolded(header.value)),
            NAME_BYTES_EXCESSIVE.. => return Err(ResponseError::HeadTooLarge),
            _ => {}
        }
        Ok(())
    }

    fn note_codings(&mut self, value: &[u8]) {
        let last = value.rsplit(|&byte| byte == b',').next().unwrap_or(value).trim_ascii();
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        self.codings = Some(Codings {
            is_only_chunked: self.codings.is_none() && is_chunked(value.trim_ascii()),
            ends_chunked: is_chunked(last),
        });
    }

    const fn transfer_coding(&self) -> TransferCoding {
        match (self.codings, self.length) {
            (None, _) => TransferCoding::None,
            (Some(Codings { is_only_chunked: false, .. }), _) => TransferCoding::Unknown,
            (Some(_), Length::None) => TransferCoding::Chunked,
            (Some(_), Length::Bytes(_) | Length::Invalid(_)) => TransferCoding::ChunkedWithLength,
        }
    }

    //= RFC 9112 section 6.3: message body length of a response
    fn framing(&self, asked: Asked, status: u16, version: Version) -> Result<ResponseFraming, ResponseError> {
        if asked == Asked::Head || matches!(status, ..200 | 204 | 304) {
            return Ok(ResponseFraming::None);
        }
        match (self.codings, self.length) {
            //= RFC 9112 section 6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
            (Some(_), _) if version == Version::Http10 => Err(ResponseError::TransferEncodingInHttp10),
            (Some(codings), _) if codings.ends_chunked => Ok(ResponseFraming::Chunked),
            //= RFC 9112 section 6.3: a response whose final coding is not chunked ends with the connection
            (Some(_), _) => Ok(ResponseFraming::UntilClose),
            (None, Length::Bytes(bytes)) => Ok(ResponseFraming::Length(bytes)),
            //= RFC 9112 section 6.3: invalid Content-Length
            (None, Length::Invalid(error)) => Err(error),
            //= RFC 9112 section 6.3: a response ended by the close of the connection
            (None, Length::None) => Ok(ResponseFraming::UntilClose),
        }
    }
}

/// The length of a field name fits into 16 bits, so this is longer than any name.
const NAME_BYTES_EXCESSIVE: usize = 1 << 16;

impl Length {
    //= RFC 9110 section 8.6: a list of equal numbers is replaced by one before forwarding
    fn note(&mut self, value: &[u8]) {
        for number in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            *self = match (*self, parse_length(number)) {
                (Self::Invalid(error), _) => Self::Invalid(error),
                (_, None) => Self::Invalid(ResponseError::InvalidContentLength),
                (Self::Bytes(before), Some(bytes)) if before != bytes => {
                    Self::Invalid(ResponseError::DifferingContentLengths)
                }
                (_, Some(bytes)) => Self::Bytes(bytes),
            };
        }
    }
}

//= RFC 9110 section 8.6: Content-Length = 1*DIGIT
fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits.iter().try_fold(0_u64, |total, digit| total.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}
