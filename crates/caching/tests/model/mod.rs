//! A shared cache in memory that combines the functions of `caching` and handles one request at a time. The model has
//! no limits, no collapsed requests and no connections. Apart from that, it handles a request like any cache built
//! from these functions.

mod answer;
mod head;
pub(crate) mod rules;

use std::collections::HashMap;

use caching::groups::{self, Groups};
use caching::invalidation::SameOrigin;
use caching::post::may_store_for_get;
use caching::validation::{self, Answer, First, Known};
use caching::{
    CacheKey, Failure, FieldLine, FwdReason, GroupsInvalidated, HopByHop, KeyParts, KeyRules, Matching,
    MethodClass, Miss, Negotiation, NominatedFields, NominatedValues, NotReused, Outcome, RequestFacts,
    ResponseFacts, Reuse, Rules, Selecting, Storable, StorageFilter, StoredFacts, StoredValidators,
    Timestamp, Validators, conditional, date, fields, invalidation, may_serve_stale, may_store, on_miss,
    query, reuse, reuse_in_doubt, sharing,
};

/// Fields and content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) message: Message,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) message: Message,
}

/// The origin server. `ask` returns `None` if the origin sends no response.
pub(crate) trait Origin {
    fn ask(&mut self, request: &Request) -> Option<Response>;
}

/// The cache.
pub(crate) struct Cache {
    rules: Rules,
    stored: HashMap<CacheKey, Vec<Stored>>,
}

/// A stored response.
#[derive(Clone)]
struct Stored {
    facts: StoredFacts,
    validators: StoredValidators,
    nominated: NominatedFields,
    nominated_values: NominatedValues,
    target: String,
    groups: Vec<String>,
    standing: Standing,
    reason: String,
    message: Message,
}

/// Whether a group of a stored response was invalidated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Valid,
    Invalidated,
}

/// A request in progress.
struct Exchange<'a> {
    request: &'a Request,
    lines: &'a [FieldLine<'a>],
    facts: RequestFacts,
    key: CacheKey,
    negotiation: Negotiation,
    now: Timestamp,
}

impl Message {
    fn lines(&self) -> Vec<FieldLine<'_>> {
        self.fields.iter().map(|(name, value)| (name.as_str(), &value[..])).collect()
    }
}

impl Stored {
    fn validators(&self) -> Validators<'_> {
        let fields = &self.message.fields;
        let first = |name: &str| fields.iter().find(|(line, _)| line.eq_ignore_ascii_case(name));
        self.validators.view(|name| first(name).map(|(_, value)| &value[..]))
    }

    fn known(&self, exchange: &Exchange<'_>, rules: &Rules) -> Known<'_> {
        let is_encoded = fields::contains(&self.message.lines(), "content-encoding");
        let of_codings = is_encoded || self.nominated.has("accept-encoding");
        let is_for_others = !sharing::may_name(&exchange.facts, &self.facts, &self.nominated, rules);
        Known { validators: self.validators(), is_only_for_selected: of_codings || is_for_others }
    }
}

impl Exchange<'_> {
    fn selecting(&self) -> Selecting<'_> {
        Selecting::new(self.lines, self.negotiation)
    }

    /// Returns whether the request has meaningless content, or is a QUERY whose content has no type.
    //= RFC 9110 section 9.3.1: content of a GET means nothing
    //= RFC 10008 section 2: Content-Type is needed
    fn is_no_question(&self) -> bool {
        match self.facts.method {
            MethodClass::Query => !query::is_typed(self.lines),
            method => method.is_reusing() && !self.request.message.body.is_empty(),
        }
    }

    fn selects(&self, stored: &Stored) -> bool {
        stored.nominated.matches(&stored.nominated_values, self.selecting())
    }

    fn is_certain(&self, stored: &Stored) -> bool {
        let values = &stored.nominated_values;
        stored.nominated.is_certain(values, self.selecting(), &stored.message.lines())
    }
}

