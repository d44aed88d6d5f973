//! The single interpretation of a request: the fields that are sent to the origin.
//!
//! The cache key, the values of nominated fields (`Vary`) and the facts about the client's credentials come from the same
//! interpretation. So a field that is sent to the origin but isn't in the key can't change a response for other clients, and a removed
//! field counts as not sent.
//!
//! | field | from a trusted peer | from other peers |
//! |---|---|---|
//! | named in `Connection`, connection-specific, `Proxy`, `Proxy-Authorization` | removed | removed |
//! | with `_` or similar characters in its name | removed, unless the site forwards such fields | likewise |
//! | the client's address, in fields other than the following ones | forwarded | removed |
//! | scheme, host, port, `Forwarded`, `X-Forwarded-For` | read, and rewritten ([`crate::rewrite::forwarding`]) | removed, and rewritten |
//! | other `X-Forwarded-*` | forwarded, and part of the key | removed |
//! | replaces the method | by the rule's setting, if the response may be stored | likewise |
//! | replaces host or target | by the rule's setting, if the response may be stored | by the rule's setting |
//! | listed in `request_fields_keyed` | forwarded, and part of the key | likewise |
//! | any other | forwarded | forwarded |
//! | set by rules of the phase `origin_request` | forwarded | likewise |
//!
//! Most requests have none of these fields, and most stored responses don't nominate them, so a hit uses the received lines directly.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use cache::head_maker::ForwardedRequest;
use caching::unkeyed::{self, FieldClass, class_of};
use caching::{FieldLine, HopByHop, MaxForwards, MethodClass, RequestFacts, hop_by_hop, sharing};
use http::header::HeaderName;
use message::client::{TrustedProxies, address_of};
use message::fields::PackedFields;
use message::head::{OwnedRequest, Peer, RequestHead, Scheme, Trust};
use message::timeline::{ASKING_FIELD, PARENT_FIELD, STATE_FIELD};
use message::trailers;
use origin::Tried;
use tokio::sync::SetOnce;

use crate::active::ActiveConfig;
use crate::config::{
    CacheRule, Config, OverrideFields, Phase, ServerTiming, Site, TraceFields, UnderscoreFields,
};
use crate::rewrite::LOOP_FIELD;
use crate::rewrite::forwarding::{self, RequestedHost};
use crate::rewrite::rules::Context;
use crate::rewrite::rules::{self, Matching, Seen};
use crate::routing::{LiveSite, RuleMatch};

/// A request to be forwarded, with its fields for the origin.
pub(crate) struct Inbound {
    client: OwnedRequest,
    live: Arc<ActiveConfig>,
    site: Arc<LiveSite>,
    rule: RuleMatch,
    sent: OnceLock<PackedFields>,
    /// Servers to which the request was sent.
    pub(crate) tried: Tried,
    /// Set when other requests wait for the place of this one among the requests to the origin.
    pub(crate) place_wanted: SetOnce<()>,
}

/// Settings that determine the interpretation of a request.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) site: &'a Site,
    pub(crate) rule: &'a CacheRule,
}

impl Deref for Inbound {
    type Target = OwnedRequest;

    /// Returns the request that the client sent.
    fn deref(&self) -> &OwnedRequest {
        &self.client
    }
}

impl ForwardedRequest for Inbound {
    fn received(&self) -> &OwnedRequest {
        &self.client
    }

    fn sent(&self) -> &PackedFields {
        self.sent()
    }

    fn place_wanted(&self) -> &SetOnce<()> {
        &self.place_wanted
    }
}

impl Inbound {
    pub(crate) fn new(
        request: &RequestHead<'_>,
        live: &Arc<ActiveConfig>,
        site: &Arc<LiveSite>,
        rule: RuleMatch,
    ) -> Self {
        Self {
            client: request.into_owned(),
            live: Arc::clone(live),
            site: Arc::clone(site),
            rule,
            sent: OnceLock::new(),
            tried: Tried::default(),
            place_wanted: SetOnce::new(),
        }
    }

