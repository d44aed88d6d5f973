//! The fields that determine the end of a request and the use of the connection afterwards.

use crate::fields::{elements, is_token, raw_elements};
use crate::{RequestError, Version};

/// The framing of the body, which determines its end.
//= RFC 9112 section 6.3: message body length
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// No body: neither Content-Length nor Transfer-Encoding.
    None,
    /// A body of this many bytes, by Content-Length. May be 0.
    Length(u64),
    /// The chunked transfer coding.
    Chunked,
}

/// The use of the connection after the response.
//= RFC 9112 section 9.3: persistence
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// The connection may serve another request.
    KeepAlive,
    /// The connection closes.
    Close,
}

/// The framing and connection options of the field lines, collected line by line.
#[derive(Debug, Default)]
pub(crate) struct Control<'b> {
    pub(crate) host: Option<&'b [u8]>,
    pub(crate) accepts_trailers: bool,
    content_length: Option<u64>,
    codings: Option<Codings>,
    options: ConnectionOptions,
    upgrade: Option<&'b [u8]>,
    expectation: Option<Expectation>,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    others: bool,
    /// Whether there is a field that doesn't belong to the connection.
    end_to_end: bool,
}

/// Expectations; the greatest takes precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Expectation {
    Continue,
    Unsupported,
}

/// The transfer codings of all Transfer-Encoding lines, in order.
#[derive(Debug, Default)]
struct Codings {
    chunked: usize,
    others: usize,
    malformed: bool,
    chunked_is_last: bool,
}

impl<'b> Control<'b> {
    pub(crate) fn note(&mut self, name: &str, value: &'b [u8]) -> Result<(), RequestError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            2 if is("te") => self.accepts_trailers |= accepts_trailers(value),
            4 if is("host") => return self.note_host(value),
            6 if is("expect") => self.note_expect(value),
            7 if is("upgrade") => self.upgrade = self.upgrade.or(Some(value)),
            10 if is("connection") => self.options.note(value),
            14 if is("content-length") => return self.note_content_length(value),
            17 if is("transfer-encoding") => self.codings.get_or_insert_default().note(value),
            _ => {}
        }
        Ok(())
    }

    /// Returns the framing. A request with both fields is refused, although the RFC lets a server ignore
    /// Content-Length: if the next server uses the other field, request smuggling becomes possible.
    //= RFC 9111 section 7.1: differences in message parsing
    pub(crate) fn framing(&self, version: Version) -> Result<Framing, RequestError> {
        match (&self.codings, self.content_length) {
            (None, None) => Ok(Framing::None),
            (None, Some(length)) => Ok(Framing::Length(length)),
            //= RFC 9112 section 6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
            (Some(_), _) if version == Version::Http10 => Err(RequestError::TransferEncodingInHttp10),
            //= RFC 9112 section 6.3: Transfer-Encoding and Content-Length
            (Some(_), Some(_)) => Err(RequestError::ContentLengthWithTransferEncoding),
            (Some(codings), None) => codings.check().map(|()| Framing::Chunked),
        }
    }

    pub(crate) const fn persistence(&self, version: Version) -> Persistence {
        self.options.persistence(version)
    }

    /// Returns whether `Connection` names fields that aren't always hop-by-hop. A request that names a field for
    /// every recipient is refused: without that field, the forwarded request would differ from the one that was
    /// checked here.
    //= RFC 9110 section 7.6.1: fields for all recipients are not named
    pub(crate) const fn nominates_fields(&self) -> Result<bool, RequestError> {
        if self.options.end_to_end {
            Err(RequestError::EndToEndFieldNominated)
        } else {
            Ok(self.options.others)
        }
    }

    //= RFC 9110 section 7.8: ignore Upgrade without the connection option, and in HTTP/1.0
    pub(crate) fn upgrade(&self, version: Version) -> Option<&'b [u8]> {
        self.upgrade.filter(|_| self.options.upgrade && version == Version::Http11)
    }

    /// Returns whether the client waits for 100 (Continue) before it sends the body.
    //= RFC 9110 section 10.1.1: ignore the expectation in HTTP/1.0; 417 for others
    pub(crate) fn expects_continue(&self, version: Version, framing: Framing) -> Result<bool, RequestError> {
        match self.expectation {
            None => Ok(false),
            Some(_) if version == Version::Http10 => Ok(false),
            Some(Expectation::Continue) => Ok(!matches!(framing, Framing::None | Framing::Length(0))),
            Some(Expectation::Unsupported) => Err(RequestError::UnsupportedExpectation),
        }
    }

    //= RFC 9112 section 3.2: 400 for more than one Host line
    fn note_host(&mut self, value: &'b [u8]) -> Result<(), RequestError> {
        self.host.replace(value).map_or(Ok(()), |_| Err(RequestError::SeveralHosts))
    }

    /// Several equal values are refused too. The RFC lets a recipient repair them, but no valid client needs that.
    //= RFC 9112 section 6.3: invalid Content-Length
    fn note_content_length(&mut self, value: &[u8]) -> Result<(), RequestError> {
        let length = parse_content_length(value)?;
        self.content_length.replace(length).map_or(Ok(()), |_| Err(RequestError::SeveralContentLengths))
    }

    fn note_expect(&mut self, value: &[u8]) {
        for element in elements(value) {
            let expectation = match element.eq_ignore_ascii_case(b"100-continue") {
                true => Expectation::Continue,
                false => Expectation::Unsupported,
            };
            self.expectation = self.expectation.max(Some(expectation));
        }
    }
}

