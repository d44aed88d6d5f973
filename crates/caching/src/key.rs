//! Cache keys: a sequence of bytes for each requested resource, which differs whenever one of its parts does.
//!
//! Each part is preceded by its length, so that no part can be confused with its neighbour. Path and query are in
//! normal form ([`crate::target`]), and nothing else is decoded: `/a%2Fb` is not `/a/b`, `a=1%26b=2` is not `a=1&b=2`.

use smallvec::SmallVec;

use crate::authority::{self, Authority};

/// Up to this many query parameters are sorted without allocation.
pub const PARAMETERS_INLINE: usize = 32;

/// The parts of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a> {
    /// The name of the site in the configuration: sites never share stored responses.
    pub site: &'a [u8],
    /// `http` or `https`, as the client sees it.
    pub scheme: &'a [u8],
    /// Host and port. Case and default port make no difference.
    pub authority: &'a [u8],
    /// The path in normal form.
    pub path: &'a [u8],
    /// The text after the first `?`, in normal form; `None` without one.
    pub query: Option<&'a [u8]>,
    /// The method name. `HEAD` counts as `GET`, whose stored response answers it.
    pub method: &'a str,
    /// Further values by which the operator distinguishes responses, in a fixed order.
    //= RFC 9111 section 2: more in the cache key
    pub extra: &'a [&'a [u8]],
}

/// How the query is included in the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// The included parameters.
    pub parameters: QueryParameters,
    /// Their order.
    pub order: QueryOrder,
}

/// The query parameters that are included in the key. A name matches byte for byte; one that ends in `*` matches all
/// names with that prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueryParameters {
    /// All parameters.
    #[default]
    All,
    /// All but these.
    Ignore(Vec<Box<[u8]>>),
    /// These only.
    Keep(Vec<Box<[u8]>>),
}

/// The order of query parameters in the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryOrder {
    /// The order as sent.
    #[default]
    AsSent,
    /// Sorted by name. Parameters of the same name keep their order, which is significant to many origin servers.
    Sorted,
}

/// An owned key, for example of a stored response.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(Box<[u8]>);

impl CacheKey {
    /// Returns the key of these parts.
    pub fn new(parts: &KeyParts<'_>, rules: &KeyRules) -> Self {
        let mut bytes = Vec::new();
        write_key(parts, rules, &mut bytes);
        Self(bytes.into())
    }

    /// Returns the key with bytes that [`write_key`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes, which are equal exactly if the parts are.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for CacheKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for CacheKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// Replaces the content of `out` by the key of these parts.
//= RFC 9111 section 2: the cache key holds at least the method and the target URI
pub fn write_key(parts: &KeyParts<'_>, rules: &KeyRules, out: &mut Vec<u8>) {
    out.clear();
    out.push(FORMAT);
    write_part(parts.site, out);
    write_length(parts.scheme.len(), out);
    let scheme_at = out.len();
    out.extend_from_slice(parts.scheme);
    out[scheme_at..].make_ascii_lowercase();
    write_authority(parts.scheme, parts.authority, out);
    write_part(if parts.path.is_empty() { b"/" } else { parts.path }, out);
    write_query(parts.query, rules, out);
    write_part(if parts.method == "HEAD" { b"GET" } else { parts.method.as_bytes() }, out);
    write_length(parts.extra.len(), out);
    for part in parts.extra {
        write_part(part, out);
    }
}

fn write_authority(scheme: &[u8], authority: &[u8], out: &mut Vec<u8>) {
    // Most clients send it in this form if no port is needed.
    if authority::is_plain(authority) {
        return write_part(authority, out);
    }
    let authority = Authority::new(scheme, authority);
    write_length(authority.len(), out);
    authority.write(out);
}

/// The parts of a key that locate it, as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlace<'a> {
    /// The name of the site.
    pub site: &'a [u8],
    /// The scheme in lower case.
    pub scheme: &'a [u8],
    /// The authority in lower case, without a default port.
    pub authority: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// All other parts of the key: query, method and more.
    pub rest: &'a [u8],
}

/// Parses a key; returns `None` for bytes that [`write_key`] did not write.
pub fn place(key: &[u8]) -> Option<KeyPlace<'_>> {
    let mut rest = key.strip_prefix(&[FORMAT])?;
    read_place(&mut rest)
}

fn read_place<'a>(rest: &mut &'a [u8]) -> Option<KeyPlace<'a>> {
    Some(KeyPlace {
        site: read_part(rest)?,
        scheme: read_part(rest)?,
        authority: read_part(rest)?,
        path: read_part(rest)?,
        rest,
    })
}