    /// Returns the field lines for the origin, before preconditions and ranges are added or removed.
    pub(crate) fn sent(&self) -> &PackedFields {
        self.sent.get_or_init(|| self.read())
    }

    /// Returns the fields of [`Self::sent`] as a mutable copy.
    pub(crate) fn to_sent(&self) -> PackedFields {
        self.sent.get().cloned().unwrap_or_else(|| self.read())
    }

    /// Returns the configuration with which the exchange began.
    pub(crate) fn config(&self) -> &Config {
        &self.live.config
    }

    pub(crate) fn rule(&self) -> &CacheRule {
        self.site.rule_at(self.rule)
    }

    /// Returns whether fields that replace method, host or target are sent to the origin without being part of the key.
    pub(crate) fn has_unkeyed_overrides(&self) -> bool {
        self.with_fates(|fates, lines| {
            let is_override =
                |name: &str| matches!(class_of(name), FieldClass::Override | FieldClass::Method);
            let is_unkeyed = |name: &str| is_override(name) && fates.of(name) == Fate::Sent;
            lines.iter().any(|(name, _)| is_unkeyed(name))
        })
    }

    fn read(&self) -> PackedFields {
        let mut fields = self.with_fates(|fates, lines| fates.sent_fields(lines, &self.live.config));
        let rules = self.site.transforms(Phase::OriginRequest);
        if !rules.is_empty() {
            let before = fields.clone();
            let lines = before.to_lines();
            let (seen, matching) = self.seen_sent(&lines);
            // Errors are ignored, because a request that is too large for origins is refused before it is sent.
            let _ = Context::of_request(&seen).apply(rules, &matching, &mut fields);
        }
        fields
    }

    /// Returns the rules that the request to the origin matches.
    pub(crate) fn matching_sent(&self) -> Matching {
        if self.site.transforms(Phase::OriginRequest).is_empty() {
            return Matching::new();
        }
        let before = self.with_fates(|fates, lines| fates.sent_fields(lines, &self.live.config));
        self.seen_sent(&before.to_lines()).1
    }

    /// Returns the request as rules for the origin see it, without fields that untrusted clients must not send.
    fn seen_sent<'a>(&'a self, lines: &'a [FieldLine<'a>]) -> (Seen<'a>, Matching) {
        let (request, trusted) = (self.client.fields.to_lines(), &self.live.config.trusted_proxies);
        let client = address_of(&self.client.borrow(&request), trusted);
        let seen = Seen::of(&self.client.borrow(lines), client, Phase::OriginRequest);
        let matching = rules::matching(self.site.transforms(Phase::OriginRequest), &seen, None);
        (seen, matching)
    }

    fn with_fates<T>(&self, judge: impl FnOnce(&Fates<'_>, &[FieldLine<'_>]) -> T) -> T {
        let lines = self.client.fields.to_lines();
        let request = self.client.borrow(&lines);
        let terms = Terms { site: &self.site.config, rule: self.site.rule_at(self.rule) };
        judge(&Fates::new(&request, MethodClass::parse(request.method), terms), &lines)
    }
}

