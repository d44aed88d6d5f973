//! The request line: forms of the target, and which rule a bad line breaks.

use crate::fields::is_token;
use crate::{Authority, RequestError};

/// The four forms of a request target.
//= RFC 9112 section 3.2: request target
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, with CONNECT only.
    Authority,
    /// `*`, with OPTIONS only.
    Asterisk,
}

/// The scheme of an absolute-form target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// The scheme in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URI without one means.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// HTTP/1.0 or HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// A request target taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'b> {
    pub(crate) form: TargetForm,
    pub(crate) scheme: Option<Scheme>,
    /// Of absolute-form and authority-form.
    pub(crate) authority: Option<Authority<'b>>,
    pub(crate) path_and_query: &'b str,
}

impl<'b> Target<'b> {
    /// `target` holds visible ASCII only.
    pub(crate) fn parse(method: &str, target: &'b str) -> Result<Self, RequestError> {
        if method == "CONNECT" {
            return Self::parse_authority_form(target);
        }
        if has_stray_delimiter(target) {
            return Err(RequestError::InvalidTarget);
        }
        match target {
            path if path.starts_with('/') => Ok(Self::of_path(TargetForm::Origin, path)),
            //= RFC 9112 section 3.2.4: asterisk-form is only used for a server-wide OPTIONS
            "*" if method == "OPTIONS" => Ok(Self::of_path(TargetForm::Asterisk, target)),
            _ => Self::parse_absolute_form(method, target),
        }
    }

    const fn of_path(form: TargetForm, path_and_query: &'b str) -> Self {
        Self { form, scheme: None, authority: None, path_and_query }
    }

    //= RFC 9112 section 3.2.3: authority-form is only used for CONNECT, and has host and port
    fn parse_authority_form(target: &'b str) -> Result<Self, RequestError> {
        if target.contains('/') || target == "*" {
            return Err(RequestError::TargetFormNotAllowed);
        }
        let authority = Authority::parse(target.as_bytes())
            .filter(|authority| authority.port().is_some())
            .ok_or(RequestError::InvalidTargetAuthority)?;
        Ok(Self { form: TargetForm::Authority, scheme: None, authority: Some(authority), path_and_query: "" })
    }

    //= RFC 9112 section 3.2.2: absolute-form
    fn parse_absolute_form(method: &str, target: &'b str) -> Result<Self, RequestError> {
        let (scheme, rest) = target.split_once("://").ok_or(RequestError::TargetFormNotAllowed)?;
        let scheme = parse_scheme(scheme)?;
        let authority_length = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(authority_length);
        let authority = Authority::parse(authority.as_bytes()).ok_or(RequestError::InvalidTargetAuthority)?;
        let path_and_query = match path_and_query {
            //= RFC 9112 section 3.2.4: an empty path in OPTIONS means asterisk-form
            "" if method == "OPTIONS" => "*",
            //= RFC 9110 section 4.2.3: http(s) normalization and comparison
            "" => "/",
            // A query without a path lacks its `/`, which borrowed text cannot get.
            path => path,
        };
        Ok(Self {
            form: TargetForm::Absolute,
            scheme: Some(scheme),
            authority: Some(authority),
            path_and_query,
        })
    }
}

/// Delimiters that no URI has and that no browser sends as they are. A fragment would be cut off by the one and kept
/// by the other; the rest can't be forwarded. Other characters that a URI has to encode (`{`, `|`, `^`, and `"` in a
/// path) are sent by clients as they exist, and servers take them.
//= RFC 9112 section 3.2: 400 for an invalid request target, which is not corrected
fn has_stray_delimiter(target: &str) -> bool {
    let target = target.as_bytes();
    // Almost no target has any of these, and targets are short: one look at each byte.
    if !target.iter().any(|byte| matches!(byte, b'#' | b'<' | b'>' | b'"' | b'`')) {
        return false;
    }
    let (path, query) = target.split_at(memchr::memchr(b'?', target).unwrap_or(target.len()));
    memchr::memchr3(b'#', b'<', b'>', target).is_some() || query.contains(&b'"') || path.contains(&b'`')
}

fn parse_scheme(scheme: &str) -> Result<Scheme, RequestError> {
    if scheme.eq_ignore_ascii_case("http") {
        return Ok(Scheme::Http);
    }
    if scheme.eq_ignore_ascii_case("https") {
        return Ok(Scheme::Https);
    }
    Err(RequestError::UnsupportedScheme)
}

/// The rule that the request line breaks, or `None` if it breaks none. `line` has no line end. Only for heads that
/// were refused.
//= RFC 9112 section 3: request-line = method SP request-target SP HTTP-version
pub(crate) fn fault(line: &[u8]) -> Option<RequestError> {
    if line.contains(&b'\r') {
        return Some(RequestError::BareCarriageReturn);
    }
    let mut parts = line.split(|&byte| byte == b' ');
    if !is_token(parts.next().unwrap_or_default()) {
        return Some(RequestError::InvalidMethod);
    }
    let (Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next()) else {
        return Some(RequestError::MalformedRequestLine);
    };
    if target.is_empty() || version.is_empty() {
        return Some(RequestError::MalformedRequestLine);
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Some(RequestError::InvalidTarget);
    }
    version_fault(version)
}

/// A higher minor version of HTTP/1 is refused too: nothing sends one, and reading it as 1.1 would be a guess about
/// its framing.
//= RFC 9112 section 2.3: HTTP-version = HTTP-name "/" DIGIT "." DIGIT
fn version_fault(version: &[u8]) -> Option<RequestError> {
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => None,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            Some(RequestError::UnsupportedVersion)
        }
        _ => Some(RequestError::InvalidVersion),
    }
}
