//! Cache rules: conditions, and the decisions of the operator.

use std::collections::BTreeSet;
use std::sync::Arc;

use cache::imprint::Imprint;
use cache::settings::StorageRules;
use caching::tags::TagRules;
use caching::{Codings, FieldLine, KeyRules, Profile, Selecting};
use regex::Regex;

use super::answer::Compression;
use super::protection::RuleProtection;
use crate::urls::{path_of, starts_with_any_case};

/// Decisions of the operator for the requests that match.
#[derive(Clone, Debug)]
pub struct CacheRule {
    /// Name in logs and explanations, unique in the site.
    pub name: String,
    /// Pattern of the path; absent: every path.
    pub path: Option<PathPattern>,
    /// How closely a path must match the pattern.
    pub spelling: Spelling,
    /// Ambiguous path spellings (origins interpret them in different ways) that are forwarded. Responses to such requests aren't
    /// stored.
    pub spellings_allowed: PathSpellings,
    /// Methods that match.
    pub methods: MethodSet,
    /// Query normalisation for the cache key (the origin still gets the query as sent).
    pub query: KeyRules,
    /// Maximum size of a stored body; larger ones are delivered without being stored.
    pub object_bytes_max: u64,
    /// Maximum size of QUERY content that becomes part of the cache key; requests with more are forwarded.
    pub query_content_bytes_max: u64,
    /// Request to the origin for a range request without a stored response.
    pub range_miss: RangeMiss,
    /// Evaluation of preconditions without a stored response.
    pub precondition_miss: PreconditionMiss,
    /// Treatment of request fields that replace the method or target in some origin frameworks, although no cache key contains them.
    pub override_fields: OverrideFields,
    /// Treatment of responses whose body ends only with the connection.
    pub close_delimited: CloseDelimited,
    /// Reduction of `Accept-Encoding`.
    pub codings: Codings,
    /// Tags of responses that are recorded; the same in all rules of a site.
    pub tags: TagRules,
    /// Imprint of the site's configuration on its stored responses; the same in all rules of a site.
    pub imprint: Option<Imprint>,
    /// Compression of responses to clients; absent: none.
    pub compression: Option<Arc<Compression>>,
    /// Limits on the requests of this rule and on their responses.
    pub protection: RuleProtection,
    /// Whether, and how, responses are stored and reused.
    pub caching: caching::Rules,
}

/// Request to the origin for a range request without a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeMiss {
    /// Requests the range, and stores it as a part.
    Part,
    /// Requests the whole response, and answers with the range from it.
    Whole,
}

/// Evaluation of `If-None-Match` and `If-Modified-Since` without a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionMiss {
    /// The cache fetches the complete response and evaluates the preconditions. The response is stored, and one forward serves all
    /// waiters.
    Whole,
    /// The origin server evaluates the preconditions: each such request is forwarded unchanged.
    //= RFC 9111 section 4.3.2: preconditions where nothing is stored
    Forward,
}

impl PreconditionMiss {
    /// Returns the default of a profile.
    pub fn for_profile(profile: Profile) -> Self {
        match profile {
            Profile::Safe => Self::Whole,
            Profile::Rfc9111 => Self::Forward,
        }
    }
}

/// Treatment of `X-HTTP-Method-Override`, `X-Original-URL` and similar fields in requests whose response may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideFields {
    /// The fields are removed, because otherwise the response would be stored under the key of a different request, and poison the
    /// cache.
    Drop,
    /// Forwarded, and part of the cache key.
    Key,
    /// Forwarded, as RFC 9110 section 5.1 requires for fields that a proxy doesn't recognise.
    Forward,
}

impl OverrideFields {
    /// Returns the default of a profile.
    pub fn for_profile(profile: Profile) -> Self {
        match profile {
            Profile::Safe => Self::Drop,
            Profile::Rfc9111 => Self::Key,
        }
    }
}

/// Treatment of a response whose body ends only with the connection. A body that ends with the connection may be incomplete, because a
/// crash of the origin server also closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseDelimited {
    /// The response is delivered to the client, but not stored.
    Pass,
    /// The response is treated as complete, as in RFC 9112 section 8.
    Store,
}