/// Returns the scheme of a request: that of the connection, or the scheme that a trusted peer reports.
pub(crate) fn scheme(peer: Peer, lines: &[FieldLine<'_>], trusted: &TrustedProxies) -> Scheme {
    match peer.trust {
        Trust::Untrusted => peer.scheme,
        Trust::Trusted => forwarding::told_scheme(lines, trusted).unwrap_or(peer.scheme),
    }
}

/// Returns whether the site selects the fields that are forwarded.
fn selects_fields(site: &Site) -> bool {
    !site.request_fields_hidden.is_empty() || !site.request_fields_forwarded.is_empty()
}

/// Returns whether the fields for the origin differ from those of the client, apart from the changes that a gateway always makes.
pub(crate) fn changes_fields(site: &Site) -> bool {
    selects_fields(site) || !site.transforms.origin_request.is_empty()
}

/// Returns the facts of a request, with the credentials that are sent to the origin.
pub(crate) fn facts(request: &RequestHead<'_>, site: &Site) -> RequestFacts {
    let facts = RequestFacts::parse(request.method, request.fields);
    if !selects_fields(site) && site.underscore_fields == UnderscoreFields::Drop {
        return facts;
    }
    let has = |is_such: fn(&str) -> bool| {
        let is_such = |name: &str| is_such(&unkeyed::plain_name(name));
        request.fields.iter().any(|(name, _)| is_such(name) && is_forwarded_by(site, name))
    };
    RequestFacts {
        has_authorization: has(|name| name.eq_ignore_ascii_case("authorization")),
        has_credentials: has(sharing::is_credential),
        ..facts
    }
}

/// Adds the credentials in fields that the operator has configured.
pub(crate) fn with_credentials(
    facts: RequestFacts,
    request: &RequestHead<'_>,
    terms: Terms<'_>,
) -> RequestFacts {
    let Terms { site, rule } = terms;
    if rule.caching.credential_fields.is_empty() || facts.has_credentials {
        return facts;
    }
    let is_seen = |name: &str| rule.caching.is_credential(name) && is_forwarded_by(site, name);
    RequestFacts { has_credentials: request.fields.iter().any(|(name, _)| is_seen(name)), ..facts }
}

/// Returns the field lines that are part of the cache key, for [`caching::KeyParts::extra`]. Most requests have none.
pub(crate) fn keyed_fields(
    request: &RequestHead<'_>,
    method: MethodClass,
    terms: Terms<'_>,
    trusted: &TrustedProxies,
) -> Vec<u8> {
    let mut keyed = Vec::new();
    let may_have_any = is_next_data(terms.site, request.path_and_query)
        || request.peer.trust == Trust::Trusted
        || terms.rule.override_fields == OverrideFields::Key
        || !terms.site.request_fields_keyed.is_empty();
    if !may_have_any {
        return keyed;
    }
    let told = RequestedHost::read(request.peer.trust, request.fields, trusted);
    told.each_unkeyed(request, |name, value| write_keyed(name, value, &mut keyed));
    let fates = Fates::new(request, method, terms);
    for (name, value) in request.fields {
        if fates.of(name) == Fate::Keyed {
            write_keyed(name, value, &mut keyed);
        }
    }
    keyed
}

/// Writes a line with its lengths, so that one line can't be mistaken for two.
fn write_keyed(name: &str, value: &[u8], out: &mut Vec<u8>) {
    for length in [name.len(), value.len()] {
        out.extend_from_slice(&(length as u64).to_be_bytes());
    }
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out[start..].make_ascii_lowercase();
    out.extend_from_slice(value);
}

/// Returns the lines that [`keyed_fields`] wrote.
pub(crate) fn keyed_lines(keyed: &[u8]) -> Vec<(String, &[u8])> {
    let mut rest = keyed;
    std::iter::from_fn(|| take_keyed(&mut rest)).collect()
}

fn take_keyed<'a>(rest: &mut &'a [u8]) -> Option<(String, &'a [u8])> {
    let (name_bytes, after) = rest.split_first_chunk()?;
    let (value_bytes, after) = after.split_first_chunk()?;
    let length = |bytes: &[u8; 8]| usize::try_from(u64::from_be_bytes(*bytes)).ok();
    let (name, after) = after.split_at_checked(length(name_bytes)?)?;
    let (value, after) = after.split_at_checked(length(value_bytes)?)?;
    *rest = after;
    Some((String::from_utf8_lossy(name).into_owned(), value))
}

/// Treatment of a field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Not forwarded.
    Dropped,
    /// Forwarded, and part of the key.
    Keyed,
    /// Forwarded.
    Sent,
}

struct Fates<'a> {
    request: &'a RequestHead<'a>,
    method: MethodClass,
    terms: Terms<'a>,
    hop_by_hop: HopByHop<'a>,
}

impl<'a> Fates<'a> {
    fn new(request: &'a RequestHead<'a>, method: MethodClass, terms: Terms<'a>) -> Self {
        Self { request, method, terms, hop_by_hop: HopByHop::of(request.fields) }
    }