/// Formats a key for people, such as `GET http://a/b?c of site shop`; returns `None` for bytes that [`write_key`] did
/// not write.
pub fn describe(key: &[u8]) -> Option<String> {
    let mut rest = key.strip_prefix(&[FORMAT])?;
    let KeyPlace { site, scheme, authority, path, rest: _ } = read_place(&mut rest)?;
    let [site, scheme, authority, path] = [site, scheme, authority, path].map(<[u8]>::escape_ascii);
    let (present, after) = rest.split_first()?;
    rest = after;
    let query = match *present {
        QUERY_PRESENT => format!("?{}", read_part(&mut rest)?.escape_ascii()),
        _ => String::new(),
    };
    let method = read_part(&mut rest)?.escape_ascii();
    Some(format!("{method} {scheme}://{authority}{path}{query} of site {site}"))
}

fn read_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = read_length(rest)?;
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

fn read_length(rest: &mut &[u8]) -> Option<usize> {
    match rest.split_first() {
        Some((byte, after)) if byte & LENGTH_GOES_ON == 0 => {
            *rest = after;
            Some(usize::from(*byte))
        }
        _ => read_long_length(rest),
    }
}

fn read_long_length(rest: &mut &[u8]) -> Option<usize> {
    let mut length = 0_usize;
    for shift in (0..usize::BITS).step_by(LENGTH_BITS) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        length |= usize::from(byte & !LENGTH_GOES_ON) << shift;
        if byte & LENGTH_GOES_ON == 0 {
            return Some(length);
        }
    }
    None
}

/// The first byte of every key. Each format has its own number.
const FORMAT: u8 = 2;
const QUERY_ABSENT: u8 = 0;
const QUERY_PRESENT: u8 = 1;

/// Writes a length with seven bits in a byte, the lowest first; all bytes but the last are marked. Most lengths fit in
/// one byte, which matters because a key is kept with each stored response. Each number has one form, and no form is a
/// prefix of another.
fn write_length(length: usize, out: &mut Vec<u8>) {
    let mut left = length;
    while left >= usize::from(LENGTH_GOES_ON) {
        out.push(left as u8 | LENGTH_GOES_ON);
        left >>= LENGTH_BITS;
    }
    out.push(left as u8);
}

const LENGTH_GOES_ON: u8 = 0x80;
const LENGTH_BITS: usize = 7;

fn write_part(part: &[u8], out: &mut Vec<u8>) {
    write_length(part.len(), out);
    out.extend_from_slice(part);
}

/// Writes the query. An empty query differs from an absent one, but a query without included parameters doesn't.
fn write_query(query: Option<&[u8]>, rules: &KeyRules, out: &mut Vec<u8>) {
    let Some(query) = query else { return out.push(QUERY_ABSENT) };
    out.push(QUERY_PRESENT);
    // Most sites use the whole query in the order as sent, so it needs no splitting.
    if matches!((&rules.order, &rules.parameters), (QueryOrder::AsSent, QueryParameters::All)) {
        return write_part(query, out);
    }
    let start = out.len();
    if write_reduced(query, rules, out) == 0 {
        out.truncate(start - 1);
        return out.push(QUERY_ABSENT);
    }
    // The length precedes the query but is known only now, so it is written after the query and rotated to the front.
    let end = out.len();
    write_length(end - start, out);
    out[start..].rotate_left(end - start);
}

/// Returns the included parameters of a query, in their order, as a query; `None` if there are none.
pub fn reduced_query(query: &[u8], rules: &KeyRules) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(query.len());
    (write_reduced(query, rules, &mut out) > 0).then_some(out)
}

/// Returns the number of parameters written.
fn write_reduced(query: &[u8], rules: &KeyRules, out: &mut Vec<u8>) -> usize {
    match rules.order {
        QueryOrder::AsSent => write_parameters(kept(query, rules), out),
        QueryOrder::Sorted => write_parameters(sorted(query, rules).into_iter(), out),
    }
}

/// Writes parameters, joined by `&`, and returns their number. Parameters contain no `&`, so the result is unambiguous.
fn write_parameters<'a>(parameters: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> usize {
    let mut count = 0;
    for parameter in parameters {
        if count > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(parameter);
        count += 1;
    }
    count
}

fn kept<'a>(query: &'a [u8], rules: &'a KeyRules) -> impl Iterator<Item = &'a [u8]> {
    query.split(|byte| *byte == b'&').filter(|parameter| takes_part(parameter, &rules.parameters))
}

