//! What the operator decided for the requests that matched.

use crate::{Negotiation, Timestamp, credentials, unkeyed};

/// The operator's decisions that bear on storing and reuse. The defaults are those of [`Profile::Safe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether anything is stored or reused at all.
    pub enabled: bool,
    /// Lifetimes from the arrival that count in place of whatever the response says. What the response forbids
    /// (`no-store`, `private`, `no-cache`) stays forbidden.
    pub override_ttl: TtlTable,
    /// Lifetimes from the arrival of responses that say nothing about theirs.
    pub default_ttl: TtlTable,
    /// Lifetime guessed from `Last-Modified` where nothing else is known.
    pub heuristic: Option<Heuristic>,
    /// Targeted fields (RFC 9213) in order of preference: the first that the response has, valid and not empty, counts
    /// in place of `Cache-Control` and `Expires`.
    pub targeted_fields: Box<[Box<str>]>,
    /// A response field without which nothing is stored: the application opts in, response by response.
    pub store_only_with: Option<Box<str>>,
    /// Which error responses are stored.
    pub errors: StoredErrors,
    /// Which responses to requests with credentials are stored ([`crate::sharing`]).
    pub credentialed: StoredCredentialed,
    /// Request fields that tell whose request it is, beside those that do by convention.
    pub credential_fields: Box<[Box<str>]>,
    /// Since when it is these two by which responses are judged. Of what was stored before nobody knows whose it is, unless
    /// somebody said that it may be shared.
    pub judged_since: Timestamp,
    /// Whether responses with `Set-Cookie` are stored, the field included.
    pub store_set_cookie: bool,
    /// Whether a response without a validator is stored that was never fresh, as `max-age=0` says: a request with
    /// `max-stale` gets it, and others while the origin server can't be reached.
    pub store_expired: bool,
    /// What becomes of a response that is not what the extension of its URL promises ([`crate::file_type`]).
    pub type_mismatch: TypeMismatch,
    /// Whether a response to POST that says so answers later GETs ([`crate::post::may_store_for_get`]).
    pub store_post: bool,
    /// Whether `Cache-Control` and `Pragma` of requests count.
    pub honour_request_directives: bool,
    /// How `Accept-Encoding` and `Accept-Language` select among stored responses.
    pub negotiation: Negotiation,
    /// Which groups of stored responses an unsafe request invalidates (RFC 9875).
    pub groups_invalidated: GroupsInvalidated,
    /// The last share of a lifetime, in percent, in which a fresh response is validated while it is used; 0: none.
    pub refresh_ahead_percent: u8,
    /// Stale responses while a validation runs.
    pub stale_while_revalidate: StaleLimit,
    /// Stale responses when the origin server answers with an error (RFC 5861).
    pub stale_if_error: StaleLimit,
    /// Stale responses when no answer comes from the origin server (RFC 9111 section 4.2.4): how long past their
    /// expiry, in milliseconds, where `stale_if_error` does not grant more.
    pub stale_if_unreachable_ms: u64,
    /// The longest that a request's `max-stale` is granted, in milliseconds past expiry.
    pub max_stale_max_ms: u64,
}

/// What the operator's decisions are where they are not written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Refuses what RFC 9111 leaves open and what often goes wrong.
    #[default]
    Safe,
    /// Does all that RFC 9111 permits a shared cache.
    Rfc9111,
}

impl Profile {
    /// The profile of a name as configurations write it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "safe" => Some(Self::Safe),
            "rfc9111" => Some(Self::Rfc9111),
            _ => None,
        }
    }
}

impl Rules {
    /// The decisions of a profile.
    pub fn for_profile(profile: Profile) -> Self {
        match profile {
            Profile::Safe => Self::safe(),
            Profile::Rfc9111 => Self {
                heuristic: Some(Heuristic {
                    max_ms: DAY_MS,
                    requests: HeuristicFor::All,
                    ..Heuristic::default()
                }),
                credentialed: StoredCredentialed::All,
                errors: StoredErrors::All,
                //= RFC 9111 section 7.3: Set-Cookie does not inhibit caching
                store_set_cookie: true,
                store_expired: true,
                type_mismatch: TypeMismatch::Store,
                store_post: true,
                negotiation: Negotiation::Selecting,
                groups_invalidated: GroupsInvalidated::Shared,
                stale_while_revalidate: StaleLimit { max_ms: u64::MAX, ..StaleLimit::default() },
                stale_if_error: StaleLimit { max_ms: u64::MAX, ..StaleLimit::default() },
                max_stale_max_ms: u64::MAX,
                ..Self::safe()
            },
        }
    }