impl CloseDelimited {
    /// Returns the default of a profile.
    pub fn for_profile(profile: Profile) -> Self {
        match profile {
            Profile::Safe => Self::Pass,
            Profile::Rfc9111 => Self::Store,
        }
    }
}

impl CacheRule {
    /// Returns the rule for requests that match no rule of the site. The rule has the settings of the profile, and allows bodies of
    /// any size that the memory tier accepts.
    pub fn built_in(profile: Profile) -> Self {
        Self {
            name: "built-in".to_owned(),
            path: None,
            spelling: Spelling::AsWritten,
            spellings_allowed: PathSpellings::default(),
            methods: MethodSet::Any,
            query: KeyRules::default(),
            object_bytes_max: u64::MAX,
            query_content_bytes_max: QUERY_CONTENT_BYTES_MAX,
            range_miss: RangeMiss::Part,
            precondition_miss: PreconditionMiss::for_profile(profile),
            override_fields: OverrideFields::for_profile(profile),
            close_delimited: CloseDelimited::for_profile(profile),
            codings: codings_of(profile),
            tags: TagRules::default(),
            imprint: None,
            compression: None,
            protection: RuleProtection::default(),
            caching: caching::Rules::for_profile(profile),
        }
    }

    /// Returns whether the rule has a path that matches leniently.
    pub(crate) fn is_lenient(&self) -> bool {
        self.spelling == Spelling::Lenient && self.path.is_some()
    }

    /// Returns whether the rule applies to a request.
    pub(crate) fn fits(&self, method: &str, path_and_query: &str) -> bool {
        let fits = |pattern: &PathPattern| pattern.matches(path_and_query, self.spelling);
        self.has_method(method) && self.path.as_ref().is_none_or(fits)
    }

    /// Returns whether a method matches. Many frameworks treat `post` as `POST`, so a rule with lenient matching covers both.
    fn has_method(&self, method: &str) -> bool {
        self.methods.contains(method)
            || self.spelling == Spelling::Lenient && self.methods.contains(&method.to_ascii_uppercase())
    }

    /// Returns the rules for storing responses in a store with this maximum number of groups per response.
    pub(crate) fn storage(&self, groups_max: usize) -> StorageRules<'_> {
        StorageRules {
            caching: &self.caching,
            tags: &self.tags,
            codings: &self.codings,
            object_bytes_max: self.object_bytes_max,
            imprint: self.imprint,
            groups_max,
        }
    }

    /// Returns the fields of a request that select among stored responses.
    pub(crate) fn selecting<'a>(&'a self, request: &'a [FieldLine<'a>]) -> Selecting<'a> {
        Selecting::new(request, self.caching.negotiation).reduced_to(&self.codings)
    }
}

/// Returns the codings to which a profile reduces `Accept-Encoding`: the common ones, or all.
pub fn codings_of(profile: Profile) -> Codings {
    match profile {
        Profile::Safe => Codings::new(["zstd", "br", "gzip"]),
        Profile::Rfc9111 => Codings::default(),
    }
}

const QUERY_CONTENT_BYTES_MAX: u64 = 64 << 10;

/// A pattern for the path in normal form, within the site's host and prefix. Only [`Self::RegexWithQuery`] tests the query: a client
/// can add a query to any path, and this must neither select a rule nor bypass one.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// The exact path; the query is ignored.
    Exact(String),
    /// Start of the path; the query is ignored.
    Prefix(String),
    /// Glob over the path: `*` within a segment, `**` across, `?`, `[a-z]`, `{a,b}`.
    Glob(globset::GlobMatcher),
    /// Regular expression over the path, unanchored; the query is ignored.
    Regex(Regex),
    /// Regular expression over path and query, unanchored: it contains a question mark.
    RegexWithQuery(Regex),
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(own), Self::Exact(other)) | (Self::Prefix(own), Self::Prefix(other)) => own == other,
            (Self::Glob(own), Self::Glob(other)) => own.glob() == other.glob(),
            (Self::Regex(own), Self::Regex(other))
            | (Self::RegexWithQuery(own), Self::RegexWithQuery(other)) => own.as_str() == other.as_str(),
            _ => false,
        }
    }
}

