//! The operator's choices for matching requests.

use crate::{Negotiation, Timestamp, credentials, unkeyed};

/// The operator's choices for storing and reuse. The defaults are those of [`Profile::Safe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether responses are stored and reused at all.
    pub enabled: bool,
    /// Lifetimes, counted from the arrival of a response, that replace its own lifetime. The response's prohibitions
    /// (`no-store`, `private`, `no-cache`) still apply.
    pub override_ttl: TtlTable,
    /// Lifetimes, counted from arrival, for responses that have none of their own.
    pub default_ttl: TtlTable,
    /// Heuristic lifetime from `Last-Modified`, if no other is known.
    pub heuristic: Option<Heuristic>,
    /// Targeted fields (RFC 9213) in order of preference: the first that the response has, valid and not empty,
    /// replaces `Cache-Control` and `Expires`.
    pub targeted_fields: Box<[Box<str>]>,
    /// A response field that is required for storing: the application opts in, response by response.
    pub store_only_with: Option<Box<str>>,
    /// The error responses that are stored.
    pub errors: StoredErrors,
    /// The responses to requests with credentials that are stored ([`crate::sharing`]).
    pub credentialed: StoredCredentialed,
    /// Request fields that identify the user, in addition to `Authorization`, `Cookie` and common fields for API keys.
    pub credential_fields: Box<[Box<str>]>,
    /// Time since which `credentialed` and `credential_fields` are in force. A response stored before this time may
    /// belong to one user, unless the origin or the operator allows sharing it.
    pub judged_since: Timestamp,
    /// Whether responses with `Set-Cookie` are stored, including the field.
    pub store_set_cookie: bool,
    /// Whether to store responses that have no validator and were never fresh (`max-age=0`). An expired response
    /// answers requests with `max-stale`, and, while the origin server can't be reached, other requests.
    pub store_expired: bool,
    /// Treatment of a response that doesn't match the extension of its URL ([`crate::file_type`]).
    pub type_mismatch: TypeMismatch,
    /// Whether a response to POST answers later GET requests, if its fields allow that
    /// ([`crate::post::may_store_for_get`]).
    pub store_post: bool,
    /// Whether `Cache-Control` and `Pragma` of requests are respected.
    pub honour_request_directives: bool,
    /// How `Accept-Encoding` and `Accept-Language` select among stored responses.
    pub negotiation: Negotiation,
    /// The groups of stored responses that an unsafe request invalidates (RFC 9875).
    pub groups_invalidated: GroupsInvalidated,
    /// The last share of a lifetime, in percent, in which a fresh response is validated in the background; 0 disables
    /// it.
    pub refresh_ahead_percent: u8,
    /// Limits of stale responses during a validation.
    pub stale_while_revalidate: StaleLimit,
    /// Limits of stale responses after an error of the origin server (RFC 5861).
    pub stale_if_error: StaleLimit,
    /// Maximum staleness of a response, in milliseconds, if the origin server gives no response (RFC 9111 section
    /// 4.2.4), unless `stale_if_error` grants more.
    pub stale_if_unreachable_ms: u64,
    /// Upper limit of a request's `max-stale`, in milliseconds after expiry.
    pub max_stale_max_ms: u64,
}

/// A set of defaults for the operator's choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Forbids uses that RFC 9111 permits but that often leak or mix up responses.
    #[default]
    Safe,
    /// Permits every use that RFC 9111 permits a shared cache.
    Rfc9111,
}

impl Profile {
    /// Returns the profile with this name in configurations.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "safe" => Some(Self::Safe),
            "rfc9111" => Some(Self::Rfc9111),
            _ => None,
        }
    }
}

impl Rules {
    /// Returns the choices of a profile.
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

    /// Returns whether a request field of this name identifies the user, even to an origin that treats `_` as `-`.
    pub fn is_credential(&self, name: &str) -> bool {
        credentials::is_credential(&unkeyed::plain_name(name))
            || self.credential_fields.iter().any(|field| unkeyed::are_read_alike(field, name))
    }