impl Cache {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, stored: HashMap::new() }
    }

    /// Answers one request at `now`.
    pub(crate) fn exchange(
        &mut self,
        request: &Request,
        origin: &mut dyn Origin,
        now: Timestamp,
    ) -> Response {
        let lines = request.message.lines();
        let facts = RequestFacts::parse(&request.method, &lines).with_credentials_of(&lines, &self.rules);
        let (key, negotiation) = (key_of(request), self.rules.negotiation);
        let exchange = Exchange { request, lines: &lines, facts, key, negotiation, now };
        if exchange.is_no_question() {
            return self.pass(&exchange, None, NotReused::Method, origin);
        }
        let selected = self.select(&exchange);
        let decision = match &selected {
            Some(stored) if stored.standing == Standing::Invalidated => {
                reuse_in_doubt(&facts, &stored.facts, &self.rules, NotReused::Invalidated)
            }
            Some(stored) => reuse(&facts, &stored.facts, &self.rules, now),
            None => on_miss(&facts, &self.rules, self.miss(&exchange)),
        };
        match (decision, selected) {
            (Reuse::Fresh | Reuse::RefreshAhead, Some(stored)) => {
                exchange.stored(&stored, Outcome::Hit, None)
            }
            (Reuse::Stale, Some(stored)) => exchange.stored(&stored, Outcome::Hit, Some("max-stale")),
            (Reuse::StaleWhileRevalidate, Some(stored)) => {
                let response = exchange.stored(&stored, Outcome::Hit, Some("stale-while-revalidate"));
                self.fetch(&exchange, Some(&stored), NotReused::Expired, origin);
                response
            }
            (Reuse::Unavailable(_), _) => exchange.generated(504, "only-if-cached"),
            (Reuse::Forward(NotReused::Credentials), Some(_))
                if self.may_fetch(&facts, NotReused::Credentials) =>
            {
                self.fetch(&exchange, None, NotReused::Credentials, origin)
            }
            (Reuse::Validate(reason) | Reuse::Forward(reason), stored) if self.may_fetch(&facts, reason) => {
                self.fetch(&exchange, stored.as_ref(), reason, origin)
            }
            (Reuse::Validate(reason) | Reuse::Forward(reason), stored) => {
                let is_head = facts.method == MethodClass::Head && !facts.has_origin_conditions;
                self.pass(&exchange, stored.filter(|_| is_head).as_ref(), reason, origin)
            }
            (Reuse::Fresh | Reuse::RefreshAhead | Reuse::Stale | Reuse::StaleWhileRevalidate, None) => {
                unreachable!("nothing is reused where nothing is stored")
            }
        }
    }

    /// Returns the most recent stored response whose nominated fields match.
    //= RFC 9111 section 4.1: all nominated fields match
    fn select(&self, exchange: &Exchange<'_>) -> Option<Stored> {
        let stored = self.stored.get(&exchange.key)?;
        let best = best_of(stored.iter().filter(|stored| exchange.selects(stored)));
        best.or_else(|| best_of(stored.iter().filter(|stored| exchange.is_certain(stored)))).cloned()
    }

    fn miss(&self, exchange: &Exchange<'_>) -> Miss {
        let is_known = self.stored.get(&exchange.key).is_some_and(|stored| !stored.is_empty());
        if is_known { Miss::Vary } else { Miss::Uri }
    }

    /// Returns whether the origin's response may serve other requests. A response to HEAD has no content to store, and
    /// a precondition that only the origin can evaluate has to reach the origin.
    fn may_fetch(&self, request: &RequestFacts, reason: NotReused) -> bool {
        let is_own = matches!(reason.fwd(), FwdReason::Bypass | FwdReason::Method);
        let is_stored = matches!(request.method, MethodClass::Get | MethodClass::Query);
        is_stored && !request.has_origin_conditions && !is_own
    }

    /// Forwards a request without using the cache. The cache only invalidates the URIs that the request changes.
    fn pass(
        &mut self,
        exchange: &Exchange<'_>,
        stale: Option<&Stored>,
        reason: NotReused,
        origin: &mut dyn Origin,
    ) -> Response {
        let request = exchange.forwarded(|_| true);
        let Some(response) = origin.ask(&request) else { return self.failed(exchange, stale, reason) };
        self.invalidate(exchange, &response);
        self.update_by_head(exchange, &response);
        let failure = Failure::Status(response.status);
        if let Some(stale) = stale.filter(|stale| self.is_usable_stale(exchange, stale, failure)) {
            return exchange.stored(
                stale,
                asked(reason, Some(response.status), Kept::No),
                Some("stale-if-error"),
            );
        }
        match self.written(exchange, &response) {
            Some(stored) => {
                self.put(exchange, stored.clone());
                let outcome = asked(reason, Some(response.status), Kept::Yes);
                exchange.first_use(&stored, outcome, unshared(&response.message.lines(), &self.rules))
            }
            None => exchange.passed(response, reason, reason.as_str()),
        }
    }

    /// Returns the response to a POST if it may answer GETs.
    //= RFC 9110 section 9.3.3: POST with explicit freshness and Content-Location answers GET
    fn written(&self, exchange: &Exchange<'_>, response: &Response) -> Option<Stored> {
        if exchange.request.method != "POST" {
            return None;
        }
        let lines = response.message.lines();
        let facts = ResponseFacts::parse(response.status, &lines, exchange.times(), &self.rules);
        let target = target_of(exchange.request);
        let storable = may_store_for_get(&exchange.facts, &facts, &lines, &target, &self.rules, exchange.now);
        self.storable(exchange, &storable.ok()?, response)
    }

    //= RFC 9111 section 4.4: invalidating stored responses
    fn invalidate(&mut self, exchange: &Exchange<'_>, response: &Response) {
        let target = target_of(exchange.request);
        let lines = response.message.lines();
        for uri in invalidation::invalidated(exchange.facts.method, response.status, &target, &lines) {
            self.forget(&uri);
        }
        let named = groups::invalidated(exchange.facts.method, response.status, &lines, GROUPS_MAX);
        self.invalidate_groups(&names(named));
    }

    /// Removes all stored responses for a URI, of any method and content.
    fn forget(&mut self, uri: &SameOrigin) {
        let query = uri.query.iter().flat_map(|query| [&b"?"[..], query]);
        let target = std::iter::once(&uri.path[..]).chain(query).collect::<Vec<_>>().concat();
        let (mut kept, mut gone) = (HashMap::new(), Vec::new());
        for (key, stored) in self.stored.drain() {
            match stored.iter().any(|stored| stored.target.as_bytes() == target) {
                true => gone.extend(stored),
                false => drop(kept.insert(key, stored)),
            }
        }
        self.stored = kept;
        if self.rules.groups_invalidated == GroupsInvalidated::Shared {
            gone.iter().for_each(|stored| self.invalidate_groups(&stored.groups));
        }
    }

    //= RFC 9875 section 3: invalidation of the listed groups
    fn invalidate_groups(&mut self, groups: &[String]) {
        for stored in self.stored.values_mut().flatten() {
            if stored.groups.iter().any(|group| groups.contains(group)) {
                stored.standing = Standing::Invalidated;
            }
        }
    }

    /// Requests a storable response from the origin, with the validators of `stale`.
    fn fetch(
        &mut self,
        exchange: &Exchange<'_>,
        stale: Option<&Stored>,
        reason: NotReused,
        origin: &mut dyn Origin,
    ) -> Response {
        let mut request = exchange.forwarded(|name| !conditional::is_precondition(name) && name != "range");
        let candidates = self.candidates(exchange, stale);
        let validators: Vec<_> = candidates.iter().map(|stored| stored.validators()).collect();
        let first = if stale.is_some() { First::Selected } else { First::Other };
        let conditions = validation::conditional_fields(&validators, first);
        request.message.fields.extend(owned(conditions.iter().map(|(name, value)| (*name, &value[..]))));
        let Some(response) = origin.ask(&request) else {
            return self.failed(exchange, stale, reason);
        };
        match judge(&response, &validators, first, exchange.now) {
            Answer::Freshen(identified) => {
                let others = identified[1..].iter().rev().map(|index| &candidates[*index]);
                let others: Vec<_> = others.filter(|other| exchange.selects(other)).collect();
                others.iter().for_each(|other| drop(self.freshen(exchange, other, &response, reason)));
                self.freshen(exchange, &candidates[identified[0]], &response, reason)
            }
            Answer::Unidentified if candidates.is_empty() => self.take(exchange, response, reason),
            Answer::Unidentified => self.fetch_anew(exchange, reason, origin),
            Answer::ServerError => self.server_error(exchange, stale, response, reason),
            Answer::Replace => self.take(exchange, response, reason),
        }
    }

    /// Requests a full response, because a 304 identified no stored response.
    fn fetch_anew(
        &mut self,
        exchange: &Exchange<'_>,
        reason: NotReused,
        origin: &mut dyn Origin,
    ) -> Response {
        let request = exchange.forwarded(|name| !conditional::is_precondition(name) && name != "range");
        match origin.ask(&request) {
            Some(response) => self.take(exchange, response, reason),
            None => self.failed(exchange, None, reason),
        }
    }

    /// Returns the stored responses that a validation names: the selected one, then others, most recent first.
    fn candidates(&self, exchange: &Exchange<'_>, selected: Option<&Stored>) -> Vec<Stored> {
        let stored = self.stored.get(&exchange.key).map(|stored| &stored[..]).unwrap_or_default();
        let newest_first: Vec<&Stored> = stored.iter().rev().collect();
        let known: Vec<_> = newest_first.iter().map(|stored| stored.known(exchange, &self.rules)).collect();
        let is_selected = |stored: &&Stored| {
            selected.is_some_and(|selected| selected.nominated_values == stored.nominated_values)
        };
        let selected = newest_first.iter().position(is_selected);
        let named = validation::candidates(selected, &known, CANDIDATES_MAX);
        named.iter().map(|index| newest_first[*index].clone()).collect()
    }

    fn failed(&self, exchange: &Exchange<'_>, stale: Option<&Stored>, reason: NotReused) -> Response {
        match stale.filter(|stale| self.is_usable_stale(exchange, stale, Failure::Unreachable)) {
            Some(stale) => exchange.stored(stale, asked(reason, None, Kept::No), Some("origin-failed")),
            //= RFC 9111 section 5.2.2.2: the error is a 504
            None if stale.is_some_and(|stale| stale.facts.must_revalidate) => {
                exchange.generated(504, "no-answer")
            }
            None => exchange.generated(502, "no-answer"),
        }
    }

    fn server_error(
        &mut self,
        exchange: &Exchange<'_>,
        stale: Option<&Stored>,
        response: Response,
        reason: NotReused,
    ) -> Response {
        let failure = Failure::Status(response.status);
        let Some(stale) = stale.filter(|stale| self.is_usable_stale(exchange, stale, failure)) else {
            return self.take(exchange, response, reason);
        };
        let outcome = asked(reason, Some(response.status), Kept::No);
        exchange.stored(stale, outcome, Some("stale-if-error"))
    }

    fn is_usable_stale(&self, exchange: &Exchange<'_>, stale: &Stored, failure: Failure) -> bool {
        stale.standing == Standing::Valid
            && may_serve_stale(&exchange.facts, &stale.facts, &self.rules, exchange.now, failure)
    }

    //= RFC 9111 section 4.3.4: freshening stored responses upon validation
    fn freshen(
        &mut self,
        exchange: &Exchange<'_>,
        stale: &Stored,
        not_modified: &Response,
        reason: NotReused,
    ) -> Response {
        let (times, lines) = (exchange.times(), stale.message.lines());
        let not_modified = not_modified.message.lines();
        let status = stale.facts.status;
        let news = sharing::news(&exchange.facts, status, &not_modified, times, &self.rules);
        let freshened = validation::freshen(status, &lines, &news, times, &self.rules);
        let facts = StoredFacts::new(&exchange.facts, &freshened.response, &self.rules);
        let storable = may_store(&exchange.facts, &freshened.response, &self.rules, exchange.now);
        let message =
            Message { fields: dated(owned(freshened.fields), exchange.now), ..stale.message.clone() };
        // If `Vary` is unusable, `storable` is an error, and nothing is stored.
        let nominated = NominatedFields::parse(&message.lines()).unwrap_or_default();
        let stored = self.prepare(exchange, nominated, facts, &stale.reason, message);
        match storable {
            Ok(_) => {
                if exchange.selects(stale) {
                    self.remove(exchange, stale);
                }
                self.put(exchange, stored.clone());
            }
            // The stored response is not for this request, and stays unchanged.
            Err(reason) if reason.is_of_request() => {}
            Err(_) => self.remove(exchange, stale),
        }
        exchange.stored(&stored, asked(reason, Some(304), Kept::Yes), None)
    }

    /// Stores a full response and answers from it, or passes it on.
    fn take(&mut self, exchange: &Exchange<'_>, response: Response, reason: NotReused) -> Response {
        let lines = response.message.lines();
        let facts = ResponseFacts::parse(response.status, &lines, exchange.times(), &self.rules);
        let stored = match may_store(&exchange.facts, &facts, &self.rules, exchange.now) {
            Ok(storable) => self.storable(exchange, &storable, &response),
            Err(refused) => return exchange.passed(response.clone(), reason, refused.as_str()),
        };
        let Some(stored) = stored else { return exchange.passed(response, reason, "vary-unusable") };
        // The new response replaces all those that the request selects.
        self.stored.entry(exchange.key.clone()).or_default().retain(|other| !exchange.selects(other));
        self.put(exchange, stored.clone());
        let outcome = asked(reason, Some(response.status), Kept::Yes);
        exchange.first_use(&stored, outcome, unshared(&lines, &self.rules))
    }

    /// Returns `None` if `Vary` is unusable; [`may_store`] usually refuses such a response first.
    fn storable(&self, exchange: &Exchange<'_>, storable: &Storable, response: &Response) -> Option<Stored> {
        let lines = response.message.lines();
        let filter = StorageFilter::of(&lines, &self.rules);
        let kept = lines.iter().copied().filter(|(name, _)| filter.keeps(name) && *name != "content-length");
        let fields = dated(owned(kept), exchange.now);
        let message = Message { fields, body: response.message.body.clone() };
        let nominated = NominatedFields::parse(&message.lines()).ok()?;
        Some(self.prepare(exchange, nominated, storable.facts, &response.reason, message))
    }

    fn prepare(
        &self,
        exchange: &Exchange<'_>,
        nominated: NominatedFields,
        facts: StoredFacts,
        reason: &str,
        message: Message,
    ) -> Stored {
        let lines = message.lines();
        let nominated_values = nominated.capture(exchange.selecting());
        let validators = Validators::parse(&lines, exchange.now).into();
        let groups = names(groups::of_response(&lines, GROUPS_MAX));
        let (standing, reason) = (Standing::Valid, reason.to_owned());
        let target = exchange.request.target.clone();
        Stored { facts, validators, nominated, nominated_values, target, groups, standing, reason, message }
    }

    /// Stores a response in place of those for the same requests.
    fn put(&mut self, exchange: &Exchange<'_>, stored: Stored) {
        self.remove(exchange, &stored);
        self.stored.entry(exchange.key.clone()).or_default().push(stored);
    }

    fn remove(&mut self, exchange: &Exchange<'_>, stored: &Stored) {
        let variants = self.stored.entry(exchange.key.clone()).or_default();
        variants.retain(|other| {
            other.nominated != stored.nominated || other.nominated_values != stored.nominated_values
        });
    }
}