/// Sorts by parameter and index. The index makes an unstable sort stable; the stable one may allocate.
fn sorted<'a>(query: &'a [u8], rules: &'a KeyRules) -> impl IntoIterator<Item = &'a [u8]> {
    let mut parameters: SmallVec<[(usize, &[u8]); PARAMETERS_INLINE]> =
        kept(query, rules).enumerate().collect();
    // Parameters whose names origins may treat as equal keep their order, because the last one may count. For names with escapes or
    // semicolons, the equality is unknown, so nothing is sorted.
    let is_told = |(_, parameter): &(usize, &[u8])| memchr::memchr2(b'%', b';', name_of(parameter)).is_none();
    if parameters.iter().all(is_told) {
        parameters.sort_unstable_by(|(index, one), (other_index, other)| {
            read_alike(name_of(one)).cmp(read_alike(name_of(other))).then(index.cmp(other_index))
        });
    }
    parameters.into_iter().map(|(_, parameter)| parameter)
}

fn name_of(parameter: &[u8]) -> &[u8] {
    memchr::memchr(b'=', parameter).map_or(parameter, |equals| &parameter[..equals])
}

/// Returns whether a parameter is included in the key. A parameter that an origin may parse as a different one, or as
/// several, is always included: the key must contain everything that the origin uses.
fn takes_part(parameter: &[u8], parameters: &QueryParameters) -> bool {
    let is_listed =
        |patterns: &[Box<[u8]>], name: &[u8]| patterns.iter().any(|pattern| matches_name(pattern, name));
    // Some origins also separate parameters by a semicolon.
    let has_more = || memchr::memchr(b';', parameter).is_some();
    match parameters {
        QueryParameters::All => true,
        QueryParameters::Ignore(patterns) => !is_listed(patterns, name_of(parameter)) || has_more(),
        QueryParameters::Keep(patterns) => {
            let name = name_of(parameter);
            let is_read_as = |pattern: &[u8]| match pattern {
                [prefix @ .., b'*'] => read_alike(name).take(prefix.len()).eq(read_alike(prefix)),
                exact => read_alike(name).eq(read_alike(exact)),
            };
            is_listed(patterns, name)
                || has_more()
                || may_be_read_as_another(name)
                || patterns.iter().any(|pattern| is_read_as(pattern))
        }
    }
}

/// Returns whether origins may parse the name as a different name: they decode encoded names, and many treat `w[]` and
/// `w[0]` as `w`.
fn may_be_read_as_another(name: &[u8]) -> bool {
    memchr::memchr3(b'%', b'+', b'[', name).is_some()
}

/// Returns the name as the most lenient origin parses it: PHP treats `a.b`, `a+b` and `+a_b` as `a_b`, and `w[]` as
/// `w`; ASP.NET treats `A` as `a`.
fn read_alike(name: &[u8]) -> impl Iterator<Item = u8> {
    let name = name.split(|byte| *byte == b'[').next().unwrap_or_default();
    let spaces = name.iter().take_while(|byte| **byte == b'+').count();
    name[spaces..].iter().map(|byte| match byte {
        b'.' | b'+' => b'_',
        other => other.to_ascii_lowercase(),
    })
}

fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [prefix @ .., b'*'] => name.starts_with(prefix),
        exact => name == exact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_every_length_are_read_back() {
        for (bytes, length_bytes) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3)] {
            let part = vec![b'a'; bytes];
            let mut written = Vec::new();
            write_part(&part, &mut written);
            assert_eq!(written.len(), length_bytes + bytes);
            written.extend_from_slice(b"next");
            let mut rest = &written[..];
            assert_eq!((read_part(&mut rest), rest), (Some(&part[..]), &b"next"[..]));
        }
        assert_eq!(read_length(&mut &[0xff; 20][..]), None, "no end");
    }

    #[test]
    fn a_place_is_what_was_written() {
        let parts = KeyParts {
            site: b"s",
            scheme: b"HTTP",
            authority: b"A.example:80",
            path: b"/p",
            query: Some(b"q"),
            method: "GET",
            extra: &[b"x"],
        };
        let key = CacheKey::new(&parts, &KeyRules::default());
        let rest = b"\x01\x01q\x03GET\x01\x01x";
        let expected = KeyPlace { site: b"s", scheme: b"http", authority: b"a.example", path: b"/p", rest };
        assert_eq!(place(key.as_bytes()), Some(expected));
        assert_eq!(place(b"else"), None);
    }

    #[test]
    fn a_long_query_stands_behind_its_length() {
        for query in ["a=1".to_owned(), format!("a={}", "1".repeat(200))] {
            let parts = KeyParts {
                site: b"s",
                scheme: b"http",
                authority: b"a",
                path: b"/p",
                query: Some(query.as_bytes()),
                method: "GET",
                extra: &[],
            };
            let key = CacheKey::new(&parts, &KeyRules::default());
            assert_eq!(describe(key.as_bytes()).unwrap(), format!("GET http://a/p?{query} of site s"));
        }
    }
}
