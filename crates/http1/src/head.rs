//! The head of a request.

use core::mem::MaybeUninit;

use crate::fields::{self, FieldLine, is_token_byte};
use crate::framing::Control;
use crate::request_line::{self, Target};
use crate::{
    Authority, Framing, Limits, METHOD_BYTES_MAX, Persistence, RequestError, Scheme, TargetForm, Version,
};

/// The head of one request, borrowed from the bytes `'b` and the line storage `'l`.
#[derive(Debug, Clone, Copy)]
pub struct Head<'b, 'l> {
    /// The method, a token; methods are case-sensitive.
    pub method: &'b str,
    /// The request target as received.
    pub target: &'b str,
    /// The form of the target.
    pub form: TargetForm,
    /// The scheme, in absolute-form only.
    pub scheme: Option<Scheme>,
    /// The effective authority: that of the target, or else of Host. [`Authority::EMPTY`] for HTTP/1.0 without Host,
    /// and for an empty Host with asterisk-form.
    pub authority: Authority<'b>,
    /// Path and query. Starts with `/`, or in absolute-form with `?` if the path is empty, which means `/`; `*` for a
    /// server-wide OPTIONS; empty for authority-form. Not decoded or normalised.
    pub path_and_query: &'b str,
    /// The version of the request.
    pub version: Version,
    /// All field lines, in order.
    pub fields: &'l [FieldLine<'b>],
    /// The framing of the body.
    pub framing: Framing,
    /// The use of the connection that the client requests after the response.
    pub persistence: Persistence,
    /// Whether `Connection` names fields that aren't always hop-by-hop.
    pub nominates_fields: bool,
    /// The value of the first Upgrade line, if `Connection: upgrade` accompanies it.
    pub upgrade: Option<&'b [u8]>,
    /// Whether the client waits for 100 (Continue) before it sends a body that is not empty.
    pub expects_continue: bool,
    /// Whether the request has `TE: trailers`.
    pub accepts_trailers: bool,
    /// The length of the head; the body starts here.
    pub bytes: usize,
}

impl<'b, 'l> Head<'b, 'l> {
    /// Returns the values of all lines with this name, in order.
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'l, 'n> {
        let fields: &'l [FieldLine<'b>] = self.fields;
        fields.iter().filter(move |line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1)
    }
}

/// Parses the head at the start of `buf` into `request` if it is complete and breaks no rule of the scanner. The
/// tokenizer visits each byte anyway; the other rules of the scanner are checked here for the whole head. In all other
/// cases returns `None` and leaves the result to the scanner: the outcome is the same with and without this fast path
/// (`tests/splits.rs`).
pub(crate) fn tokenize_at_once<'h, 'b>(
    buf: &'b [u8],
    limits: &Limits,
    request: &mut httparse::Request<'h, 'b>,
    raw: &'h mut [MaybeUninit<httparse::Header<'b>>],
) -> Option<usize> {
    let visible = &buf[..buf.len().min(limits.head_bytes_max)];
    // The tokenizer would skip any number of empty lines.
    if !is_token_byte(*visible.first()?) {
        return None;
    }
    let Ok(httparse::Status::Complete(bytes)) = request.parse_with_uninit_headers(visible, raw) else {
        return None;
    };
    let is_within_limits = request.method?.len() <= METHOD_BYTES_MAX
        && request.path?.len() <= limits.target_bytes_max
        && request.headers.len() <= limits.fields_max;
    (is_within_limits && !has_bare_line_feed(&visible[..bytes])).then_some(bytes)
}

/// Returns whether an LF has no CR before it. The loop has no early exit, so that it can be vectorised.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let pairs = head.iter().zip(&head[1..]);
    pairs.fold(0, |bare, (before, byte)| bare | (u8::from(*byte == b'\n') & u8::from(*before != b'\r'))) != 0
}

