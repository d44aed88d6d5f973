//! What the cache has for a request, and what may be done with it.

use std::sync::Arc;

use bytes::Bytes;
use caching::explain::{self, Finding};
use caching::{
    FwdReason, KeyParts, MethodClass, Miss, NotReused, RequestFacts, Reuse, Selecting, Timestamp,
    key::write_key, on_miss, query, reuse, reuse_invalidated, sharing, was_shared_lately,
};

use crate::active::ActiveConfig;
use crate::cache::findings;
use crate::cache::inflight::scope::FetchScope;
use crate::cache::inflight::wanted::{Fetch, Sharing};
use crate::cache::key::{Keyed, write_site_key};
use crate::cache::record::stored::{CacheEntry, Hit, StoredHead};
use crate::cache::serve::Serving;
use crate::cache::using::Use;
use crate::config::PreconditionMiss;
use crate::message::head::{Content, RequestHead};
use crate::plan::{ForwardMode, ForwardReason};
use crate::reason::Reason;
use crate::route::{LiveSite, RuleIndex};
use crate::trace::{Record, note};
use crate::transform::reading::{self, Inbound};
use crate::worker::Worker;

/// One look-up.
pub(crate) struct Lookup<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) live: &'a Arc<ActiveConfig>,
    pub(crate) site: &'a Arc<LiveSite>,
    pub(crate) rule: RuleIndex,
    pub(crate) request: &'a RequestHead<'a>,
    pub(crate) facts: &'a RequestFacts,
    pub(crate) now: Timestamp,
    /// Of a QUERY, once it is read.
    pub(crate) content: Option<&'a Bytes>,
}

/// What a look-up comes to.
pub(crate) enum Found {
    /// The answer of the origin is for this client alone; what is stored may stand in for it.
    Forward(ForwardReason, Option<Hit>),
    /// The content must be read first: it is part of the cache key.
    NeedContent,
    /// A stored response answers.
    Use(Hit, Use),
    /// The origin must be asked; the answer may be stored.
    Fetch(Arc<Fetch>),
    /// `only-if-cached`, and nothing can be used.
    Unavailable(NotReused),
}