/// How closely paths must match a pattern or prefix.
///
/// Many frameworks, such as Express, ignore case, a trailing slash and the query in routing. A restriction must cover every path that
/// the origin may treat as the same; a rule that only lengthens lifetimes must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Exactly matching paths.
    AsWritten,
    /// Also matches paths that an origin may treat as the same: with a different case (ASCII), a trailing slash, or any query. Globs
    /// and regular expressions are compiled to match any case.
    Lenient,
}

/// Part of a path that origins interpret in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSpelling {
    /// `%2F`: a slash, or a part of a name.
    EncodedSlash,
    /// A backslash, or `%5C`: a slash for some origins.
    Backslash,
    /// `%25` and two hexadecimal digits: an escape for origins that decode twice.
    DoubleEncoding,
    /// `;` or `%3B`: for some origins, the text after it isn't part of the name.
    Semicolon,
    /// `//` within a path: a single slash for some origins.
    EmptySegment,
    /// `/./` or `/../`, escaped or not.
    DotSegment,
    /// An escaped control character: the end of the path for some origins.
    Control,
    /// Two leading slashes (a host name for some origins), or triply nested escapes. No rule can allow these spellings.
    Never,
}

impl PathSpelling {
    /// Spellings that a rule may allow.
    pub const ALLOWABLE: [Self; 7] = [
        Self::EncodedSlash,
        Self::Backslash,
        Self::DoubleEncoding,
        Self::Semicolon,
        Self::EmptySegment,
        Self::DotSegment,
        Self::Control,
    ];
    /// Names of [`Self::ALLOWABLE`] in configurations.
    pub const NAMES: [&'static str; 7] = [
        "encoded-slash",
        "backslash",
        "double-encoding",
        "semicolon",
        "empty-segment",
        "dot-segment",
        "control-character",
    ];

    /// Returns the spelling with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALLOWABLE.into_iter().find(|spelling| spelling.name() == Some(name))
    }

    fn name(self) -> Option<&'static str> {
        Self::NAMES.get(self as usize).copied()
    }
}

/// A set of path spellings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSpellings(u8);

impl PathSpellings {
    /// Adds a spelling.
    #[must_use]
    pub const fn with(self, spelling: PathSpelling) -> Self {
        Self(self.0 | 1 << spelling as u8)
    }

    /// Returns the union with another set.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether a path with the spellings `found` is forwarded if this set is allowed. A path with two such spellings is never
    /// forwarded, because it has too many possible interpretations to list them all.
    pub const fn permit(self, found: Self) -> bool {
        found.0.count_ones() <= 1 && found.0 & !self.0 == 0
    }

    /// Returns whether a rule may allow a path with these spellings.
    pub const fn is_allowable(self) -> bool {
        self.0.count_ones() == 1 && self.0 & 1 << PathSpelling::Never as u8 == 0
    }

    /// Names of the spellings in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |spelling: &PathSpelling| self.0 & 1 << *spelling as u8 != 0;
        PathSpelling::ALLOWABLE.into_iter().filter(has).filter_map(PathSpelling::name)
    }
}

impl PathPattern {
    /// Returns whether a request for `path_and_query` matches.
    pub fn matches(&self, path_and_query: &str, spelling: Spelling) -> bool {
        let path = path_of(path_and_query);
        match spelling {
            Spelling::AsWritten => match self {
                Self::Exact(exact) => path == exact,
                Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
                Self::Glob(glob) => glob.is_match(path),
                Self::Regex(regex) => regex.is_match(path),
                Self::RegexWithQuery(regex) => regex.is_match(path_and_query),
            },
            Spelling::Lenient => self.matches_leniently(path_and_query, path),
        }
    }

