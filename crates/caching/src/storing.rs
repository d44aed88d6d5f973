//! Decides whether a response may be stored, and selects its stored fields (RFC 9111 section 3).

use crate::codes::reason_codes;
use crate::facts::MethodClass;
use crate::status::{self, StatusClass};
use crate::vary::{VarySummary, VaryUnusable};
use crate::{
    Control, FieldLine, HopByHop, LifetimeSource, Qualified, RequestFacts, ResponseDirectives, ResponseFacts,
    Rules, StoredErrors, StoredFacts, Timestamp, opened,
};

/// The data to store with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storable {
    /// The facts for its reuse.
    pub facts: StoredFacts,
    /// Whether `Vary` nominates fields, so that [`crate::NominatedFields`] are needed as well.
    pub varies: bool,
}

reason_codes! {
    /// The reason why a response is not stored.
    pub enum NotStored {
        RuleOff = "rule-off", "", "A rule has `cache = false`, or origins may read the path in several ways (percent-encoding, `//`, `/./`, parameters of segments) that have different rules.";
        Method = "method", "RFC 9111 section 3", "Responses to this method aren't stored.";
        RequestContent = "request-content", "RFC 9111 section 4", "The request has content, which takes no part in the cache key.";
        RequestNoStore = "request-no-store", "RFC 9111 section 5.2.1.5", "The request says `no-store`.";
        Status = "status", "RFC 9111 section 3", "Responses with this status are never stored, or only with an explicit lifetime.";
        RequestStatus = "status-of-request", "", "The status may be caused by parts of one client's request outside the cache key (400, 403, 412, ...); `errors_stored` is not `all`, and no `ttl_override` or `ttl_default` names this status.";
        PartialContent = "partial-content", "RFC 9111 section 3.3", "206: a part only.";
        NotModified = "not-modified", "RFC 9111 section 3", "304 without a stored response to freshen.";
        MustUnderstand = "must-understand", "RFC 9111 section 5.2.2.3", "`must-understand`, and the status isn't understood.";
        ResponseNoStore = "no-store", "RFC 9111 section 5.2.2.5", "The response says `no-store`.";
        Private = "private", "RFC 9111 section 5.2.2.7", "The response says `private`.";
        Authorization = "authorization", "RFC 9111 section 3.5", "The request had `Authorization`, and the response doesn't allow sharing.";
        Credentials = "credentials", "", "The request had credentials (`Cookie`, `Authorization` and the like), and nothing allows sharing the response: no `public`, no lifetime above zero.";
        NotSignalled = "not-signalled", "", "The response lacks the field that `store_only_with` of the rule names, or has `0` in it.";
        SetCookie = "set-cookie", "RFC 9111 section 7.3", "The response sets a cookie, and no rule has `store_set_cookie = true`.";
        TypeMismatch = "type-mismatch", "", "The URL has a file extension, and `Content-Type` is of another type, for example a page for a style sheet (`type_mismatch`).";
        VaryAny = "vary-star", "RFC 9111 section 4.1", "`Vary: *`.";
        VaryUnusable = "vary-unusable", "RFC 9111 section 4.1", "`Vary` with invalid or too many names.";
        HeadTooLarge = "head-too-large", "RFC 9111 section 3.2", "The header section is too large to be stored. Either fields from a 304 or a HEAD increased it above the limit for responses, or it doesn't fit into a record of the shared store. A record holds at most 64 KiB, including a body of up to 4 KiB; without `Content-Length`, 4 KiB are reserved for the body.";
        NoFreshness = "no-freshness", "RFC 9111 section 3", "The response is never fresh, can't be used stale and can't be validated: the origin sends neither a lifetime nor a validator. Send `Cache-Control: max-age=60`, or set `ttl_default` in a rule.";
    }
}

impl NotStored {
    /// Returns whether the request is the reason, so that the same response to another request might be stored.
    pub fn is_of_request(self) -> bool {
        matches!(self, Self::Method | Self::RequestContent | Self::RequestNoStore | Self::RequestStatus)
            || self.is_of_credentials()
    }

    /// Returns whether the credentials of the request are the reason, so that the response to a request without
    /// credentials might be stored.
    pub fn is_of_credentials(self) -> bool {
        matches!(self, Self::Authorization | Self::Credentials)
    }
}

