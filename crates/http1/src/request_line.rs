//! The request line: the forms of its target, and the reason why a line is invalid.

use crate::fields::is_token;
use crate::{Authority, RequestError};

/// The four forms of a request target.
//= RFC 9112 section 3.2: request target
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetForm {
    /// `/path?query`.
    Origin,
    /// `http://host/path?query`.
    Absolute,
    /// `host:port`, with CONNECT only.
    Authority,
    /// `*`, with OPTIONS only.
    Asterisk,
}

/// The scheme of an absolute-form target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl Scheme {
    /// Returns the scheme in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the default port.
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
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// The parts of a request target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'b> {
    pub(crate) form: TargetForm,
    pub(crate) scheme: Option<Scheme>,
    /// The authority, in absolute-form and authority-form only.
    pub(crate) authority: Option<Authority<'b>>,
    pub(crate) path_and_query: &'b str,
}

impl<'b> Target<'b> {
    /// Parses a target that consists of visible ASCII.
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
            // A query without a path lacks its `/`, which can't be inserted into borrowed text.
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

/// Returns whether a target has delimiters that are invalid in a URI and that browsers always encode. Some servers cut
/// off a fragment and others keep it; the other delimiters can't be forwarded. Clients do send some characters
/// unencoded that a URI has to encode (`{`, `|`, `^`, and `"` in a path), and servers accept them.
//= RFC 9112 section 3.2: 400 for an invalid request target, which is not corrected
fn has_stray_delimiter(target: &str) -> bool {
    let target = target.as_bytes();
    // Almost no target has any of these, and targets are short: one comparison per byte.
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

/// Returns the rule that the request line breaks, or `None`. `line` has no line end. Called only for refused heads.
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

/// Higher minor versions of HTTP/1 are refused too: no client sends one, and treating it as 1.1 would be a guess about
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
