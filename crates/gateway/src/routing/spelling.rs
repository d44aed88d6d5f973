//! Paths in normal form that origins may interpret differently from their written form.
//!
//! Beyond the normal form, origins differ: whether an encoded slash or a backslash separates segments, whether a parameter (`;x`)
//! belongs to a name, whether empty segments count, and how often escapes are decoded. If settings depend on paths, such a path is
//! refused, unless its rule allows the spelling. All other paths have few readings: the path as written, and its decoded forms.

use caching::target::escape;

use crate::config::{PathSpelling, PathSpellings, path_of};

/// Other readings of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Readings {
    /// Spellings in the path that origins interpret in different ways.
    pub(crate) spellings: PathSpellings,
    /// Decoded paths, followed by the query as written. The list has a path with the parameters of segments, and a path without them.
    /// Each of them is listed whole, cut at a decoded `#`, and with a query that begins at a decoded `?`. No listed path is equal to
    /// the path as written.
    pub(crate) others: Vec<String>,
}

/// Maximum number of readings, including the path as written.
pub(super) const READINGS_MAX: usize = 8;

/// Returns the readings of a path; `None` for plain paths. Most paths are plain; a single pass shows that.
#[inline]
pub(super) fn readings(path_and_query: &str) -> Option<Box<Readings>> {
    if is_plain(path_and_query.as_bytes()) { None } else { closer(path_and_query) }
}

/// Returns whether a path has no other readings. Escapes of non-ASCII bytes don't add a reading.
fn is_plain(target: &[u8]) -> bool {
    let mut before = 0;
    for (at, byte) in target.iter().enumerate() {
        match byte {
            b'?' => return true,
            b'\\' | b';' => return false,
            b'/' | b'.' if before == b'/' => return false,
            b'%' if !is_beyond_ascii(&target[at + 1..]) => return false,
            _ => {}
        }
        before = *byte;
    }
    true
}

/// Returns whether an escape, passed without its `%`, encodes a byte that can't be part of an ASCII character, not even of an overlong
/// form.
fn is_beyond_ascii(digits: &[u8]) -> bool {
    match digits {
        // The patterns match overlong forms of two, three and four bytes, and forms of five and six bytes, which early UTF-8 allowed.
        [b'C', b'0' | b'1', ..]
        | [b'E', b'0', b'%', b'8' | b'9', ..]
        | [b'F', b'0', b'%', b'8', ..]
        | [b'F', b'8' | b'C', ..] => false,
        [b'8' | b'9' | b'A'..=b'F', _, ..] => true,
        _ => false,
    }
}

#[cold]
fn closer(path_and_query: &str) -> Option<Box<Readings>> {
    let path_bytes = memchr::memchr(b'?', path_and_query.as_bytes()).unwrap_or(path_and_query.len());
    let (path, query) = path_and_query.split_at(path_bytes);
    let once = decoded(path.as_bytes());
    let twice = decoded(&once);
    let (cut_off, _) = ReadingEnd::FragmentOrQuery.split(&twice);
    let of_segments = of_segments(&twice).and(of_segments(cut_off));
    let mut spellings = of_escapes(path.as_bytes()).and(of_escapes(&once)).and(of_segments);
    if has_escape(&once) {
        spellings = spellings.with(PathSpelling::DoubleEncoding);
    }
    if has_escape(&twice) || path.starts_with("//") || has_odd_escape(path.as_bytes(), &twice) {
        spellings = spellings.with(PathSpelling::Never);
    }
    let mut others = Vec::new();
    let in_segments = [ReadingEnd::Whole, ReadingEnd::Query, ReadingEnd::FragmentOrQuery]
        .into_iter()
        .flat_map(|end| [whole, without_parameters].map(|name_of| (end, name_of)));
    for (end, name_of) in in_segments.chain([(ReadingEnd::Parameters, whole as NameOf)]) {
        let read = written_out(&twice, end, name_of) + query;
        if read != path_and_query && !others.contains(&read) {
            others.push(read);
        }
    }
    (spellings != PathSpellings::default() || !others.is_empty())
        .then(|| Box::new(Readings { spellings, others }))
}

/// Returns the first part of a path that origins interpret in different ways: a segment, or the slashes around an empty segment.
pub(crate) fn spelled_part(path_and_query: &str) -> &str {
    let is_spelled = |segment: &&str| {
        closer(&format!("/{segment}")).is_some_and(|found| found.spellings != PathSpellings::default())
    };
    path_of(path_and_query).split('/').skip(1).find(is_spelled).unwrap_or("//")
}

fn has_escape(text: &[u8]) -> bool {
    memchr::memchr_iter(b'%', text).any(|at| escape(text, at).is_some())
}

