//! Cache rules: which requests, and what the operator decided for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use caching::tags::TagRules;
use caching::{Codings, FieldLine, KeyRules, Profile, Selecting};
use regex::Regex;

use super::compression::Compression;
use super::protection::RuleProtection;

/// What the operator decided for the requests that match.
#[derive(Clone, Debug)]
pub struct CacheRule {
    /// Shown in logs and explanations; unique in its site.
    pub name: String,
    /// Absent: every path.
    pub path: Option<PathPattern>,
    /// Methods that match.
    pub methods: MethodSet,
    /// Query normalisation for the cache key (the origin still gets the query as sent).
    pub query: KeyRules,
    /// Largest body that is stored; larger ones are passed on.
    pub object_bytes_max: u64,
    /// Largest content of a QUERY that takes part in a cache key; with a larger one it is passed on.
    pub query_content_bytes_max: u64,
    /// What is fetched for a range of which nothing is stored.
    pub range_miss: RangeMiss,
    /// Who judges the preconditions of a request of which nothing is stored.
    pub precondition_miss: PreconditionMiss,
    /// Request fields that some origin frameworks let replace method or target, though no cache key knows them.
    pub override_fields: OverrideFields,
    /// Responses whose body only the end of the connection ends.
    pub close_delimited: CloseDelimited,
    /// What `Accept-Encoding` is reduced to.
    pub codings: Codings,
    /// Which tags of responses count; those of the site, in all its rules.
    pub tags: TagRules,
    /// How responses are compressed on their way out; absent: they are not.
    pub compression: Option<Arc<Compression>>,
    /// Limits of its requests and their responses.
    pub protection: RuleProtection,
    /// Whether, and how, responses are stored and reused.
    pub caching: caching::Rules,
}

/// What is fetched for a range of which nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeMiss {
    /// The range, which is stored as a part.
    Part,
    /// The whole, of which the range is cut.
    Whole,
}

/// Who judges `If-None-Match` and `If-Modified-Since` of a request of which nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionMiss {
    /// This cache, by the complete response that it fetches: so it is stored, and one forward serves all who wait.
    Whole,
    /// The origin server: each such request is forwarded as it is.
    //= RFC 9111 section 4.3.2: preconditions where nothing is stored
    Forward,
}

impl PreconditionMiss {
    /// What a profile says.
    pub fn for_profile(profile: Profile) -> Self {
        match profile {
            Profile::Safe => Self::Whole,
            Profile::Rfc9111 => Self::Forward,
        }
    }
}

/// What becomes of `X-HTTP-Method-Override`, `X-Original-URL` and their like on the way to an answer that may be
/// stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideFields {
    /// Left out: stored under the key of another request, the answer to them would poison the cache.
    Drop,
    /// Forwarded, and part of the cache key.
    Key,
    /// Forwarded, as RFC 9110 section 5.1 has it for fields that a proxy does not know.
    Forward,
}

impl OverrideFields {
    /// What a profile says.
    pub fn for_profile(profile: Profile) -> Self {
        match profile {
            Profile::Safe => Self::Drop,
            Profile::Rfc9111 => Self::Key,
        }
    }
}

/// What becomes of a response whose body only the end of the connection ends, and of which nobody can tell whether it is
/// whole: an origin server that dies ends it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseDelimited {
    /// It goes to the client that asked, and is not stored.
    Pass,
    /// It counts as complete, as RFC 9112 section 8 has it.
    Store,
}

impl CloseDelimited {
    /// What a profile says.
    pub fn for_profile(profile: Profile) -> Self {
        match profile {
            Profile::Safe => Self::Pass,
            Profile::Rfc9111 => Self::Store,
        }
    }
}

impl CacheRule {
    /// What applies where no rule of the site does: the choices of the profile, bodies of any size that the memory tier
    /// takes.
    pub fn built_in(profile: Profile) -> Self {
        Self {
            name: "built-in".to_owned(),
            path: None,
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
            compression: None,
            protection: RuleProtection::default(),
            caching: caching::Rules::for_profile(profile),
        }
    }

    /// How the fields of a request select among stored responses.
    pub(crate) fn selecting<'a>(&'a self, request: &'a [FieldLine<'a>]) -> Selecting<'a> {
        Selecting::new(request, self.caching.negotiation).reduced_to(&self.codings)
    }
}

/// What a profile reduces `Accept-Encoding` to: the codings that origins have, or nothing.
pub fn codings_of(profile: Profile) -> Codings {
    match profile {
        Profile::Safe => Codings::new(["zstd", "br", "gzip"]),
        Profile::Rfc9111 => Codings::default(),
    }
}

const QUERY_CONTENT_BYTES_MAX: u64 = 64 << 10;

/// Matches path and query, as received after the site's host and prefix chose it.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// The path, exactly; the query isn't looked at.
    Exact(String),
    /// The path starts so; the query isn't looked at.
    Prefix(String),
    /// Glob over the path: `*` within a segment, `**` across, `?`, `[a-z]`, `{a,b}`.
    Glob(globset::GlobMatcher),
    /// Regular expression over path and query, unanchored.
    Regex(Regex),
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(own), Self::Exact(other)) | (Self::Prefix(own), Self::Prefix(other)) => own == other,
            (Self::Glob(own), Self::Glob(other)) => own.glob() == other.glob(),
            (Self::Regex(own), Self::Regex(other)) => own.as_str() == other.as_str(),
            _ => false,
        }
    }
}

impl PathPattern {
    /// Whether a request for `path_and_query` matches.
    pub fn matches(&self, path_and_query: &str) -> bool {
        let path = path_and_query.split_once('?').map_or(path_and_query, |(path, _)| path);
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
            Self::Glob(glob) => glob.is_match(path),
            Self::Regex(regex) => regex.is_match(path_and_query),
        }
    }
}

/// Methods that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodSet {
    /// Every method.
    Any,
    /// These, case-sensitive (RFC 9110 section 9.1).
    Only(BTreeSet<String>),
}

impl MethodSet {
    /// Whether `method` is in the set.
    pub fn contains(&self, method: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(methods) => methods.contains(method),
        }
    }
}
