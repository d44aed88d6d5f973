//! `Cache-Control` (RFC 9111 section 5.2, RFC 5861, RFC 8246) and the request's `Pragma` (section 5.4).
//!
//! Parsing is total: an unintelligible directive is ignored if that is the safe choice, and otherwise taken in its most
//! restrictive meaning. If a directive with an argument is repeated, the first counts.

use crate::{FieldLine, fields};

/// Seconds in a directive or in `Age`, never above [`DELTA_SECONDS_MAX`].
//= RFC 9111 section 1.2.2: 31 bits
pub type DeltaSeconds = u32;

/// Upper limit of parsed seconds.
//= RFC 9111 section 1.2.2: values too large become 2^31
pub const DELTA_SECONDS_MAX: DeltaSeconds = 1 << 31;

/// Parses delta-seconds: digits only, saturating.
pub fn parse_delta_seconds(value: &[u8]) -> Option<DeltaSeconds> {
    let seconds = crate::decimal::parse_saturating(value)?;
    Some(u32::try_from(seconds).map_or(DELTA_SECONDS_MAX, |seconds| seconds.min(DELTA_SECONDS_MAX)))
}

/// A directive that may be limited to some fields (`no-cache`, `private`). [`qualified_names`] returns the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Qualified {
    /// The directive is absent.
    #[default]
    Absent,
    /// Limited to the named fields.
    Fields,
    /// Applies to the whole response.
    All,
}

/// The request's `max-stale`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxStale {
    /// Absent or unintelligible: no stale response is accepted.
    #[default]
    None,
    /// Any stale response is accepted.
    Any,
    /// A response stale for at most this long is accepted.
    Seconds(DeltaSeconds),
}

/// The directives of the request's `Cache-Control`, or of its `Pragma` if it has no `Cache-Control`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `max-age`; an invalid argument counts as 0.
    pub max_age: Option<DeltaSeconds>,
    /// `max-stale`.
    pub max_stale: MaxStale,
    /// `min-fresh`; an invalid argument is ignored.
    pub min_fresh: Option<DeltaSeconds>,
    /// `no-cache`, here or in `Pragma`.
    pub no_cache: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
    /// `stale-if-error` (RFC 5861); an invalid argument is ignored.
    pub stale_if_error: Option<DeltaSeconds>,
}

impl RequestDirectives {
    /// Parses `Cache-Control` and `Pragma` of a request.
    pub fn parse(request: &[FieldLine<'_>]) -> Self {
        let mut lines = LineReader::default();
        for (name, value) in request {
            lines.read(name, value);
        }
        lines.finish()
    }

    fn take(&mut self, directive: &Directive<'_>) {
        let Directive { name, argument } = *directive;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("max-age") {
            self.max_age = self.max_age.or_else(|| Some(argument.seconds().unwrap_or(0)));
        } else if is("max-stale") && self.max_stale == MaxStale::None {
            self.max_stale = argument.max_stale();
        } else if is("min-fresh") {
            self.min_fresh = self.min_fresh.or_else(|| argument.seconds());
        } else if is("stale-if-error") {
            self.stale_if_error = self.stale_if_error.or_else(|| argument.seconds());
        }
        self.no_cache |= is("no-cache");
        self.no_store |= is("no-store");
        self.no_transform |= is("no-transform");
        self.only_if_cached |= is("only-if-cached");
    }
}

/// Collects the request's directives during a pass over its field lines.
#[derive(Default)]
pub(crate) struct LineReader {
    directives: RequestDirectives,
    cache_control: Presence,
    pragma_no_cache: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    Absent,
    Present,
}

impl LineReader {
    pub(crate) fn read(&mut self, name: &str, value: &[u8]) {
        if name.eq_ignore_ascii_case(CACHE_CONTROL) {
            self.cache_control = Presence::Present;
            for directive in fields::Members::new(value).filter_map(Directive::parse) {
                self.directives.take(&directive);
            }
        } else if name.eq_ignore_ascii_case("pragma") {
            self.pragma_no_cache |=
                fields::Members::new(value).any(|member| member.eq_ignore_ascii_case(b"no-cache"));
        }
    }