    /// Whether a request field of this name tells whose request it is, to an origin that reads `_` as `-` too.
    pub fn is_credential(&self, name: &str) -> bool {
        credentials::is_credential(&unkeyed::plain_name(name))
            || self.credential_fields.iter().any(|field| unkeyed::are_read_alike(field, name))
    }

    /// How long past its freshness a response may be of use that names these windows, in milliseconds: stale, or to
    /// be validated.
    pub(crate) fn useful_when_stale_ms(
        &self,
        stale_while_revalidate_ms: Option<u64>,
        stale_if_error_ms: Option<u64>,
    ) -> u64 {
        let while_revalidate_ms = self.stale_while_revalidate.grant_ms(stale_while_revalidate_ms);
        let if_error_ms = self.stale_if_error.grant_ms(stale_if_error_ms);
        let if_unreachable_ms =
            if stale_if_error_ms.is_none() { self.stale_if_unreachable_ms } else { if_error_ms };
        while_revalidate_ms.max(if_error_ms).max(if_unreachable_ms).max(DAY_MS)
    }

    fn safe() -> Self {
        Self {
            enabled: true,
            override_ttl: TtlTable::default(),
            default_ttl: TtlTable::default(),
            heuristic: Some(Heuristic::default()),
            targeted_fields: Box::new(["CDN-Cache-Control".into()]),
            store_only_with: None,
            errors: StoredErrors::OfResource,
            credentialed: StoredCredentialed::Explicit,
            credential_fields: Box::default(),
            judged_since: Timestamp::from_ms(i64::MIN),
            store_set_cookie: false,
            store_expired: false,
            type_mismatch: TypeMismatch::Pass,
            store_post: false,
            groups_invalidated: GroupsInvalidated::Named,
            honour_request_directives: true,
            negotiation: Negotiation::Normalised,
            refresh_ahead_percent: 0,
            stale_while_revalidate: StaleLimit::default(),
            stale_if_error: StaleLimit::default(),
            stale_if_unreachable_ms: DAY_MS,
            max_stale_max_ms: DAY_MS,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::for_profile(Profile::default())
    }
}

/// Which error responses are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredErrors {
    /// Those that speak about the resource. Others, such as 400 or 412, may be caused by what one request had beside the
    /// cache key: stored, one client could break a page for all. They are stored where a [`TtlTable`] names the status.
    OfResource,
    /// All with an explicit lifetime.
    All,
}

/// What becomes of a page under the URL of a file: of `text/html` for `/account/x.css`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeMismatch {
    /// It goes to the client that asked, and is not stored.
    Pass,
    /// It is stored as its fields say.
    Store,
}

/// Which responses to requests with credentials are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredCredentialed {
    /// Those that somebody said may be shared, by `public` or a lifetime. Others may be one user's, whose origin server
    /// forgot to say so.
    Explicit,
    /// All that the response doesn't forbid.
    All,
}

/// Which groups of stored responses an unsafe request invalidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupsInvalidated {
    /// Those that `Cache-Group-Invalidation` names. More would let anybody who may send a POST empty the cache of all
    /// that shares a group with its target.
    Named,
    /// Also those that the stored responses belong to which the request invalidates itself.
    Shared,
}

/// How long past its expiry a response may be used, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleLimit {
    /// Where neither response nor request says.
    pub default_ms: u64,
    /// At most, whatever they say.
    pub max_ms: u64,
}

impl StaleLimit {
    /// What is granted when `asked_ms` is asked for.
    pub(crate) fn grant_ms(self, asked_ms: Option<u64>) -> u64 {
        asked_ms.unwrap_or(self.default_ms).min(self.max_ms)
    }
}