/// Checks whether a response may be stored, and returns the data to store with it.
///
/// # Errors
///
/// Returns the first reason against storing the response.
//= RFC 9111 section 3: when a response may be stored
pub fn may_store(
    request: &RequestFacts,
    response: &ResponseFacts,
    rules: &Rules,
    now: Timestamp,
) -> Result<Storable, NotStored> {
    request_permits(request, rules)?;
    status_permits(response, rules)?;
    directives_permit(request, response.status, &response.directives)?;
    vary_permits(response)?;
    if response.lacks_signal {
        return Err(NotStored::NotSignalled);
    }
    if response.has_set_cookie && !rules.store_set_cookie {
        return Err(NotStored::SetCookie);
    }
    if opened::is_personal(request, rules) && !opened::may_share(request, response, rules) {
        return Err(NotStored::Credentials);
    }
    let facts = StoredFacts::new(request, response, rules);
    if !is_of_use(&facts, rules, now) {
        return Err(NotStored::NoFreshness);
    }
    Ok(Storable { facts, varies: response.vary == VarySummary::Nominates })
}

/// Checks a response by its status and directives alone, without parsing its other fields. This check finds the reason
/// for most responses that aren't stored.
///
/// # Errors
///
/// Returns the reason that [`may_store`] would return. If this check finds no reason, only [`may_store`] can decide.
pub fn may_store_by_directives(
    request: &RequestFacts,
    status: u16,
    response: &[FieldLine<'_>],
    rules: &Rules,
) -> Result<(), NotStored> {
    request_permits(request, rules)?;
    match status::classify(status) {
        StatusClass::Heuristic => {
            cause_permits(status, rules)?;
            directives_permit(request, status, &Control::of(response, rules).directives())
        }
        // Reasons in other fields take precedence.
        _ => Ok(()),
    }
}

fn request_permits(request: &RequestFacts, rules: &Rules) -> Result<(), NotStored> {
    if !rules.enabled {
        return Err(NotStored::RuleOff);
    }
    //= RFC 9111 section 3: the method is understood
    //= RFC 10008 section 2.7: responses to QUERY are cacheable
    if !matches!(request.method, MethodClass::Get | MethodClass::Query) {
        return Err(NotStored::Method);
    }
    //= RFC 9110 section 9.3.1: content of a GET means nothing
    if request.has_content && request.method == MethodClass::Get {
        return Err(NotStored::RequestContent);
    }
    //= RFC 9111 section 5.2.1.5: no-store of the request
    if request.directives.no_store && rules.honour_request_directives {
        return Err(NotStored::RequestNoStore);
    }
    Ok(())
}

fn status_permits(response: &ResponseFacts, rules: &Rules) -> Result<(), NotStored> {
    match status::classify(response.status) {
        StatusClass::Partial => Err(NotStored::PartialContent),
        StatusClass::NotModified => Err(NotStored::NotModified),
        StatusClass::Never => Err(NotStored::Status),
        StatusClass::Heuristic => cause_permits(response.status, rules),
        StatusClass::Explicit | StatusClass::Unknown => {
            cause_permits(response.status, rules)?;
            has_given_lifetime(response, rules).then_some(()).ok_or(NotStored::Status)
        }
    }
}

/// Checks a status that one client's unusual fields may have caused: it is stored only if the operator allows that,
/// either for all codes or for this code.
fn cause_permits(status: u16, rules: &Rules) -> Result<(), NotStored> {
    let permits = rules.errors == StoredErrors::All
        || !status::is_of_one_request(status)
        || rules.override_ttl.names(status)
        || rules.default_ttl.names(status);
    permits.then_some(()).ok_or(NotStored::RequestStatus)
}

/// Returns whether the origin server or the operator gives a lifetime for this status code, or the response has
/// `public`.
//= RFC 9111 section 3: something allows storing
fn has_given_lifetime(response: &ResponseFacts, rules: &Rules) -> bool {
    response.has_explicit_lifetime()
        || response.directives.public
        || rules.override_ttl.ttl_ms(response.status).is_some()
        || rules.default_ttl.ttl_ms(response.status).is_some()
}

fn directives_permit(
    request: &RequestFacts,
    status: u16,
    directives: &ResponseDirectives,
) -> Result<(), NotStored> {
    //= RFC 9111 section 5.2.2.3: must-understand overrides no-store for an understood status code
    //= RFC 9111 section 3: extensions override
    //= RFC 9111 section 5.2.2.3: must-understand
    let understood = status::is_understood(status);
    if directives.must_understand && !understood {
        return Err(NotStored::MustUnderstand);
    }
    //= RFC 9111 section 3: no-store of the response
    //= RFC 9111 section 5.2.2.5: no-store
    if directives.no_store && !directives.must_understand {
        return Err(NotStored::ResponseNoStore);
    }
    //= RFC 9111 section 3: private
    //= RFC 9111 section 5.2.2.7: private
    if directives.private == Qualified::All {
        return Err(NotStored::Private);
    }
    //= RFC 9111 section 3: Authorization
    if !opened::is_open(request, directives) {
        return Err(NotStored::Authorization);
    }
    Ok(())
}

fn vary_permits(response: &ResponseFacts) -> Result<(), NotStored> {
    match response.vary {
        VarySummary::NothingNominated | VarySummary::Nominates => Ok(()),
        VarySummary::Unusable(VaryUnusable::Any) => Err(NotStored::VaryAny),
        VarySummary::Unusable(_) => Err(NotStored::VaryUnusable),
    }
}

/// Returns whether a later request could get this response, with or without validation.
//= RFC 9111 section 3: neither validator nor explicit expiration time
fn is_of_use(facts: &StoredFacts, rules: &Rules, now: Timestamp) -> bool {
    if facts.has_validator() {
        return true;
    }
    let stale_window_ms = rules
        .stale_while_revalidate
        .grant_ms(facts.stale_while_revalidate_ms())
        .max(rules.stale_if_error.grant_ms(facts.stale_if_error_ms()));
    // A response that arrived from another cache after its lifetime may answer a request with `max-stale`. Responses
    // that were never fresh anywhere (`max-age=0`) would fill the store for few requests.
    let had_lifetime = facts.freshness_lifetime_ms() > 0
        || (rules.store_expired && facts.lifetime_source != LifetimeSource::Nothing);
    let stale_window_ms =
        if had_lifetime { stale_window_ms.max(rules.max_stale_max_ms) } else { stale_window_ms };
    let usable_stale = !facts.must_revalidate && facts.staleness_ms(now) < stale_window_ms;
    !facts.no_cache && (facts.is_fresh(now) || usable_stale)
}

/// Selects the stored fields of a response.
#[derive(Debug)]
pub struct StorageFilter<'a> {
    response: &'a [FieldLine<'a>],
    control: Control<'a>,
    hop_by_hop: HopByHop<'a>,
    set_cookie: CookieFields,
    /// Whether a directive excludes fields. In most responses none does, so no names have to be compared.
    qualifies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CookieFields {
    Kept,
    Dropped,
}

