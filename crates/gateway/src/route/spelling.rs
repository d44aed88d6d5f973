//! How an origin may read a path that can be spelled in several ways.
//!
//! Sites and rules are chosen by the path as it is written, and origins decode it before they choose: nginx, and most others, take
//! `/images%2faccount` for `/images/account`. Whoever respells a path must not get other rules for it, nor around an access list.
//!
//! Origins agree on hardly anything here: whether an encoded slash or a backslash separates segments, whether a parameter (`;x`) ends before the
//! path is decoded or after, whether empty segments count. So a path has all combinations as readings. Where it also has dot segments, which
//! remove what each of these takes for the segment before, it has no meaning at all. No client is turned away by that: those that follow
//! RFC 3986 section 5.2.4, or the URL standard of browsers, remove such segments before they send a path.

/// How else origins may read a path, with the query as it is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Readings {
    /// How most read it: decoded, and without empty segments and those of dots. None where that is how it is written.
    pub(super) usual: Option<String>,
    /// The others. None of them is as the path is written.
    pub(super) others: Vec<String>,
}

impl Readings {
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.usual.iter().chain(&self.others).map(String::as_str)
    }
}

/// With the one that is as the path is written. Two kinds of odd characters in one path give up to twelve.
pub(super) const READINGS_MAX: usize = 12;

/// The path can't be said to mean anything: it has dot segments and something odd beside them, or more than [`READINGS_MAX`] readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaningless;

/// Visible characters are decoded (nginx decodes all of them; RFC 3986 section 6.2.2). Everything else stays encoded, in capital letters.
pub(super) fn other_readings(path_and_query: &str) -> Result<Readings, Meaningless> {
    let path_bytes = memchr::memchr(b'?', path_and_query.as_bytes()).unwrap_or(path_and_query.len());
    let (path, query) = path_and_query.split_at(path_bytes);
    let (usual, all) = match oddness(path.as_bytes()) {
        Oddness::None => return Ok(Readings::default()),
        Oddness::Dots => (without_dots(path), Vec::new()),
        Oddness::More if has_dots(path) => return Err(Meaningless),
        Oddness::More => {
            let usual =
                with_slashes_merged(&decoded(&with_backslashes_as_slashes(path), Encoded::BothSeparate));
            (usual, all_readings(path)?)
        }
    };
    let whole = |read: String| read + query;
    let others = all.into_iter().filter(|read| *read != usual && read != path).map(whole).collect();
    let usual = Some(usual).filter(|usual| usual != path).map(whole);
    Ok(Readings { usual, others })
}

/// What a path has that origins read in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddness {
    None,
    /// Nothing but names that begin with dots.
    Dots,
    More,
}

/// Most paths are plain, and cost one pass.
fn oddness(path: &[u8]) -> Oddness {
    let (mut oddness, mut before) = (Oddness::None, 0);
    for byte in path {
        match byte {
            b'%' | b'\\' | b';' => return Oddness::More,
            b'/' if before == b'/' => return Oddness::More,
            b'.' if before == b'/' => oddness = Oddness::Dots,
            _ => {}
        }
        before = *byte;
    }
    oddness
}

/// Whether any reading has a dot segment: decoded up to twice, with whatever may be a slash, and without parameters.
fn has_dots(path: &str) -> bool {
    let plain = decoded_bytes(&decoded_bytes(path.as_bytes()));
    plain.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
        let name = segment.split(|byte| *byte == b';').next();
        matches!(name, Some(b"." | b".."))
    })
}

fn decoded_bytes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let encoded = after.get(..2).filter(|_| *first == b'%');
        let byte = encoded.and_then(|digits| byte(std::str::from_utf8(digits).ok()?));
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    out
}

/// What an origin may do with a path.
type Step = fn(&str) -> String;

/// Each step may have been taken or not: the readings are the path, and what each step makes of each reading before it.
fn all_readings(path: &str) -> Result<Vec<String>, Meaningless> {
    let mut all = vec![path.to_owned()];
    let steps: [&[Step]; 7] = [
        // What another proxy makes of it decodes once more.
        &[|path| path.replace("%25", "%")],
        &[with_backslashes_as_slashes],
        // Tomcat does that before it decodes.
        &[without_parameters],
        &[
            |path| decoded(path, Encoded::NoneSeparates),
            |path| decoded(path, Encoded::SlashSeparates),
            |path| decoded(path, Encoded::BackslashSeparates),
            |path| decoded(path, Encoded::BothSeparate),
        ],
        &[without_parameters],
        &[without_authority],
        &[with_slashes_merged],
    ];
    for alternatives in steps {
        for before in 0..all.len() {
            for step in alternatives {
                let read = step(&all[before]);
                if all.contains(&read) {
                    continue;
                }
                if all.len() == READINGS_MAX {
                    return Err(Meaningless);
                }
                all.push(read);
            }
        }
    }
    Ok(all)
}

fn with_backslashes_as_slashes(path: &str) -> String {
    path.replace('\\', "/")
}

/// Which encoded characters separate segments. Others of them are parts of names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoded {
    NoneSeparates,
    SlashSeparates,
    BackslashSeparates,
    BothSeparate,
}