    //= RFC 9111 section 5.4: Pragma counts only where Cache-Control is absent
    pub(crate) fn finish(mut self) -> RequestDirectives {
        self.directives.no_cache |= self.pragma_no_cache && self.cache_control == Presence::Absent;
        self.directives
    }
}

/// The directives of the response's `Cache-Control`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `max-age`; an invalid argument counts as 0.
    pub max_age: Option<DeltaSeconds>,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `no-cache`.
    pub no_cache: Qualified,
    /// `no-store`.
    pub no_store: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `private`.
    pub private: Qualified,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `public`.
    pub public: bool,
    /// `s-maxage`; an invalid argument counts as 0.
    pub s_maxage: Option<DeltaSeconds>,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
    /// `stale-while-revalidate` (RFC 5861); an invalid argument is ignored.
    pub stale_while_revalidate: Option<DeltaSeconds>,
    /// `stale-if-error` (RFC 5861); an invalid argument is ignored.
    pub stale_if_error: Option<DeltaSeconds>,
}

impl ResponseDirectives {
    /// Parses `Cache-Control` of a response.
    //= RFC 9111 section 5.4: Pragma in a response says nothing
    pub fn parse(response: &[FieldLine<'_>]) -> Self {
        let mut directives = Self::default();
        for directive in fields::members(response, CACHE_CONTROL).filter_map(Directive::parse) {
            directives.take_lifetime(&directive);
            directives.take_permission(&directive);
        }
        directives
    }

    //= RFC 9111 section 4.2.1: the first of several, or stale
    //= RFC 9111 section 4.2.1: invalid freshness information is stale
    fn take_lifetime(&mut self, directive: &Directive<'_>) {
        let Directive { name, argument } = *directive;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("max-age") {
            self.max_age = self.max_age.or_else(|| Some(argument.seconds().unwrap_or(0)));
        } else if is("s-maxage") {
            self.s_maxage = self.s_maxage.or_else(|| Some(argument.seconds().unwrap_or(0)));
        } else if is("stale-while-revalidate") {
            self.stale_while_revalidate = self.stale_while_revalidate.or_else(|| argument.seconds());
        } else if is("stale-if-error") {
            self.stale_if_error = self.stale_if_error.or_else(|| argument.seconds());
        }
    }

    //= RFC 9111 section 5.2.2: response directives are obeyed
    //= RFC 9111 section 5.2.3: unrecognized directives are ignored
    fn take_permission(&mut self, directive: &Directive<'_>) {
        let Directive { name, argument } = *directive;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        self.must_revalidate |= is("must-revalidate");
        // `must-understand` and `public` permit storing, so they are accepted only in the exact form of the RFC.
        //= RFC 9111 section 5.2: no argument unless one is defined
        self.must_understand |= is("must-understand") && argument == Argument::Absent;
        self.public |= is("public") && argument == Argument::Absent;
        self.no_store |= is("no-store");
        self.no_transform |= is("no-transform");
        self.proxy_revalidate |= is("proxy-revalidate");
        //= RFC 8246 section 2: arguments are ignored
        self.immutable |= is("immutable");
        if is("no-cache") {
            self.no_cache = self.no_cache.max(argument.qualification());
        } else if is("private") {
            self.private = self.private.max(argument.qualification());
        }
    }
}

/// Returns whether `name` is listed in a qualified `no-cache="..."` or `private="..."` of this response.
//= RFC 9111 section 5.2.2.4: no-cache limited to fields
//= RFC 9111 section 5.2.2.7: private limited to fields
pub fn is_qualified(response: &[FieldLine<'_>], name: &str) -> bool {
    qualified_names(response).any(|listed| listed.eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns the field names listed in qualified `no-cache="..."` and `private="..."` of this response.
//= RFC 9111 section 5.2.2.4: names of any field
//= RFC 9111 section 5.2.2.7: names of any field
pub fn qualified_names<'a>(response: &'a [FieldLine<'a>]) -> impl Iterator<Item = &'a [u8]> {
    fields::members(response, CACHE_CONTROL)
        .filter_map(Directive::parse)
        .filter(|directive| {
            directive.name.eq_ignore_ascii_case(b"no-cache")
                || directive.name.eq_ignore_ascii_case(b"private")
        })
        .filter_map(|directive| match directive.argument {
            Argument::Value(names) => Some(names),
            Argument::Absent | Argument::Malformed => None,
        })
        .flat_map(fields::Members::new)
        .filter(|name| !name.is_empty())
}

const CACHE_CONTROL: &str = "cache-control";

/// `cache-directive = token [ "=" ( token / quoted-string ) ]`
#[derive(Clone, Copy, Debug)]
struct Directive<'a> {
    name: &'a [u8],
    argument: Argument<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument<'a> {
    Absent,
    /// A token, or the text between the quotes.
    Value(&'a [u8]),
    Malformed,
}

impl<'a> Directive<'a> {
    /// Parses a member. The name is the token at the start of the member. If text outside the grammar follows, such as space around the
    /// equals sign or a semicolon, the directive is recognized and its argument is not: `private; max-age=60` is still `private`.
    //= RFC 9111 section 5.2: a directive is a token with an optional argument
    //= RFC 9111 section 5.2: token and quoted-string
    fn parse(member: &'a [u8]) -> Option<Self> {
        let name_bytes = member.iter().position(|byte| !fields::is_token_byte(*byte)).unwrap_or(member.len());
        let (name, rest) = member.split_at(name_bytes);
        let argument = match rest {
            [] => Argument::Absent,
            [b'=', b'"', inner @ .., b'"'] => Argument::Value(inner),
            [b'=', token @ ..] if fields::is_token(token) => Argument::Value(token),
            _ => Argument::Malformed,
        };
        (!name.is_empty()).then_some(Self { name, argument })
    }
}

/// Returns the text of a quoted string without the backslashes of its quoted pairs.
fn unescaped(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = quoted.iter().copied();
    let mut text = Vec::new();
    while let Some(byte) = bytes.next() {
        text.push(if byte == b'\\' { bytes.next()? } else { byte });
    }
    Some(text)
}

impl Argument<'_> {
    //= RFC 9110 section 5.6.4: a quoted-pair stands for the octet behind the backslash
    fn seconds(self) -> Option<DeltaSeconds> {
        match self {
            //= RFC 9110 section 5.6.4: a quoted-pair stands for the octet behind the backslash
            Self::Value(value) if value.contains(&b'\\') => parse_delta_seconds(&unescaped(value)?),
            Self::Value(value) => parse_delta_seconds(value),
            Self::Absent | Self::Malformed => None,
        }
    }

    fn max_stale(self) -> MaxStale {
        match self {
            Self::Absent => MaxStale::Any,
            Self::Value(_) | Self::Malformed => self.seconds().map_or(MaxStale::None, MaxStale::Seconds),
        }
    }

    /// An empty or unintelligible list doesn't limit the directive.
    fn qualification(self) -> Qualified {
        match self {
            Self::Value(names) if fields::Members::new(names).any(fields::is_token) => Qualified::Fields,
            Self::Value(_) | Self::Absent | Self::Malformed => Qualified::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn response(value: &str) -> ResponseDirectives {
        ResponseDirectives::parse(&[("Cache-Control", value.as_bytes())])
    }

    fn request(value: &str) -> RequestDirectives {
        RequestDirectives::parse(&[("Cache-Control", value.as_bytes())])
    }

    fn check_max_age(value: &str, expected: Option<DeltaSeconds>) {
        assert_eq!(response(value).max_age, expected, "{value}");
        assert_eq!(request(value).max_age, expected, "{value}");
    }

    #[test]
    fn max_age_arguments() {
        check_max_age("max-age=100", Some(100));
        check_max_age("MAX-AGE=100", Some(100));
        check_max_age("max-age=\"100\"", Some(100));
        check_max_age("max-age=0100", Some(100));
        check_max_age("max-age=\"1\\00\"", Some(100));
        check_max_age("foo, max-age=1, bar=\"x, max-age=5\"", Some(1));
        check_max_age("max-age=100, max-age=5", Some(100));
        check_max_age("max-age=4294967296", Some(DELTA_SECONDS_MAX));
        check_max_age("max-age=99999999999999999999999", Some(DELTA_SECONDS_MAX));
        for invalid in [
            "", "=", "=-1", "=1.5", "=1a", " = 1", "= 1", " =1", "=\"1", "='1'", "=\"1\\\"", ":1", "=1;x",
            " 1",
        ] {
            check_max_age(&format!("max-age{invalid}"), Some(0));
        }
        check_max_age("xmax-age=1, max-agex=1, max age=1", None);
    }

    //= RFC 9111 section 5.2.2.4: no-cache limited to fields
    //= RFC 9111 section 5.2.2.4: names of any field
    //= RFC 9111 section 5.2.2.7: names of any field
    #[test]
    fn qualified_directives() {
        for (value, expected) in [
            ("no-cache", Qualified::All),
            ("no-cache=\"set-cookie\"", Qualified::Fields),
            ("no-cache=set-cookie", Qualified::Fields),
            ("no-cache=\"\"", Qualified::All),
            ("no-cache=\" , \"", Qualified::All),
            ("no-cache=\"a\", no-cache", Qualified::All),
            ("no-cache, no-cache=\"a\"", Qualified::All),
            ("no-cache=\"a", Qualified::All),
            ("no-caches", Qualified::Absent),
        ] {
            assert_eq!(response(value).no_cache, expected, "{value}");
            assert_eq!(response(&value.replace("no-cache", "private")).private, expected, "{value}");
        }
        let lines: &[FieldLine<'_>] =
            &[("cache-control", b"no-cache=\"a, B\", x=\"c\""), ("cache-control", b"private=d")];
        assert_eq!(qualified_names(lines).collect::<Vec<_>>(), [&b"a"[..], b"B", b"d"]);
        assert!(is_qualified(lines, "b") && !is_qualified(lines, "c"));
    }

    #[test]
    fn a_quoted_string_hides_directives_and_an_unclosed_one_does_not() {
        assert!(!response("x=\"a, no-store\"").no_store);
        assert!(response("x=\"a, no-store").no_store);
        assert!(response("no-store=\"\"").no_store);
    }

    //= RFC 9111 section 5.2: a directive is a token with an optional argument
    #[test]
    fn a_name_with_garbage_behind_it_restricts_and_does_not_permit() {
        let garbled = response("private; max-age=60");
        assert_eq!((garbled.private, garbled.max_age), (Qualified::All, None));
        assert!(response("no-store;").no_store && response("no-store max-age=60").no_store);
        assert_eq!(response("no-cache max-age=60").no_cache, Qualified::All);
        assert!(!response("public; max-age=60").public && !response("no-store/x").public);
        assert_eq!(request("max-stale 5").max_stale, MaxStale::None);
        assert!(!response("@no-store, =no-store, ;no-store").no_store);
    }

    #[test]
    fn request_directives() {
        assert_eq!(request("max-stale").max_stale, MaxStale::Any);
        assert_eq!(request("max-stale=5").max_stale, MaxStale::Seconds(5));
        assert_eq!(request("max-stale=x").max_stale, MaxStale::None);
        assert_eq!(request("min-fresh=5").min_fresh, Some(5));
        assert!(request("only-if-cached").only_if_cached);
        assert!(request("no-cache=\"x\"").no_cache);
    }

    //= RFC 9111 section 5.4: Pragma counts only where Cache-Control is absent
    #[test]
    fn pragma() {
        assert!(RequestDirectives::parse(&[("Pragma", b"foo, No-Cache")]).no_cache);
        assert!(!RequestDirectives::parse(&[("Pragma", b"no-cache"), ("Cache-Control", b"foo")]).no_cache);
        assert!(!RequestDirectives::parse(&[("Pragma", b"no-cachet")]).no_cache);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let lines: &[FieldLine<'_>] = &[("cache-control", &value), ("pragma", &value)];
            let _ = ResponseDirectives::parse(lines);
            let _ = RequestDirectives::parse(lines);
            let _ = qualified_names(lines).count();
        }

        #[test]
        fn numbers_never_exceed_the_maximum(digits in "[0-9]{1,40}") {
            prop_assert!(parse_delta_seconds(digits.as_bytes()).unwrap() <= DELTA_SECONDS_MAX);
        }
    }
}