/// Returns whether some origins decode more than standard escapes: `%u0061` from old scripts, which IIS accepts, or ASCII characters in
/// overlong UTF-8.
fn has_odd_escape(path: &[u8], decoded: &[u8]) -> bool {
    let is_of_script = |text: &[u8]| matches!(text, [b'%', b'u' | b'U', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit));
    let is_overlong = |pair: &[u8]| {
        matches!(
            pair,
            [0xc0 | 0xc1, 0x80..=0xbf]
                | [0xe0, 0x80..=0x9f]
                | [0xf0, 0x80..=0x8f]
                | [0xf8, 0x80..=0x87]
                | [0xfc, 0x80..=0x83]
        )
    };
    [path, decoded].iter().any(|text| text.windows(6).any(is_of_script))
        || decoded.windows(2).any(is_overlong)
}

fn of_escapes(text: &[u8]) -> PathSpellings {
    let escapes = memchr::memchr_iter(b'%', text).filter_map(|at| escape(text, at));
    let named = escapes.filter_map(|byte| match byte {
        b'/' => Some(PathSpelling::EncodedSlash),
        b'\0'..=b'\x1f' | 0x7f => Some(PathSpelling::Control),
        _ => None,
    });
    named.fold(PathSpellings::default(), PathSpellings::with)
}

/// Returns the spellings in the segments of a decoded path.
fn of_segments(path: &[u8]) -> PathSpellings {
    let mut spellings = PathSpellings::default();
    if path.contains(&b'\\') {
        spellings = spellings.with(PathSpelling::Backslash);
    }
    if path.contains(&b';') {
        spellings = spellings.with(PathSpelling::Semicolon);
    }
    let mut names =
        path.split(|byte| matches!(byte, b'/' | b'\\')).skip(1).map(without_parameters).peekable();
    while let Some(name) = names.next() {
        match name {
            b"." | b".." => spellings = spellings.with(PathSpelling::DotSegment),
            b"" if names.peek().is_some() => spellings = spellings.with(PathSpelling::EmptySegment),
            _ => {}
        }
    }
    spellings
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(first) = text.get(at) {
        let byte = escape(text, at);
        out.push(byte.unwrap_or(*first));
        at += if byte.is_some() { 3 } else { 1 };
    }
    out
}

/// Returns the name of a segment.
type NameOf = fn(&[u8]) -> &[u8];

fn whole(segment: &[u8]) -> &[u8] {
    segment
}

/// Returns the name of a segment as servlet containers interpret it, without the parameters after a semicolon.
fn without_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|byte| *byte == b';').next().unwrap_or_default()
}

/// Where a decoded path ends in an origin's interpretation.
#[derive(Clone, Copy, Debug)]
enum ReadingEnd {
    /// At its last byte.
    Whole,
    /// At a `?`, where a query begins.
    Query,
    /// At a `?`, or at a `#` or control character, which end a URL or a C string.
    FragmentOrQuery,
    /// At any of these, or at a `;`, where the parameters of a URL begin for some origins (RFC 1808).
    Parameters,
}

impl ReadingEnd {
    /// Returns the path, and the query that begins inside it.
    fn split(self, path: &[u8]) -> (&[u8], Option<&[u8]>) {
        let cut = |byte: &u8| match self {
            Self::Whole | Self::Query => false,
            Self::FragmentOrQuery => matches!(byte, b'#' | b'\0'..=b'\x1f' | 0x7f),
            Self::Parameters => matches!(byte, b';' | b'#' | b'\0'..=b'\x1f' | 0x7f),
        };
        let path = &path[..path.iter().position(cut).unwrap_or(path.len())];
        let query = match self {
            Self::Whole => None,
            Self::Query | Self::FragmentOrQuery | Self::Parameters => memchr::memchr(b'?', path),
        };
        query.map_or((path, None), |at| (&path[..at], Some(&path[at + 1..])))
    }
}

/// Writes a decoded path in the form used in rules: without dot segments and empty segments.
fn written_out(path: &[u8], end: ReadingEnd, name_of: NameOf) -> String {
    let (path, query) = end.split(path);
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_open = true;
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')).skip(1) {
        let name = name_of(segment);
        let dots = without_parameters(segment);
        ends_open = matches!(dots, b"" | b"." | b"..");
        match dots {
            b".." => drop(kept.pop()),
            b"." => {}
            _ if name.is_empty() => {}
            _ => kept.push(name),
        }
    }
    let mut out = String::with_capacity(path.len() + 1);
    for name in &kept {
        out.push('/');
        name.iter().for_each(|byte| push(*byte, &mut out));
    }
    if ends_open {
        out.push('/');
    }
    if let Some(query) = query {
        out.push('?');
        query.iter().for_each(|byte| push(*byte, &mut out));
    }
    out
}