impl<'a> StorageFilter<'a> {
    /// Reads the directives of this response, as received.
    pub fn of(response: &'a [FieldLine<'a>], rules: &Rules) -> Self {
        let set_cookie = match rules.store_set_cookie {
            true => CookieFields::Kept,
            false => CookieFields::Dropped,
        };
        let control = Control::of(response, rules);
        let qualifies = control.qualifies();
        Self { response, control, hop_by_hop: HopByHop::of(response), set_cookie, qualifies }
    }

    /// Returns whether a field of this name is stored. `Age` isn't stored, because the cache computes it for each
    /// reuse. `X-Cache` and `Trailer` aren't stored either, because they describe a single message.
    //= RFC 9111 section 3.1: fields of a proxy are not stored
    //= RFC 9111 section 3.1: all fields are stored
    //= RFC 9111 section 3.1: hop-by-hop fields may be removed before storing
    //= RFC 9111 section 3.1: qualified no-cache and private keep fields out
    //= RFC 9111 section 5.2.2.7: the rest may be stored
    pub fn keeps(&self, name: &str) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        !(self.hop_by_hop.contains(name)
            || is("age")
            || is("trailer")
            || is("x-cache")
            || (is("set-cookie") && self.set_cookie == CookieFields::Dropped)
            || (self.qualifies && self.control.is_qualified(name)))
    }

    /// Returns the stored lines, in order.
    pub fn kept(self) -> impl Iterator<Item = FieldLine<'a>> {
        self.response.iter().copied().filter(move |(name, _)| self.keeps(name))
    }
}