    /// Returns how many milliseconds after its expiry a response with these windows is still useful, either stale or
    /// for a validation.
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

/// The error responses that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredErrors {
    /// Errors about the resource. Other errors, such as 400 or 412, may be caused by parts of one request outside the
    /// cache key: if the cache stored them, one client could break a page for all. An error of this kind is stored
    /// only if a [`TtlTable`] names its status.
    OfResource,
    /// All error responses with an explicit lifetime.
    All,
}

/// Treatment of a page at the URL of a file, such as `text/html` for `/account/x.css`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeMismatch {
    /// The page is sent to the client that requested it, and not stored.
    Pass,
    /// The page is stored if its fields permit that.
    Store,
}

/// The responses to requests with credentials that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredCredentialed {
    /// Responses that may be shared, because they have `public` or a lifetime. A response without either may belong to
    /// one user, even if it lacks `private`.
    Explicit,
    /// All responses that no directive forbids storing.
    All,
}

/// The groups of stored responses that an unsafe request invalidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupsInvalidated {
    /// Groups that `Cache-Group-Invalidation` names. With [`Self::Shared`], any client that may send a POST can
    /// invalidate all responses that share a group with its target.
    Named,
    /// Also the groups of the stored responses that the request itself invalidates.
    Shared,
}

/// The time after its expiry for which a response may be used, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleLimit {
    /// The limit if neither the response nor the request has one.
    pub default_ms: u64,
    /// The maximum that a response or request can obtain.
    pub max_ms: u64,
}

impl StaleLimit {
    /// Returns the permitted time for a requested time, in milliseconds.
    pub(crate) fn grant_ms(self, asked_ms: Option<u64>) -> u64 {
        asked_ms.unwrap_or(self.default_ms).min(self.max_ms)
    }
}

impl Default for StaleLimit {
    fn default() -> Self {
        Self { default_ms: 0, max_ms: DAY_MS }
    }
}

/// A heuristic lifetime: a share of the time since the last modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// The share in percent; 10 is typical.
    pub percent: u8,
    /// Upper limit in milliseconds.
    pub max_ms: u64,
    /// The requests whose responses get this lifetime.
    pub requests: HeuristicFor,
}

/// Requests whose responses get a heuristic lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeuristicFor {
    /// Requests without credentials: personal pages without `Cache-Control` are a common leak.
    Anonymous,
    /// All requests.
    All,
}

impl Default for Heuristic {
    //= RFC 9111 section 4.2.2: a tenth of the time since Last-Modified
    fn default() -> Self {
        Self { percent: 10, max_ms: HOUR_MS, requests: HeuristicFor::Anonymous }
    }
}

/// The status codes that an entry of a [`TtlTable`] applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusMatch {
    /// This code.
    Exact(u16),
    /// All status codes with this first digit.
    Class(u8),
    /// All codes.
    Any,
}

impl StatusMatch {
    /// Returns whether the entry applies to a status.
    pub fn matches(self, status: u16) -> bool {
        match self {
            Self::Exact(code) => status == code,
            Self::Class(digit) => status / 100 == u16::from(digit),
            Self::Any => true,
        }
    }
}

/// Lifetimes by status code; the most specific entry applies, and among equal ones the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TtlTable {
    entries: Vec<(StatusMatch, u64)>,
}

impl TtlTable {
    /// Creates a table from pairs of a status match and a lifetime in milliseconds.
    pub fn new(entries: impl IntoIterator<Item = (StatusMatch, u64)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by_key(|(status, _)| match status {
            StatusMatch::Exact(_) => 0,
            StatusMatch::Class(_) => 1,
            StatusMatch::Any => 2,
        });
        Self { entries }
    }

    /// Returns whether an entry names exactly this status.
    pub fn names(&self, status: u16) -> bool {
        self.entries.iter().any(|(matcher, _)| *matcher == StatusMatch::Exact(status))
    }

    /// Returns the lifetime for `status` in milliseconds, if the table has one.
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