impl Default for StaleLimit {
    fn default() -> Self {
        Self { default_ms: 0, max_ms: DAY_MS }
    }
}

/// A guessed lifetime: a share of the time since the last modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// The share in percent; 10 is usual.
    pub percent: u8,
    /// At most, in milliseconds.
    pub max_ms: u64,
    /// For answers to which requests.
    pub requests: HeuristicFor,
}

/// Requests to whose responses a lifetime may be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeuristicFor {
    /// Those without credentials: a page made for one person that forgets to say so is the usual leak.
    Anonymous,
    /// All.
    All,
}

impl Default for Heuristic {
    //= RFC 9111 section 4.2.2: a tenth of the time since Last-Modified
    fn default() -> Self {
        Self { percent: 10, max_ms: HOUR_MS, requests: HeuristicFor::Anonymous }
    }
}

/// Which status codes an entry of a [`TtlTable`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusMatch {
    /// This code.
    Exact(u16),
    /// All codes with this first digit.
    Class(u8),
    /// All codes.
    Any,
}

impl StatusMatch {
    /// Whether a status is one of these.
    pub fn matches(self, status: u16) -> bool {
        match self {
            Self::Exact(code) => status == code,
            Self::Class(digit) => status / 100 == u16::from(digit),
            Self::Any => true,
        }
    }
}

/// Lifetimes by status code; the most specific entry counts, and of equal ones the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TtlTable {
    entries: Vec<(StatusMatch, u64)>,
}

impl TtlTable {
    /// From pairs of status match and lifetime in milliseconds.
    pub fn new(entries: impl IntoIterator<Item = (StatusMatch, u64)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by_key(|(status, _)| match status {
            StatusMatch::Exact(_) => 0,
            StatusMatch::Class(_) => 1,
            StatusMatch::Any => 2,
        });
        Self { entries }
    }

    /// Whether an entry is for this very status.
    pub fn names(&self, status: u16) -> bool {
        self.entries.iter().any(|(matcher, _)| *matcher == StatusMatch::Exact(status))
    }

    /// The lifetime for `status` in milliseconds, if the table has one.
    pub fn ttl_ms(&self, status: u16) -> Option<u64> {
        self.entries.iter().find(|(matcher, _)| matcher.matches(status)).map(|(_, ttl_ms)| *ttl_ms)
    }
}

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_entry_counts() {
        let table = TtlTable::new([
            (StatusMatch::Any, 1),
            (StatusMatch::Class(4), 2),
            (StatusMatch::Exact(404), 3),
            (StatusMatch::Exact(404), 4),
        ]);
        assert_eq!([200, 403, 404].map(|status| table.ttl_ms(status)), [Some(1), Some(2), Some(3)]);
        assert_eq!(TtlTable::default().ttl_ms(200), None);
    }

    #[track_caller]
    fn check_useful(rules: &Rules, windows_s: [Option<u64>; 2], expected_s: u64) {
        let [while_revalidate_ms, if_error_ms] = windows_s.map(|window| window.map(|seconds| seconds * 1000));
        let useful_ms = rules.useful_when_stale_ms(while_revalidate_ms, if_error_ms);
        assert_eq!(useful_ms, expected_s * 1000, "{windows_s:?}");
    }

    #[test]
    fn a_stale_response_is_kept_while_it_may_be_used() {
        let (day, year) = (86_400, 31_536_000);
        let (safe, rfc9111) = (Rules::default(), Rules::for_profile(Profile::Rfc9111));
        check_useful(&safe, [None, None], day);
        check_useful(&safe, [Some(year), Some(year)], day);
        check_useful(&rfc9111, [None, None], day);
        check_useful(&rfc9111, [Some(year), Some(1)], year);
        check_useful(&rfc9111, [Some(1), Some(year)], year);
        let week_unreachable = Rules { stale_if_unreachable_ms: 7 * DAY_MS, ..Rules::default() };
        check_useful(&week_unreachable, [None, None], 7 * day);
        check_useful(&week_unreachable, [None, Some(60)], day);
    }
}