fn best_of<'a>(matching: impl Iterator<Item = &'a Stored>) -> Option<&'a Stored> {
    let view = |stored: &'a Stored| Matching { facts: &stored.facts, nominated: &stored.nominated };
    // Among equally suitable responses, the last one stored is used.
    matching.reduce(|best, stored| if view(best).goes_before(&view(stored)) { best } else { stored })
}

/// Whether a response was stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
}

fn asked(reason: NotReused, status: Option<u16>, kept: Kept) -> Outcome {
    Outcome::Forwarded { reason: reason.fwd(), status, stored: kept == Kept::Yes, collapsed: false }
}

fn judge(response: &Response, candidates: &[Validators<'_>], first: First, now: Timestamp) -> Answer {
    validation::judge(response.status, &response.message.lines(), candidates, first, now)
}

/// Maximum number of distinguished groups of one response.
const GROUPS_MAX: usize = 128;

fn names(groups: Groups) -> Vec<String> {
    match groups {
        Groups::Named(names) => names,
        Groups::TooMany => unreachable!("no case has so many groups"),
    }
}

/// Maximum number of stored responses that one validation names.
const CANDIDATES_MAX: usize = 8;

/// Returns the end-to-end fields that aren't stored, because they are only for the current request.
fn unshared(lines: &[FieldLine<'_>], rules: &Rules) -> Vec<(String, Vec<u8>)> {
    let (filter, hop_by_hop) = (StorageFilter::of(lines, rules), HopByHop::of(lines));
    let is_unshared = |name: &str| !filter.keeps(name) && !hop_by_hop.contains(name) && name != "age";
    owned(lines.iter().copied().filter(|(name, _)| is_unshared(name)))
}

fn owned<'a>(lines: impl IntoIterator<Item = FieldLine<'a>>) -> Vec<(String, Vec<u8>)> {
    lines.into_iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
}

/// Adds a `Date` if the origin sent none.
fn dated(mut fields: Vec<(String, Vec<u8>)>, now: Timestamp) -> Vec<(String, Vec<u8>)> {
    let lines: Vec<FieldLine<'_>> = fields.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
    if !fields::contains(&lines, "date") {
        fields.push(("date".to_owned(), date::format(now).to_vec()));
    }
    fields
}

const SCHEME: &[u8] = b"http";
const AUTHORITY: &[u8] = b"cache.example";

fn target_of(request: &Request) -> invalidation::Target<'_> {
    let (path, query) = split_target(&request.target);
    invalidation::Target {
        scheme: SCHEME,
        authority: AUTHORITY,
        path: path.as_bytes(),
        query: query.map(str::as_bytes),
    }
}

fn split_target(target: &str) -> (&str, Option<&str>) {
    target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)))
}

fn key_of(request: &Request) -> CacheKey {
    let (path, query) = split_target(&request.target);
    let content = [&query::metadata(&request.message.lines())[..], &request.message.body];
    let is_query = request.method == query::METHOD;
    let parts = KeyParts {
        site: b"model",
        scheme: SCHEME,
        authority: AUTHORITY,
        path: path.as_bytes(),
        query: query.map(str::as_bytes),
        method: if is_query { query::METHOD } else { "GET" },
        extra: if is_query { &content } else { &[] },
    };
    CacheKey::new(&parts, &KeyRules::default())
}