    fn matches_leniently(&self, path_and_query: &str, path: &str) -> bool {
        let open = without_final_slash(path);
        let is_closed = open.len() < path.len();
        match self {
            Self::Exact(exact) => open.eq_ignore_ascii_case(without_final_slash(exact)),
            Self::Prefix(prefix) => starts_with_any_case(path, prefix),
            Self::Glob(glob) => glob.is_match(path) || is_closed && glob.is_match(open),
            Self::Regex(regex) => regex.is_match(path) || is_closed && regex.is_match(open),
            Self::RegexWithQuery(regex) => {
                regex.is_match(path_and_query)
                    || path.len() < path_and_query.len() && regex.is_match(path)
                    || is_closed && regex.is_match(open)
            }
        }
    }
}

/// Removes a trailing slash; `/` becomes empty.
fn without_final_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Methods that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodSet {
    /// Every method.
    Any,
    /// Only these methods, case-sensitive (RFC 9110 section 9.1).
    Only(BTreeSet<String>),
}

impl MethodSet {
    /// Returns whether `method` is in the set.
    pub fn contains(&self, method: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(methods) => methods.contains(method),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a pattern written as `KIND TEXT`, as the configuration check does.
    fn pattern(text: &str, spelling: Spelling) -> PathPattern {
        let any_case = spelling == Spelling::Lenient;
        match text.split_once(' ').expect("a kind and a text") {
            ("exact", text) => PathPattern::Exact(text.to_owned()),
            ("prefix", text) => PathPattern::Prefix(text.to_owned()),
            ("glob", text) => {
                let glob = globset::GlobBuilder::new(text)
                    .literal_separator(true)
                    .case_insensitive(any_case)
                    .build();
                PathPattern::Glob(glob.expect("a glob").compile_matcher())
            }
            (kind, text) => {
                let regex = regex::RegexBuilder::new(text).case_insensitive(any_case).build();
                let regex = regex.expect("an expression");
                match kind {
                    "regex" => PathPattern::Regex(regex),
                    _ => PathPattern::RegexWithQuery(regex),
                }
            }
        }
    }

    /// The cases are paths that match in both modes, only leniently, or never.
    #[test]
    fn lenient_patterns_match_what_an_origin_may_take_for_the_same() {
        let check = |text: &str, path: &str, as_written: bool, lenient: bool| {
            let matches = |spelling| pattern(text, spelling).matches(path, spelling);
            assert_eq!(matches(Spelling::AsWritten), as_written, "{path} by {text} as written");
            assert_eq!(matches(Spelling::Lenient), lenient, "{path} by {text} leniently");
        };
        for (text, path, as_written, lenient) in [
            ("exact /login", "/login", true, true),
            ("exact /login", "/login?a", true, true),
            ("exact /login", "/LogIn?a", false, true),
            ("exact /login", "/login/", false, true),
            ("exact /login/", "/login", false, true),
            ("exact /Login", "/login", false, true),
            ("exact /login", "/login/a", false, false),
            ("exact /login", "/logins", false, false),
            ("exact /", "/", true, true),
            ("exact /", "/?a", true, true),
            ("exact /", "/a", false, false),
            ("prefix /admin", "/administration", true, true),
            ("prefix /admin", "/ADMIN/x", false, true),
            ("prefix /admin", "/adm", false, false),
            ("prefix /admin", "/\u{e9}\u{e9}\u{e9}", false, false),
            ("glob /a/*/c", "/a/b/c", true, true),
            ("glob /a/*/c", "/A/b/C", false, true),
            ("glob /a/*/c", "/a/b/c/", false, true),
            ("glob /a/*/c", "/a/b/b/c", false, false),
            ("regex ^/account(/|$)", "/account", true, true),
            ("regex ^/account(/|$)", "/account?utm_source=1", true, true),
            ("query ^/account([/?]|$)", "/account?utm_source=1", true, true),
            ("query ^/account/?$", "/account?utm_source=1", false, true),
            ("regex ^/account(/|$)", "/ACCOUNT/1", false, true),
            ("regex ^/account$", "/Account/?a", false, true),
            ("regex ^/account(/|$)", "/accounts?a", false, false),
            ("query [?&]token=", "/a?token=1", true, true),
            ("query [?&]token=", "/a?Token=1", false, true),
            ("regex (?-i:^/account$)", "/Account", false, false),
        ] {
            check(text, path, as_written, lenient);
        }
    }
}
