//! The URIs that an unsafe request invalidates (RFC 9111 section 4.4), with the reference resolution of RFC 3986
//! section 5 for `Location` and `Content-Location`.

use smallvec::SmallVec;

use crate::authority::Authority;
use crate::facts::MethodClass;
use crate::{FieldLine, fields};

/// The target URI of a request.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// `http` or `https`.
    pub scheme: &'a [u8],
    /// Host and port.
    pub authority: &'a [u8],
    /// The path as sent.
    pub path: &'a [u8],
    /// The query as sent, without `?`.
    pub query: Option<&'a [u8]>,
}

/// Path and query of a URI of the target's own origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SameOrigin {
    /// The path.
    pub path: Vec<u8>,
    /// The query, without `?`.
    pub query: Option<Vec<u8>>,
}

/// Returns the URIs whose stored responses, in all variants, must be invalidated after this exchange: none, or the
/// target and the URIs of the same origin that the response names.
//= RFC 9111 section 4.4: invalidating stored responses
pub fn invalidated(
    method: MethodClass,
    status: u16,
    target: &Target<'_>,
    response: &[FieldLine<'_>],
) -> SmallVec<[SameOrigin; 3]> {
    let mut uris = SmallVec::new();
    //= RFC 9111 section 4.4: non-error is 2xx and 3xx
    if method != MethodClass::Unsafe || !(200..400).contains(&status) {
        return uris;
    }
    uris.push(SameOrigin { path: target.path.to_vec(), query: target.query.map(<[u8]>::to_vec) });
    //= RFC 9111 section 4.4: Location and Content-Location
    for name in ["location", "content-location"] {
        let resolved = fields::only(response, name).and_then(|reference| resolve(target, reference));
        uris.extend(resolved.filter(|uri| !uris.contains(uri)));
    }
    uris
}

/// Resolves a URI reference against the target. Returns `None` if it is malformed or of another origin.
//= RFC 3986 section 5.2: relative resolution, strict
//= RFC 9111 section 4.4: the same origin only
pub fn resolve(target: &Target<'_>, reference: &[u8]) -> Option<SameOrigin> {
    if reference.iter().any(|byte| byte.is_ascii_control() || *byte == b' ') {
        return None;
    }
    let reference = Reference::split(reference);
    let scheme = reference.scheme.unwrap_or(target.scheme);
    let is_same_scheme = scheme.eq_ignore_ascii_case(target.scheme);
    match reference.authority {
        Some(authority) => {
            let own = Authority::new(target.scheme, target.authority);
            let is_same = is_same_scheme && own.is_same(&Authority::new(scheme, authority));
            is_same.then(|| rooted(reference.path, reference.query))
        }
        // `http:path` has no authority whose origin could be compared.
        None if reference.scheme.is_some() => None,
        None => Some(resolve_path(target, &reference)),
    }
}

/// A URI reference split into its components, without the fragment.
struct Reference<'a> {
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

impl<'a> Reference<'a> {
    fn split(text: &'a [u8]) -> Self {
        let text = cut(text, b'#').0;
        let (text, query) = cut(text, b'?');
        let (scheme, text) = split_scheme(text);
        let (authority, path) = match text.strip_prefix(b"//") {
            Some(rest) => {
                let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
            None => (None, text),
        };
        Self { scheme, authority, path, query }
    }
}

fn split_scheme(text: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let (scheme, Some(rest)) = cut(text, b':') else { return (None, text) };
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    if is_scheme { (Some(scheme), rest) } else { (None, text) }
}

/// Splits the text at the first `mark`.
fn cut(text: &[u8], mark: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(mark, text) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

fn resolve_path(target: &Target<'_>, reference: &Reference<'_>) -> SameOrigin {
    if reference.path.is_empty() {
        let query = reference.query.or(target.query).map(<[u8]>::to_vec);
        return SameOrigin { path: target.path.to_vec(), query };
    }
    if reference.path.starts_with(b"/") {
        return rooted(reference.path, reference.query);
    }
    let directory = memchr::memrchr(b'/', target.path).map_or(&b"/"[..], |slash| &target.path[..=slash]);
    let merged = [directory, reference.path].concat();
    rooted(&merged, reference.query)
}

fn rooted(path: &[u8], query: Option<&[u8]>) -> SameOrigin {
    let path = if path.is_empty() { b"/" } else { path };
    SameOrigin { path: remove_dot_segments(path), query: query.map(<[u8]>::to_vec) }
}

/// Removes dot segments. The result begins with a slash.
//= RFC 3986 section 5.2.4: remove dot segments
fn remove_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let mut segments = relative.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => out.truncate(memchr::memrchr(b'/', &out).unwrap_or(0)),
            segment => {
                out.push(b'/');
                out.extend_from_slice(segment);
                continue;
            }
        }
        if is_last {
            out.push(b'/');
        }
    }
    out
}