fn decoded(path: &str, separating: Encoded) -> String {
    let is_slash = matches!(separating, Encoded::SlashSeparates | Encoded::BothSeparate);
    let is_backslash = matches!(separating, Encoded::BackslashSeparates | Encoded::BothSeparate);
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.get(..2);
        let Some((digits, byte)) = digits.and_then(|digits| Some((digits, byte(digits)?))) else {
            out.push('%');
            continue;
        };
        match byte {
            b'\\' if is_backslash => out.push('/'),
            // Decoded, these would begin something else.
            b'%' | b'?' | b'#' => push_encoded(&mut out, digits),
            b'/' if !is_slash => push_encoded(&mut out, digits),
            _ if byte.is_ascii_graphic() => out.push(char::from(byte)),
            _ => push_encoded(&mut out, digits),
        }
        rest = &rest[2..];
    }
    out.push_str(rest);
    out
}

fn push_encoded(out: &mut String, digits: &str) {
    out.push('%');
    out.push_str(&digits.to_ascii_uppercase());
}

/// What two hexadecimal digits stand for.
fn byte(digits: &str) -> Option<u8> {
    // A sign would be taken for a part of the number.
    u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
}

/// As servlet containers read it: what follows a semicolon is no part of a name.
fn without_parameters(path: &str) -> String {
    let names = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    names.collect::<Vec<_>>().join("/")
}

/// As a reference to a URL, which `new URL(target, base)` takes it for: two slashes begin the name of a server, and browsers' URLs skip more of them.
fn without_authority(path: &str) -> String {
    let name = path.trim_start_matches('/');
    if path.len() - name.len() < 2 {
        return path.to_owned();
    }
    name.find('/').map_or("/", |end| &name[end..]).to_owned()
}

fn with_slashes_merged(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    out
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for segment in path.split('/').skip(1) {
        ends_open = matches!(segment, "" | "." | "..");
        match segment {
            ".." => drop(kept.pop()),
            "" | "." => {}
            _ => kept.push(segment),
        }
    }
    let end = if ends_open && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn respelled_paths_are_read_as_origins_read_them() {
        for (path, expected) in [
            ("/", None),
            ("/a/b.jpg?x=%2f", None),
            ("/caf%C3%A9/%20", None),
            ("/.well-known/x", None),
            ("/a/...", None),
            ("*", None),
            ("/images/../account?q=//", Some("/account?q=//")),
            ("/images\\account", Some("/images/account")),
            ("/images%5caccount%2Fx", Some("/images/account/x")),
            ("//account", Some("/account")),
            ("/%61ccount", Some("/account")),
            ("/%40me/a%3Ab", Some("/@me/a:b")),
            ("/caf%c3%a9", Some("/caf%C3%A9")),
            ("/a%3fb%23%25", Some("/a%3Fb%23%25")),
            ("/./a/b/.", Some("/a/b/")),
            ("/../..", Some("/")),
            ("/a%", None),
            ("/a%2", None),
            ("/a%+f", None),
            ("/a%2g", None),
            ("/%é", None),
            ("/login;x", None),
            ("/log%69n%3bx", Some("/login;x")),
        ] {
            assert_eq!(other_readings(path).unwrap().usual.as_deref(), expected, "{path}");
        }
        for (path, others) in [
            ("/a/../b", &[][..]),
            ("/%61", &[]),
            ("/login;x", &["/login"]),
            ("/;a/login?b;c", &["//login?b;c", "/?b;c", "/login?b;c"]),
            ("/log%69n%3bx", &["/login"]),
            ("/login/;x", &["/login/"]),
            ("/;", &["/"]),
            ("/up;%2fx", &["/up", "/up;%2Fx", "/up/x"]),
            ("/a%2fb", &["/a%2Fb"]),
            ("/%2561", &["/%61", "/a"]),
            ("/a%5cb", &["/a\\b"]),
            ("/a\\b", &[]),
            ("//x/admin", &["/admin"]),
            ("///x/admin", &["/admin"]),
            ("//x", &["/"]),
            ("/x//y", &[]),
        ] {
            assert_eq!(other_readings(path).unwrap().others, others, "{path}");
        }
    }

    #[test]
    fn dots_beside_something_odd_mean_nothing() {
        for path in [
            "/%61dmin/..",
            "/admin%2f..",
            "/%2e",
            "/images/%2e%2E/account",
            "/%252e%252e/account",
            "//admin/..;",
            "/static/../account/..;/static/",
            "/admin/..\\x",
            "/admin/..%5cx",
            "/./admin//..",
            "/a%2fb/../admin",
            "/admin;%2f..",
            "/admin;x%2f..%2ffoo",
            "/admin;%5c..%5cp",
            "/a;b/./c",
            "/..;",
            "/.%3bx/",
            // More readings than anybody needs.
            "//a%2fb\\c%5cd;e//f%41",
        ] {
            assert_eq!(other_readings(path), Err(Meaningless), "{path}");
        }
        for path in ["/.well-known/%7e", "/a..;b", "/...%2f", "/a.%2fb", "/x?/../%2e", "/a%2Fb/%7e//c;d=(e)'"]
        {
            assert!(other_readings(path).is_ok(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_was_read_is_a_path_of_its_own(path in "/([a./%;\\\\?é]|%2[ef]|%5c|%61){0,12}") {
            let Ok(readings) = other_readings(&path) else { return Ok(()) };
            let all: Vec<&str> = readings.iter().chain([path.as_str()]).collect();
            prop_assert!(all.len() <= READINGS_MAX, "{path}: {all:?}");
            for (place, read) in all.iter().enumerate() {
                prop_assert!(read.starts_with('/') && !all[..place].contains(read), "{path} is read as {read}");
            }
        }
    }
}