    /// Returns the end-to-end fields to forward, including those that the gateway writes.
    fn sent_fields(&self, lines: &[FieldLine<'_>], config: &Config) -> PackedFields {
        let mut out = PackedFields::with_capacity(lines.len() + 8);
        for (name, value) in lines.iter().filter(|(name, _)| self.of(name) != Fate::Dropped) {
            match name.eq_ignore_ascii_case("trailer") {
                true => self.announce_trailers(value, &mut out),
                false => out.push_lowercase(name, value),
            }
        }
        if let MaxForwards::Forward(left) = MaxForwards::parse(self.request.method, lines)
            && is_forwarded_by(self.terms.site, "max-forwards")
        {
            out.set("max-forwards", itoa::Buffer::new().format(left).as_bytes());
        }
        forwarding::describe_the_way(self.request, (self.terms.site, config), &mut out);
        out
    }

    /// Announces the trailers that are forwarded, because recipients must know them in advance. The announced fields are those that
    /// `Trailer` names and that could be forwarded in the head. Keyed fields and credentials are excluded, because trailers arrive after
    /// the decisions that depend on these fields.
    //= RFC 9110 section 6.6.2: Trailer names what may come
    //= RFC 9110 section 6.5.1: limitations on use of trailers
    fn announce_trailers(&self, names: &[u8], out: &mut PackedFields) {
        let is_credential = |name: &str| self.terms.rule.caching.is_credential(name);
        let passes =
            |name: &str| trailers::may_pass(name) && self.of(name) == Fate::Sent && !is_credential(name);
        let names = http1::elements(names).filter(|name| std::str::from_utf8(name).is_ok_and(passes));
        let names: Vec<&[u8]> = names.collect();
        if !names.is_empty() {
            out.push("trailer", &names.join(&b", "[..]));
        }
    }

    fn of(&self, name: &str) -> Fate {
        let Terms { site, .. } = self.terms;
        let is_hidden = is_listed(&site.request_fields_hidden, name)
            || is_written_later(name)
            || is_for_timelines(site, name);
        if is_hidden || self.hop_by_hop.contains(name) || is_dropped_spelling(site, name) {
            return Fate::Dropped;
        }
        let is_trusted = self.request.peer.trust == Trust::Trusted;
        match class_of(name) {
            FieldClass::Address | FieldClass::Way if !is_forwarded_by(site, name) => Fate::Dropped,
            FieldClass::Address if is_trusted => Fate::Sent,
            FieldClass::Way if is_trusted => Fate::Keyed,
            FieldClass::Method => self.of_override(name),
            FieldClass::Override if self.asks_for_next_data(name) => match self.as_listed(name) {
                Fate::Sent => Fate::Keyed,
                fate => fate,
            },
            // With such a field, an untrusted client could choose the origin's action and bypass all rules for the target.
            FieldClass::Override
                if !is_trusted && self.terms.rule.override_fields == OverrideFields::Drop =>
            {
                Fate::Dropped
            }
            FieldClass::Override => self.of_override(name),
            FieldClass::Ordinary => self.as_listed(name),
            _ => Fate::Dropped,
        }
    }

    /// Returns whether the field requests data from Next.js for a path where its own router does so. For other paths, the field would
    /// make the origin return a page as data.
    fn asks_for_next_data(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case("x-nextjs-data")
            && is_next_data(self.terms.site, self.request.path_and_query)
    }

    fn of_override(&self, name: &str) -> Fate {
        let rule = self.terms.rule;
        let may_be_stored = rule.caching.enabled && self.method.is_reusing();
        match (rule.override_fields, self.as_listed(name)) {
            (OverrideFields::Drop, _) if may_be_stored => Fate::Dropped,
            (OverrideFields::Key, Fate::Sent) if may_be_stored => Fate::Keyed,
            (_, fate) => fate,
        }
    }

    //= RFC 9110 section 5.1: unrecognized fields are forwarded
    //= RFC 9110 section 11.6.2: Authorization stays as it is
    //= RFC 9111 section 5.2: directives are passed through
    fn as_listed(&self, name: &str) -> Fate {
        let site = self.terms.site;
        match () {
            () if !is_forwarded_by(site, name) => Fate::Dropped,
            () if is_listed(&site.request_fields_keyed, name) => Fate::Keyed,
            () => Fate::Sent,
        }
    }
}

/// Returns whether the Next.js router requests data under a path.
#[inline]
fn is_next_data(site: &Site, path_and_query: &str) -> bool {
    let prefix = &site.path_prefix[..];
    let path = if prefix.len() > 1 { path_and_query.strip_prefix(prefix) } else { Some(path_and_query) };
    path.is_some_and(|path| path.starts_with("/_next/data/"))
}

/// Returns whether a name is an unusual spelling that isn't forwarded. CGI and WSGI convert `-` and other bytes to `_`, so such a name
/// may be equivalent to a field that the gateway knows. Even if a site forwards unusual names, a name is dropped if it is equivalent to a
/// field that the gateway reads, writes or drops. A name that is equivalent to a field of trusted peers is dropped as well, because these
/// peers overwrite only the proper name in requests of untrusted clients.
fn is_dropped_spelling(site: &Site, name: &str) -> bool {
    unkeyed::is_spelled_oddly(name)
        && (site.underscore_fields == UnderscoreFields::Drop || {
            let plain = unkeyed::plain_name(name);
            http1::is_end_to_end(plain.as_bytes())
                || hop_by_hop::ends_here(&plain)
                || is_written_later(&plain)
                || is_for_timelines(site, &plain)
                || stands_for_another(site, name)
                || !matches!(
                    class_of(&plain),
                    FieldClass::Ordinary | FieldClass::Method | FieldClass::Override
                )
        })
}

/// Returns whether a name is equivalent to a field that rules read or write, or that the gateway always sends to the origin. Rules and
/// settings apply only to the field with the proper name.
fn stands_for_another(site: &Site, name: &str) -> bool {
    let fixed = site.origin.fixed_fields.iter().map(|(name, _)| name);
    let of_rules = site.transforms.request_fields_read().chain(site.transforms.request_fields_written());
    let mut alike = fixed
        .chain(of_rules)
        .map(HeaderName::as_str)
        .filter(|known| unkeyed::are_read_alike(known, name))
        .peekable();
    alike.peek().is_some() && alike.all(|known| !known.eq_ignore_ascii_case(name))
}

pub(crate) fn is_forwarded_by(site: &Site, name: &str) -> bool {
    let is_chosen = || {
        let mut chosen = site.request_fields_forwarded.iter();
        chosen.any(|chosen| chosen.as_str().eq_ignore_ascii_case(name))
            || name.eq_ignore_ascii_case(LOOP_FIELD)
    };
    !is_listed(&site.request_fields_hidden, name)
        && (site.request_fields_forwarded.is_empty() || is_chosen())
        && !is_dropped_spelling(site, name)
}

/// Returns whether a field belongs to timelines: trace fields are written for each request to the origin, and the field that requests
/// timings is for this gateway.
fn is_for_timelines(site: &Site, name: &str) -> bool {
    let is_one_of = |fields: &[&str]| fields.iter().any(|field| name.eq_ignore_ascii_case(field));
    (site.trace_fields == TraceFields::Written && is_one_of(&[PARENT_FIELD, STATE_FIELD]))
        || (site.server_timing != ServerTiming::Off && is_one_of(&[ASKING_FIELD]))
}

/// Returns whether the site lists a field as part of the key.
pub(crate) fn is_keyed(site: &Site, name: &str) -> bool {
    is_listed(&site.request_fields_keyed, name)
}

/// Returns whether the site lists a field, in any spelling that origins may treat as equivalent.
pub(super) fn is_listed(names: &[HeaderName], name: &str) -> bool {
    names.iter().any(|listed| unkeyed::are_read_alike(listed.as_str(), name))
}

/// Returns whether the origin client writes the field itself, or the gateway handles it, such as `Expect`.
fn is_written_later(name: &str) -> bool {
    hop_by_hop::is_written_by_sender(name) || name.eq_ignore_ascii_case("expect")
}
