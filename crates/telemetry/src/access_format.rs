//! One line of the access log: its fields, their escaping, and redaction.

use std::io::Write;
use std::net::IpAddr;

use crate::calendar::{Civil, push_digits};
use crate::labels::CacheResult;
use crate::trace::TraceContext;

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessFormat {
    /// One JSON object per line.
    Json,
    /// The combined log format, escaped as nginx does.
    Combined,
}

/// The logged data of one request. Values are as received. There is no field for credentials, so that
/// Authorization and Cookie can't reach the log.
#[derive(Debug, Clone, Copy)]
pub struct AccessRecord<'a> {
    /// Time at which the request head was complete, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The client's address, from PROXY protocol and trusted forwarding fields if present; `None` over a Unix socket.
    pub client: Option<IpAddr>,
    /// The method as received.
    pub method: &'a [u8],
    /// The request target as received.
    pub target: &'a [u8],
    /// The authority of the request (Host or `:authority`).
    pub host: Option<&'a [u8]>,
    /// Protocol version, such as `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: &'a str,
    /// The status sent; 0 if no status was sent.
    pub status: u16,
    /// Body bytes sent, without framing.
    pub body_bytes: u64,
    /// Time from the complete head until the kernel has accepted the last byte.
    pub duration_ns: u64,
    /// The name of the site; `None` if no site matches the request.
    pub site: Option<&'a str>,
    /// The URL of the origin's server that answered, or was tried last; `None` if no server was tried.
    pub server: Option<&'a str>,
    /// The result of the cache.
    pub cache: CacheResult,
    /// The list member that the gateway added to Cache-Status.
    pub cache_status: Option<&'a [u8]>,
    /// The Referer field.
    pub referer: Option<&'a [u8]>,
    /// The User-Agent field.
    pub user_agent: Option<&'a [u8]>,
    /// TLS version, such as `TLSv1.3`; `None` without TLS.
    pub tls_version: Option<&'a str>,
    /// The server name in the TLS handshake.
    pub sni: Option<&'a str>,
    /// The trace and the span of the request, if it belongs to a trace.
    pub trace: Option<TraceContext>,
}

/// Names of query parameters whose values stay out of the log.
#[derive(Debug, Clone)]
pub struct Redaction {
    names: Vec<Box<[u8]>>,
}

/// Maximum length of a value; longer ones are cut, so that a line stays below 32 KiB for every request.
const FIELD_BYTES_MAX: usize = 4096;
/// Replaces a redacted value.
const REDACTED: &[u8] = b"REDACTED";
const HEX: &[u8; 16] = b"0123456789ABCDEF";

impl Default for Redaction {
    fn default() -> Self {
        Self::new(["token", "access_token", "key", "api_key", "password", "secret"])
    }
}

impl Redaction {
    /// Redacts the parameters with these names; case doesn't matter.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let lower = |name: &str| name.to_ascii_lowercase().into_bytes().into_boxed_slice();
        Self { names: names.into_iter().map(|name| lower(name.as_ref())).collect() }
    }

    /// Returns the parts of a target or URL that may be shown, cut to the length of a value in the log.
    pub fn shown(&self, target: &[u8]) -> String {
        let mut shown = Vec::with_capacity(target.len().min(FIELD_BYTES_MAX));
        self.pieces(target, |piece| shown.extend_from_slice(piece));
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Calls `piece` with the parts of a target or URL that may be logged, in order. Names are compared
    /// decoded: applications see `%74oken=..` as `token`.
    fn pieces<'a>(&self, target: &'a [u8], mut piece: impl FnMut(&'a [u8])) {
        let target = without_userinfo(cut(target), &mut piece);
        let Some(query) = target.iter().position(|b| *b == b'?') else {
            return piece(target);
        };
        piece(&target[..=query]);
        for parameter in target[query + 1..].split_inclusive(is_separator) {
            match parameter.iter().position(|b| *b == b'=') {
                Some(equals) if self.names(&parameter[..equals]) => {
                    let separator = parameter.len() - usize::from(parameter.last().is_some_and(is_separator));
                    piece(&parameter[..=equals]);
                    piece(REDACTED);
                    piece(&parameter[separator..]);
                }
                _ => piece(parameter),
            }
        }
    }

    /// Calls `piece` with the parts of a text that may contain URLs, such as a `User-Agent`.
    fn words<'a>(&self, text: &'a [u8], mut piece: impl FnMut(&'a [u8])) {
        let text = cut(text);
        if !text.contains(&b':') {
            return piece(text);
        }
        let ends_word = |byte: &u8| matches!(byte, b' ' | b')');
        for word in text.split_inclusive(ends_word) {
            let (url, end) = word.split_at(word.len() - usize::from(word.last().is_some_and(ends_word)));
            self.pieces(url, &mut piece);
            piece(end);
        }
    }

    fn names(&self, name: &[u8]) -> bool {
        self.names.iter().any(|redacted| decoded(name).eq(redacted.iter().copied()))
    }
}