/// Writes visible characters unescaped, except those that end a path, and escapes all other characters.
fn push(byte: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#') {
        return out.push(char::from(byte));
    }
    let [high, low] = [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)]));
    out.extend(['%', high, low]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(path: &str, spellings: &[&str], others: &[&str]) {
        let found = readings(path);
        let (names, read) = match &found {
            Some(found) => {
                (found.spellings.names().collect(), found.others.iter().map(String::as_str).collect())
            }
            None => (Vec::new(), Vec::new()),
        };
        assert_eq!((&names[..], &read[..]), (spellings, others), "{path}");
    }

    #[test]
    fn plain_paths_are_read_in_one_way() {
        for path in [
            "/",
            "*",
            "/a/b.jpg?x=//;%2F",
            "/caf%C3%A9/%20",
            "/%E0%A4%85/%F0%9F%98%80",
            "/.well-known/x",
            "/a/...",
            "/a/",
            "/100%25",
            "/100%25-a",
        ] {
            assert_eq!(readings(path), None, "{path}");
        }
    }

    #[test]
    fn odd_paths_are_read_decoded_too() {
        check("/%40me/a%3Ab?q=%40", &[], &["/@me/a:b?q=%40"]);
        check("/a%3Fb.css?c", &[], &["/a?b.css?c"]);
        check("/a%23", &[], &["/a"]);
        check("/a%231/%40me", &[], &["/a%231/@me", "/a"]);
        check("/a%3F/%40me?b", &[], &["/a%3F/@me?b", "/a?/@me?b"]);
        check("/a%23b%3Fc", &[], &["/a%23b?c", "/a"]);
        check("/public%23/../admin", &["dot-segment"], &["/admin", "/public"]);
        check("/a%3F/../b", &["dot-segment"], &["/b", "/a?/../b"]);
        check("/100%", &[], &["/100%25"]);
        check("/a%2Fb", &["encoded-slash"], &["/a/b"]);
        check("/a%5Cb", &["backslash"], &["/a/b"]);
        check("/a\\b", &["backslash"], &["/a/b"]);
        check("/%2561", &["double-encoding"], &["/a"]);
        check("/%%361", &["double-encoding"], &["/a"]);
        check("/a;b/c", &["semicolon"], &["/a/c", "/a"]);
        check("/a%3Bb", &["semicolon"], &["/a;b", "/a"]);
        check("/..%23", &["dot-segment"], &["/"]);
        check("/a//b", &["empty-segment"], &["/a/b"]);
        check("//a", &["empty-segment"], &["/a"]);
        check("/a/../b/.", &["dot-segment"], &["/b/"]);
        check("/a%00b", &["control-character"], &["/a"]);
        check("/a/..;/b", &["semicolon", "dot-segment"], &["/b", "/"]);
        check("/a%2F..%2Fb", &["encoded-slash", "dot-segment"], &["/b"]);
        check("/a%252Fb", &["encoded-slash", "double-encoding"], &["/a/b"]);
    }

    /// A rule can allow some of these spellings, but never the remaining ones.
    #[test]
    fn some_spellings_are_never_allowed() {
        let all = PathSpelling::ALLOWABLE.into_iter().fold(PathSpellings::default(), PathSpellings::with);
        for (path, is_allowed) in [
            ("/a%2Fb", true),
            ("/a;b", true),
            ("/%2561", true),
            ("//a", false),
            ("/%25252561", false),
            ("/a;b%2Fc", false),
            ("/%u0061dmin", false),
            ("/x%C0%AFadmin", false),
            ("/%E0%81%A1dmin", false),
            ("/x%F0%80%80%AFadmin", false),
            ("/%25u0061", false),
        ] {
            let spellings = readings(path).expect("several readings").spellings;
            assert_eq!(all.permit(spellings), is_allowed, "{path}");
        }
    }

    #[test]
    fn the_part_that_is_read_otherwise_is_named() {
        for (path, expected) in [
            ("/a/b%2Fc/d;e", "b%2Fc"),
            ("/a//b", "//"),
            ("//a?b", "//"),
            ("/a/../b", ".."),
            ("/a/b\\c?d;e", "b\\c"),
            ("/x/%2561", "%2561"),
            ("/x/%u0061y", "%u0061y"),
        ] {
            assert_eq!(spelled_part(path), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_was_read_is_a_path_of_its_own(path in "/([a./%;\\\\?]|%2[5EF]|%5C|%61|%00){0,12}") {
            let Some(readings) = readings(&path) else { return Ok(()) };
            let others = &readings.others;
            prop_assert!(others.len() < READINGS_MAX, "{path}: {others:?}");
            for (place, read) in others.iter().enumerate() {
                prop_assert!(read.starts_with('/') && *read != path && !others[..place].contains(read), "{path} is read as {read}");
            }
        }
    }
}