impl Lookup<'_> {
    pub(crate) fn run(&self, key: &mut Vec<u8>) -> Found {
        if let Some(reason) = self.why_pass() {
            return Found::Forward(reason, None);
        }
        let rule = self.site.rule_at(self.rule);
        match (self.facts.method, self.content) {
            (MethodClass::Query, Some(content)) => self.write_query_key(content, key),
            (MethodClass::Query, None) if rule.caching.enabled => return Found::NeedContent,
            _ => self.write_key(key),
        }
        let entry = self.worker.shared.cache.look_up(key);
        let (site, request) = (&self.site.config, self.request);
        match &entry {
            Some(record) if request.sent.is_none() && reading::differs_for(record, request, site) => {
                let inbound = Inbound::new(request, self.live, self.site, self.rule);
                let request = RequestHead { sent: Some(&inbound.sent().to_lines()), ..*request };
                Lookup { request: &request, ..*self }.decide(entry.as_ref(), key)
            }
            _ => self.decide(entry.as_ref(), key),
        }
    }

    fn decide(&self, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> Found {
        let rule = self.site.rule_at(self.rule);
        let selected = entry.and_then(|entry| entry.select(self.selecting()));
        let decision = match &selected {
            Some(hit) if self.worker.shared.cache.is_invalidated(&hit.head) => {
                reuse_invalidated(self.facts, &hit.head.facts, &rule.caching)
            }
            Some(hit) => reuse(self.facts, &hit.head.facts, &rule.caching, self.now),
            None => on_miss(self.facts, &rule.caching, miss_kind(entry.map(Arc::as_ref))),
        };
        if let Some(record) = self.request.record {
            self.tell(record, key, entry.map(Arc::as_ref), selected.as_ref(), decision);
        }
        self.found(decision, selected, entry, key)
    }

    fn write_key(&self, key: &mut Vec<u8>) {
        write_site_key(&self.keyed(), self.request.path_and_query, &self.site.rule_at(self.rule).query, key);
    }

    fn keyed(&self) -> Keyed<'_> {
        let RequestHead { scheme, authority, keyed, .. } = *self.request;
        Keyed { site: self.site, scheme, authority, fields: keyed }
    }

    //= RFC 10008 section 2.7: the cache key has the content
    fn write_query_key(&self, content: &Bytes, key: &mut Vec<u8>) {
        let RequestHead { path_and_query, fields, .. } = *self.request;
        let metadata = query::metadata(fields);
        let keyed = self.keyed();
        let extra = [keyed.fields, &metadata, content];
        let parts = KeyParts { method: query::METHOD, extra: &extra, ..keyed.parts(path_and_query) };
        write_key(&parts, &self.site.rule_at(self.rule).query, key);
    }

    fn tell(
        &self,
        record: &Record,
        key: &[u8],
        entry: Option<&CacheEntry>,
        selected: Option<&Hit>,
        decision: Reuse,
    ) {
        let shown = caching::key::describe(key).unwrap_or_default();
        let rules = &self.site.rule_at(self.rule).caching;
        let finding = Finding::new("key", "the cache key", "RFC 9111 section 2").with("key", shown, "");
        record.note(findings::keyed(finding, self.request.keyed, rules));
        let selection = findings::selection(entry, selected, self.selecting(), rules);
        selection.into_iter().for_each(|finding| record.note(finding));
        let facts = selected.map(|hit| &hit.head.facts);
        record.note(explain::reuse(decision, facts, self.now));
    }

    fn found(
        &self,
        decision: Reuse,
        selected: Option<Hit>,
        entry: Option<&Arc<CacheEntry>>,
        key: &[u8],
    ) -> Found {
        match (decision, selected) {
            (Reuse::Fresh, Some(hit)) => Found::Use(hit, Use::Fresh),
            (Reuse::Stale, Some(hit)) => Found::Use(hit, Use::Stale(Reason::MaxStale)),
            (Reuse::StaleWhileRevalidate, Some(hit)) => Found::Use(hit, Use::StaleWhileRevalidate),
            (Reuse::Unavailable(reason), _) => Found::Unavailable(reason),
            // Made for others: it is not for this request, whatever happens.
            (Reuse::Forward(NotReused::Credentials), _) => {
                self.fetch(NotReused::Credentials, None, entry, key)
            }
            // A stale response without a validator is of use still: if the origin fails.
            (Reuse::Validate(reason) | Reuse::Forward(reason), stale) => {
                self.fetch(reason, stale, entry, key)
            }
            // Reuse without a stored response does not happen; asking the origin is right in any case.
            (_, None) => self.fetch(NotReused::Miss, None, entry, key),
        }
    }

    fn fetch(
        &self,
        reason: NotReused,
        stale: Option<Hit>,
        entry: Option<&Arc<CacheEntry>>,
        key: &[u8],
    ) -> Found {
        let fwd = reason.fwd();
        if self.facts.has_origin_conditions || matches!(fwd, FwdReason::Bypass | FwdReason::Method) {
            return Found::Forward(ForwardReason { fwd, detail: reason.into() }, None);
        }
        // HEAD brings no body to store.
        if self.facts.method == MethodClass::Head {
            return Found::Forward(ForwardReason { fwd, detail: reason.into() }, stale);
        }
        let uncacheable = entry
            .and_then(|entry| entry.why_uncacheable(self.facts, self.now))
            .filter(|_| !self.was_shared_lately(stale.as_ref()));
        // The origin can answer these with less than the whole, which is all that a response for one client has
        // to be. A stale response is worth more: it may be validated, or stand in for an origin that fails.
        let is_partial = self.facts.has_conditions || self.facts.has_range;
        if let Some(because) = uncacheable.filter(|_| is_partial && stale.is_none()) {
            note(self.request.record, || {
                findings::because("store", "not stored, a short while ago", because)
            });
            return Found::Forward(ForwardReason { fwd, detail: Reason::KnownUncacheable.into() }, stale);
        }
        let origin_judges = self.origin_judges(entry);
        // A part for one client, if the precondition holds.
        if self.facts.has_range && origin_judges {
            return Found::Forward(ForwardReason { fwd, detail: reason.into() }, stale);
        }
        // Who asks for something newer than what others get must not be given an answer that was asked
        // for before. What was uncacheable will be so again, or not: nobody waits for it, and it is stored if it can be.
        // What is stored for requests without credentials alone tells that nothing is shared with others.
        let is_alone = fwd == FwdReason::Request || origin_judges || reason == NotReused::Credentials;
        let sharing = match entry.and_then(|entry| entry.uncacheable()) {
            Some(known) if uncacheable.is_some() => Sharing::Unlikely(known),
            _ if is_alone => Sharing::Alone,
            _ => Sharing::Joined,
        };
        let max = self.live.config.validation_tags_max;
        let may_name = |head: &StoredHead| self.may_name(head);
        let candidates = entry.map(|entry| entry.candidates(stale.as_ref(), max, may_name));
        let candidates = candidates.unwrap_or_default();
        let variant = self.variant_key(entry);
        let range_miss = self.site.rule_at(self.rule).range_miss;
        let scope = match &stale {
            _ if origin_judges => FetchScope::AsAsked,
            Some(hit) if hit.body.is_whole() => FetchScope::Whole,
            _ => FetchScope::on_miss(self.facts, self.request.fields, range_miss, || {
                self.arrived_bytes(key, &variant)
            }),
        };
        let (key, content) = (key.into(), self.content.cloned().unwrap_or_default());
        Found::Fetch(Arc::new(Fetch { key, variant, stale, candidates, reason, sharing, scope, content }))
    }

    fn was_shared_lately(&self, stale: Option<&Hit>) -> bool {
        let lately_ms = self.site.config.collapse.uncacheable_for_ms().unsigned_abs();
        was_shared_lately(stale.map(|hit| &hit.head.facts), self.now, lately_ms)
    }

    /// Whether the preconditions of the client are left to the origin: nothing is stored that they could be judged by.
    //= RFC 9111 section 4.3.2: preconditions where nothing is stored
    fn origin_judges(&self, entry: Option<&Arc<CacheEntry>>) -> bool {
        let rule = self.site.rule_at(self.rule);
        self.facts.has_conditions
            && rule.precondition_miss == PreconditionMiss::Forward
            && entry.is_none_or(|entry| entry.variants().is_empty())
    }

    /// Whether a validation may name a stored response that this request did not select.
    fn may_name(&self, head: &StoredHead) -> bool {
        let rules = &self.site.rule_at(self.rule).caching;
        sharing::may_name(self.facts, &head.facts, head.nominated(), rules)
    }

    fn arrived_bytes(&self, key: &[u8], variant: &[u8]) -> Option<u64> {
        self.worker.shared.cache.fetches().arrived_bytes(key, variant)
    }

    fn selecting(&self) -> Selecting<'_> {
        let sent = self.request.sent.unwrap_or(self.request.fields);
        self.site.rule_at(self.rule).selecting(sent)
    }

    /// The variant that is asked for, as far as a stored response tells what it depends on.
    fn variant_key(&self, entry: Option<&Arc<CacheEntry>>) -> Vec<u8> {
        let mut variant = Vec::new();
        if let Some(newest) = entry.and_then(|entry| entry.variants().first()) {
            newest.head.nominated().write_variant_key(self.selecting(), &mut variant);
        }
        variant
    }

    /// What to do where a stored response lacks bytes of the answer.
    ///
    /// # Errors
    /// When the request wants nothing to be forwarded.
    //= RFC 9111 section 3.3: an incomplete response answers ranges inside it only
    //= RFC 9111 section 3.3: completing by a range request
    pub(crate) fn mode_for_rest(
        &self,
        serving: &Serving<'_>,
        hit: &Hit,
        key: &[u8],
    ) -> Result<ForwardMode, NotReused> {
        let rule = self.site.rule_at(self.rule);
        let reason = NotReused::Partial;
        if let Reuse::Unavailable(reason) = on_miss(self.facts, &rule.caching, Miss::Bytes) {
            return Err(reason);
        }
        let scope = FetchScope::for_rest(serving, hit, rule);
        let Some(scope) = scope.filter(|_| self.facts.method == MethodClass::Get) else {
            let reason = ForwardReason { fwd: reason.fwd(), detail: reason.into() };
            return Ok(ForwardMode::Alone { reason, stale: None });
        };
        let variant = self.variant_key(self.worker.shared.cache.look_up(key).as_ref());
        note(self.request.record, || {
            findings::because("reuse", "only what is missing is fetched", reason.into())
        });
        Ok(ForwardMode::Fetch(Arc::new(Fetch {
            key: key.into(),
            variant,
            stale: None,
            candidates: Vec::new(),
            reason,
            sharing: Sharing::Joined,
            scope,
            content: Bytes::new(),
        })))
    }

    /// What validates a stale response.
    pub(crate) fn validation(&self, hit: &Hit, key: &[u8]) -> Fetch {
        let tags_max = self.live.config.validation_tags_max;
        Fetch {
            key: key.into(),
            variant: self.variant_key(self.worker.shared.cache.look_up(key).as_ref()),
            stale: Some(hit.clone()),
            candidates: hit.with_candidates(tags_max, |head| self.may_name(head)),
            reason: NotReused::Expired,
            sharing: Sharing::Joined,
            scope: FetchScope::Whole,
            content: self.content.cloned().unwrap_or_default(),
        }
    }

    /// Requests whose content or purpose isn't part of a cache key.
    fn why_pass(&self) -> Option<ForwardReason> {
        if self.request.upgrade.is_some() {
            return Some(ForwardReason { fwd: FwdReason::Bypass, detail: Reason::Upgrade.into() });
        }
        let has_content = self.request.content != Content::None;
        if matches!(self.facts.method, MethodClass::Get | MethodClass::Head) && has_content {
            return Some(ForwardReason { fwd: FwdReason::Bypass, detail: Reason::RequestContent.into() });
        }
        None
    }
}

//= RFC 9111 section 4.1: no match is forwarded
fn miss_kind(entry: Option<&CacheEntry>) -> Miss {
    match entry {
        Some(entry) if !entry.variants().is_empty() => Miss::Vary,
        _ => Miss::Uri,
    }
}