/// Parses a complete head. `head` has passed the scanner: every LF in it has a CR before it, and it ends with the first
/// empty line after the request line.
pub(crate) fn parse_complete<'l, 'b>(
    head: &'b [u8],
    lines: &'l mut [FieldLine<'b>],
) -> Result<Head<'b, 'l>, RequestError> {
    let mut raw = [const { MaybeUninit::uninit() }; Limits::FIELDS_CEILING];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut raw) {
        Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => assemble(&request, lines, bytes),
        _ => Err(fault(head)),
    }
}

pub(crate) fn assemble<'l, 'b>(
    request: &httparse::Request<'_, 'b>,
    lines: &'l mut [FieldLine<'b>],
    bytes: usize,
) -> Result<Head<'b, 'l>, RequestError> {
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(RequestError::MalformedRequestLine);
    };
    // The tokenizer accepts UTF-8.
    if !target.is_ascii() {
        return Err(RequestError::InvalidTarget);
    }
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let parts = Target::parse(method, target)?;
    let mut control = Control::default();
    let fields = copy_lines(request.headers, lines, &mut control)?;
    let framing = control.framing(version)?;
    Ok(Head {
        method,
        target,
        form: parts.form,
        scheme: parts.scheme,
        authority: effective_authority(&parts, control.host, version)?,
        path_and_query: parts.path_and_query,
        version,
        fields,
        framing,
        persistence: control.persistence(version),
        nominates_fields: control.nominates_fields()?,
        upgrade: control.upgrade(version),
        expects_continue: control.expects_continue(version, framing)?,
        accepts_trailers: control.accepts_trailers,
        bytes,
    })
}

fn copy_lines<'l, 'b>(
    headers: &[httparse::Header<'b>],
    lines: &'l mut [FieldLine<'b>],
    control: &mut Control<'b>,
) -> Result<&'l [FieldLine<'b>], RequestError> {
    let lines = lines.get_mut(..headers.len()).ok_or(RequestError::TooManyFields)?;
    for (line, header) in lines.iter_mut().zip(headers) {
        *line = (header.name, header.value);
        control.note(header.name, header.value)?;
    }
    Ok(lines)
}

/// Returns the authority of the request. A target whose authority differs from Host is refused, although the RFC gives
/// precedence to the target: other servers on the path may have used Host.
//= RFC 9112 section 3.2.2: absolute-form and Host
//= RFC 9112 section 3.3: reconstructing the target URI
fn effective_authority<'b>(
    target: &Target<'b>,
    host: Option<&'b [u8]>,
    version: Version,
) -> Result<Authority<'b>, RequestError> {
    let Some(host) = host else {
        return match version {
            //= RFC 9112 section 3.2: 400 for HTTP/1.1 without Host
            Version::Http11 => Err(RequestError::MissingHost),
            Version::Http10 => Ok(target.authority.unwrap_or(Authority::EMPTY)),
        };
    };
    let host = parse_host(target.form, host)?;
    let Some(authority) = target.authority else {
        return Ok(host);
    };
    let default_port = target.scheme.map(Scheme::default_port);
    if authority.same_server(&host, default_port) { Ok(authority) } else { Err(RequestError::HostMismatch) }
}

/// Every http(s) URI has a host, so an empty Host is valid only with a target that names no resource.
//= RFC 9112 section 3.2: 400 for an invalid Host
fn parse_host(form: TargetForm, value: &[u8]) -> Result<Authority<'_>, RequestError> {
    match (form, value) {
        (TargetForm::Asterisk, b"") => Ok(Authority::EMPTY),
        (_, b"") => Err(RequestError::EmptyHost),
        _ => Authority::parse(value).ok_or(RequestError::InvalidHost),
    }
}

/// Returns the error for the first rule that a refused head breaks.
fn fault(head: &[u8]) -> RequestError {
    let head = head.strip_prefix(b"\r\n").unwrap_or(head);
    let line_end = memchr::memchr(b'\n', head).unwrap_or(head.len());
    let (line, section) = head.split_at_checked(line_end + 1).unwrap_or((head, b""));
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    request_line::fault(line).unwrap_or_else(|| fields::fault(section))
}