impl ConnectionOptions {
    //= RFC 9110 section 7.6.1: connection options are case-insensitive
    pub(crate) fn note(&mut self, value: &[u8]) {
        for option in elements(value) {
            match () {
                () if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                () if option.eq_ignore_ascii_case(b"close") => self.close = true,
                () if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                () => {
                    self.others = true;
                    self.end_to_end |= is_end_to_end(option);
                }
            }
        }
    }

    /// Returns whether `Connection` may name fields that aren't always connection-specific.
    pub(crate) const fn nominates(&self) -> bool {
        self.close || self.others
    }

    //= RFC 9112 section 9.3: persistence
    pub(crate) const fn persistence(&self, version: Version) -> Persistence {
        match version {
            _ if self.close => Persistence::Close,
            Version::Http11 => Persistence::KeepAlive,
            Version::Http10 if self.keep_alive => Persistence::KeepAlive,
            Version::Http10 => Persistence::Close,
        }
    }
}

impl Codings {
    fn note(&mut self, value: &[u8]) {
        for element in raw_elements(value) {
            let name = element.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
            self.chunked_is_last = name.eq_ignore_ascii_case(b"chunked");
            if self.chunked_is_last {
                self.chunked += 1;
                //= RFC 9112 section 7.1: the chunked coding does not define any parameters
                self.malformed |= name.len() != element.len();
            } else {
                self.others += 1;
                self.malformed |= !is_token(name);
            }
        }
    }

    //= RFC 9112 section 6.1: chunked is applied once, and last; 501 for codings that are not understood
    //= RFC 9112 section 6.3: 400 where chunked is not the final coding
    const fn check(&self) -> Result<(), RequestError> {
        if self.malformed {
            return Err(RequestError::InvalidTransferEncoding);
        }
        if self.chunked > 1 {
            return Err(RequestError::ChunkedRepeated);
        }
        if !self.chunked_is_last {
            return Err(RequestError::ChunkedNotFinal);
        }
        if self.others > 0 {
            return Err(RequestError::UnknownTransferCoding);
        }
        Ok(())
    }
}

/// Returns whether this is the name of a request field that never belongs to the connection.
pub fn is_end_to_end(option: &[u8]) -> bool {
    let begins =
        |prefix: &&[u8]| option.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    END_TO_END_PREFIXES.iter().any(begins) || END_TO_END.iter().any(|name| option.eq_ignore_ascii_case(name))
}

const END_TO_END_PREFIXES: [&[u8]; 6] =
    [b"accept", b"access-control-", b"content-", b"if-", b"sec-", b"x-forwarded-"];
/// Includes the fields that detect loops, `CDN-Loop` (RFC 8586 section 2) and `Via`, and `Early-Data` (RFC 8470
/// section 5.1), without which an origin would act on a possible replay.
const END_TO_END: [&[u8]; 21] = [
    b"authorization",
    b"cache-control",
    b"cdn-loop",
    b"cookie",
    b"date",
    b"early-data",
    b"expect",
    b"forwarded",
    b"from",
    b"host",
    b"max-forwards",
    b"origin",
    b"pragma",
    b"prefer",
    b"priority",
    b"range",
    b"referer",
    b"user-agent",
    b"vary",
    b"via",
    b"x-real-ip",
];

/// Parses digits only: no sign, no list, no inner whitespace, and nothing else that common number parsers accept.
//= RFC 9110 section 8.6: Content-Length = 1*DIGIT
fn parse_content_length(value: &[u8]) -> Result<u64, RequestError> {
    if value.contains(&b',') {
        return Err(RequestError::SeveralContentLengths);
    }
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(RequestError::InvalidContentLength);
    }
    value
        .iter()
        .try_fold(0_u64, |total, digit| total.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(RequestError::ContentLengthOverflow)
}

//= RFC 9110 section 10.1.4: TE: trailers
fn accepts_trailers(value: &[u8]) -> bool {
    elements(value).any(|element| element.eq_ignore_ascii_case(b"trailers"))
}