//= RFC 9110 section 4.2.4: userinfo in URIs is deprecated
/// Calls `piece` with the scheme and the redacted user information, if there is any, and returns the remaining URL.
fn without_userinfo<'a>(url: &'a [u8], piece: &mut impl FnMut(&'a [u8])) -> &'a [u8] {
    let end = url.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(url.len());
    let before_authority = match url {
        // A URL without a scheme inherits the scheme of its page.
        [b'/', b'/', ..] => Some(2),
        _ => url[..end].windows(3).position(|window| window == b"://").map(|scheme| scheme + 3),
    };
    let Some(before_authority) = before_authority else { return url };
    let (scheme, rest) = url.split_at(before_authority);
    let authority = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let Some(at) = rest[..authority].iter().rposition(|b| *b == b'@') else {
        return url;
    };
    piece(scheme);
    piece(REDACTED);
    &rest[at..]
}

/// Returns whether a byte ends a parameter. A second question mark begins the query of a URL inside a
/// parameter.
fn is_separator(byte: &u8) -> bool {
    matches!(byte, b'&' | b';' | b'#' | b'?')
}

/// Returns the bytes of a parameter name with percent escapes decoded, in lower case.
fn decoded(name: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let (first, tail) = rest.split_first()?;
        let (byte, tail) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => match hex_pair(*high, *low) {
                Some(byte) => (byte, tail),
                None => (b'%', rest.split_at(1).1),
            },
            _ => (*first, tail),
        };
        rest = tail;
        Some(byte.to_ascii_lowercase())
    })
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

impl AccessRecord<'_> {
    /// Appends one line, including the line end.
    pub(crate) fn write(&self, format: AccessFormat, redaction: &Redaction, line: &mut Vec<u8>) {
        match format {
            AccessFormat::Json => self.write_json(redaction, line),
            AccessFormat::Combined => self.write_combined(redaction, line),
        }
        line.push(b'\n');
    }

    fn write_json(&self, redaction: &Redaction, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"timestamp\":\"");
        Civil::from_unix_ms(self.unix_ms).write_rfc3339(line);
        line.push(b'"');
        if let Some(client) = self.client {
            json_name(line, "client");
            // Writing to a `Vec` can't fail, here and below.
            let _ = write!(line, "\"{client}\"");
        }
        let plain = |value: &[u8], line: &mut Vec<u8>| json_escape(cut(value), line);
        let url =
            |value: &[u8], line: &mut Vec<u8>| redaction.pieces(value, |piece| json_escape(piece, line));
        json_text(line, "method", Some(self.method), plain);
        json_text(line, "target", Some(self.target), url);
        json_text(line, "host", self.host, plain);
        json_text(line, "protocol", Some(self.protocol.as_bytes()), plain);
        json_number(line, "status", self.status.into());
        json_number(line, "body_bytes", self.body_bytes);
        self.write_duration(line);
        json_text(line, "site", self.site.map(str::as_bytes), plain);
        json_text(line, "server", self.server.map(str::as_bytes), plain);
        json_text(line, "cache", Some(self.cache.as_str().as_bytes()), plain);
        json_text(line, "cache_status", self.cache_status, plain);
        json_text(line, "referer", self.referer, url);
        let text =
            |value: &[u8], line: &mut Vec<u8>| redaction.words(value, |piece| json_escape(piece, line));
        json_text(line, "user_agent", self.user_agent, text);
        json_text(line, "tls", self.tls_version.map(str::as_bytes), plain);
        json_text(line, "sni", self.sni.map(str::as_bytes), plain);
        if let Some(TraceContext { trace_id, span_id, .. }) = self.trace {
            json_name(line, "trace_id");
            let _ = write!(line, "\"{trace_id}\"");
            json_name(line, "span_id");
            let _ = write!(line, "\"{span_id}\"");
        }
        line.push(b'}');
    }

    /// Writes the duration in seconds, with six decimal places.
    fn write_duration(&self, line: &mut Vec<u8>) {
        json_number(line, "duration_seconds", self.duration_ns / 1_000_000_000);
        line.push(b'.');
        push_digits::<6>(line, self.duration_ns / 1_000);
    }

    fn write_combined(&self, redaction: &Redaction, line: &mut Vec<u8>) {
        match self.client {
            Some(client) => drop(write!(line, "{client}")),
            None => line.extend_from_slice(b"unix:"),
        }
        line.extend_from_slice(b" - - [");
        Civil::from_unix_ms(self.unix_ms).write_common_log(line);
        line.extend_from_slice(b"] \"");
        self.write_request_line(redaction, line);
        line.extend_from_slice(b"\" ");
        push_number(line, self.status.into());
        line.push(b' ');
        push_number(line, self.body_bytes);
        line.extend_from_slice(b" \"");
        match self.referer {
            Some(referer) => redaction.pieces(referer, |piece| combined_escape(piece, line)),
            None => line.push(b'-'),
        }
        line.extend_from_slice(b"\" \"");
        redaction.words(self.user_agent.unwrap_or(b"-"), |piece| combined_escape(piece, line));
        line.push(b'"');
    }

    /// Writes the request line as received, or `-` for an unreadable request.
    fn write_request_line(&self, redaction: &Redaction, line: &mut Vec<u8>) {
        if self.method.is_empty() {
            return line.push(b'-');
        }
        combined_escape(cut(self.method), line);
        line.push(b' ');
        redaction.pieces(self.target, |piece| combined_escape(piece, line));
        line.push(b' ');
        line.extend_from_slice(self.protocol.as_bytes());
    }
}

fn cut(value: &[u8]) -> &[u8] {
    &value[..value.len().min(FIELD_BYTES_MAX)]
}

/// Writes one member with a string value, or nothing if there is no value.
fn json_text(line: &mut Vec<u8>, name: &str, value: Option<&[u8]>, escape: impl Fn(&[u8], &mut Vec<u8>)) {
    let Some(value) = value else { return };
    json_name(line, name);
    line.push(b'"');
    escape(value, line);
    line.push(b'"');
}

fn json_number(line: &mut Vec<u8>, name: &str, value: u64) {
    json_name(line, name);
    push_number(line, value);
}

fn json_name(line: &mut Vec<u8>, name: &str) {
    line.extend_from_slice(b",\"");
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(b"\":");
}

fn push_number(line: &mut Vec<u8>, number: u64) {
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

//= RFC 8259 section 7: strings
/// Writes text unchanged, and bytes that aren't UTF-8 as `\xHH`, so that the received bytes can be recovered.
fn json_escape(value: &[u8], line: &mut Vec<u8>) {
    for chunk in value.utf8_chunks() {
        let special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7f);
        escape_runs(chunk.valid().as_bytes(), line, special, |byte, line| match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            _ => push_hex(b"\\u00", byte, line),
        });
        chunk.invalid().iter().for_each(|byte| push_hex(b"\\\\x", *byte, line));
    }
}

/// Escapes like nginx in log lines: quote, backslash and everything outside printable ASCII becomes `\xHH`.
fn combined_escape(value: &[u8], line: &mut Vec<u8>) {
    let special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7f..);
    escape_runs(value, line, special, |byte, line| push_hex(b"\\x", byte, line));
}

/// Copies the bytes between special bytes in one step, because most values have no special bytes.
fn escape_runs(
    value: &[u8],
    line: &mut Vec<u8>,
    special: impl Fn(u8) -> bool,
    escape: impl Fn(u8, &mut Vec<u8>),
) {
    let mut rest = value;
    while let Some(index) = rest.iter().position(|byte| special(*byte)) {
        line.extend_from_slice(&rest[..index]);
        escape(rest[index], line);
        rest = &rest[index + 1..];
    }
    line.extend_from_slice(rest);
}

fn push_hex(prefix: &[u8], byte: u8, line: &mut Vec<u8>) {
    line.extend_from_slice(prefix);
    line.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}
