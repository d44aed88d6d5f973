//! Looks up the stored response for a request, and replies if it can be used.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use cache::entry::stored::{CacheEntry, Hit, StoredHead};
use cache::entry::usage::Owner;
use cache::failure::FailureCause;
use cache::membership::{LookUp, Stamp};
use caching::explain::{self, Finding};
use caching::{
    FwdReason, KeyParts, MethodClass, Miss, NotReused, Reuse, Selecting, key::write_key, on_miss, query,
    sharing,
};
use message::explain_record::{Record, note};
use message::head::{Content, Nominations, RequestHead};
use message::reason::Reason;
use message::timeline::{Stage, measure};
use origin::{Gathered, RequestBody};

use crate::config::Site;
use crate::request::context::RequestContext;
use crate::request::decide::{AskedFor, Asking, Decision, ReuseInput, Standing};
use crate::request::fetch::fetch_spec::FetchScope;
use crate::request::fetch::fetch_spec::{Fetch, TierLookUp};
use crate::request::plan::{self, Assemble, ForwardMode, ForwardReason, Next, Plan, StandIn};
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::request::serve::Use;
use crate::request::{findings, refresh};
use crate::rewrite::reading::{self, Inbound};
use crate::routing::{Keyed, key_of, write_site_key};

/// One look-up.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) context: RequestContext<'a>,
    /// Stamp taken before the look-up.
    pub(crate) stamp: Stamp,
    /// Content of a QUERY, after it has been read.
    pub(crate) content: Option<&'a Bytes>,
    pub(crate) tier: TierLookUp,
}

/// Outcome of a look-up.
pub(crate) enum Found {
    /// The request is forwarded, and its response is for this client alone. A stored response may be used if the origin fails.
    Forward(ForwardReason, Option<StandIn>),
    /// The content must be read first, because it is part of the cache key.
    NeedContent,
    /// A stored response can be used.
    Use(Hit, Use),
    /// The request must be forwarded; the response may be stored.
    Fetch(Arc<Fetch>),
    /// `only-if-cached`, and no stored response can be used.
    Unavailable,
    /// The tier behind memory may have a record, which must be loaded first.
    Load,
}

impl<'a> Deref for Lookup<'a> {
    type Target = RequestContext<'a>;

    #[inline]
    fn deref(&self) -> &RequestContext<'a> {
        &self.context
    }
}

impl<'a> Lookup<'a> {
    /// Prepares the look-up of a request without content.
    #[inline]
    pub(crate) fn new(context: RequestContext<'a>) -> Self {
        let stamp = context.cache().invalidations.stamp();
        Self { context, stamp, content: None, tier: TierLookUp::Unasked }
    }

    #[inline]
    pub(crate) fn run(&self, key: &mut Vec<u8>) -> Found {
        if let Some(reason) = self.why_pass() {
            return Found::Forward(reason, None);
        }
        match (self.facts.method, self.content) {
            (MethodClass::Query, Some(content)) => self.write_query_key(content, key),
            (MethodClass::Query, None) if self.rule.caching.enabled => return Found::NeedContent,
            _ => self.write_key(key),
        }
        if let Some(record) = self.request.record {
            let purge = self.cache().purge_behind(key);
            purge.iter().for_each(|purge| record.note(findings::purged(&purge.record)));
        }
        let entry = self.cache().look_up(key);
        if self.may_load(entry.as_ref(), key) {
            return Found::Load;
        }
        let (site, request) = (&self.site.config, self.request);
        match &entry {
            Some(record) if request.sent.is_none() && differs_for(record, request, site) => {
                let inbound = Inbound::new(request, self.live, self.site, self.matched);
                let request = RequestHead { sent: Some(&inbound.sent().to_lines()), ..*request };
                let context = RequestContext { request: &request, ..self.context };
                Lookup { context, ..*self }.decide(entry.as_ref(), key)
            }
            _ => self.decide(entry.as_ref(), key),
        }
    }

    /// Returns whether to load a record from the tier, because memory lacks it or may have a different version.
    fn may_load(&self, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> bool {
        self.tier == TierLookUp::Unasked
            && self.store().may_load(entry, key)
            && self.facts.method.is_reusing()
            && self.rule.caching.enabled
    }

    /// Selects a stored response, decides about its use, and returns the outcome for the request.
    fn decide(&self, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> Found {
        let selected = entry.and_then(|entry| entry.select(self.selecting()));
        let lately_ms = self.site.config.collapse.uncacheable_for_ms().unsigned_abs();
        let Self { context: RequestContext { facts, rule, now, .. }, .. } = *self;
        let question = ReuseInput { facts, rule, entry, key, lately_ms, now };
        let reuse = question
            .reuse(selected.as_ref().zip(entry).map(|(hit, entry)| (hit, self.standing(entry, hit, key))));
        if let Some(record) = self.request.record {
            self.tell(record, key, entry.map(Arc::as_ref), selected.as_ref(), reuse);
        }
        match question.decide(reuse, selected) {
            Decision::Use(hit, used) => {
                self.note_use(&hit);
                Found::Use(hit, used)
            }
            Decision::Unavailable => Found::Unavailable,
            Decision::Forward(reason, stale) => {
                if reason.detail == Reason::KnownUncacheable.into()
                    && let Some(known) = entry.and_then(|entry| entry.uncacheable())
                {
                    let says = "not stored, a short while ago";
                    note(self.request.record, || findings::because("store", says, known.because));
                }
                Found::Forward(reason, stale.map(|hit| StandIn { hit, look_up: self.look_up(key) }))
            }
            Decision::Fetch(asking) => self.fetch(asking, entry, key),
        }
    }

    /// Records the use of a response, so that it keeps its place among the variants of its key.
    #[inline]
    fn note_use(&self, hit: &Hit) {
        let Some(usage) = hit.head.usage() else { return };
        usage.note(self.now, || Owner::of(self.client()));
    }

    fn standing(&self, entry: &CacheEntry, hit: &Hit, key: &[u8]) -> Standing {
        let cache = self.cache();
        match cache.is_invalidated(key, &hit.head) {
            true => Standing::Invalidated,
            false if self.store().needs_verification(entry) => Standing::Unverified,
            false => Standing::Valid,
        }
    }

    fn write_key(&self, key: &mut Vec<u8>) {
        write_site_key(&self.keyed(), self.request.path_and_query, &self.rule.query, key);
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
        write_key(&parts, &self.rule.query, key);
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
        let rules = &self.rule.caching;
        let finding = Finding::new("key", "the cache key", "RFC 9111 section 2").with("key", shown, "");
        record.note(findings::keyed(finding, self.request.keyed, rules));
        let selection = findings::selection(entry, selected, self.selecting(), rules);
        selection.into_iter().for_each(|finding| record.note(finding));
        let facts = selected.map(|hit| &hit.head.facts);
        record.note(explain::reuse(decision, facts, self.now));
    }

    fn fetch(&self, asking: Asking<Hit>, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> Found {
        let Asking { reason, stale, sharing, asked_for } = asking;
        let max = self.live.config.store(&self.site.config).validation_tags_max;
        let may_name = |head: &StoredHead| self.may_name(head);
        let candidates = entry.map(|entry| entry.candidates(stale.as_ref(), max, may_name));
        let candidates = candidates.unwrap_or_default();
        let fetch = self.fetch_for(reason, entry, key);
        let range_miss = self.rule.range_miss;
        let scope = match asked_for {
            AskedFor::AsAsked => FetchScope::AsAsked,
            AskedFor::Whole => FetchScope::Whole,
            AskedFor::OnMiss => FetchScope::on_miss(self.facts, self.request.fields, range_miss, || {
                self.cache().fetches.arrived_bytes(key, &fetch.variant)
            }),
        };
        Found::Fetch(Arc::new(Fetch { stale, candidates, sharing, scope, ..fetch }))
    }

    /// Returns a fetch of the whole response for this request, without validation.
    fn fetch_for(&self, reason: NotReused, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> Fetch {
        Fetch {
            variant: self.variant_key(entry),
            content: self.content.cloned().unwrap_or_default(),
            in_use: self.cache().kept_in_use(entry),
            ..Fetch::new(key, self.look_up(key), reason)
        }
    }

    /// Returns a record of this look-up, for later comparison with invalidations.
    fn look_up(&self, key: &[u8]) -> LookUp {
        let RequestHead { scheme, authority, path_and_query, keyed, .. } = *self.request;
        let invalidations = &self.cache().invalidations;
        if self.facts.method != MethodClass::Query && keyed.is_empty() {
            return invalidations.look_up(key, self.stamp);
        }
        // An entry whose key has more parts than the URL is invalidated through the key of the URL alone.
        invalidations.look_up(&key_of(self.site, scheme, authority, path_and_query), self.stamp)
    }

    /// Starts the background validation of a response, if its use requires one.
    #[inline]
    fn validate_behind(&self, used: Use, hit: &Hit, key: &[u8]) {
        match used {
            Use::RefreshAhead => refresh::behind(self, "ahead", hit, key),
            Use::StaleWhileRevalidate => refresh::behind(self, "stale", hit, key),
            Use::Fresh | Use::Stale(_) | Use::Asked { .. } | Use::FoundElsewhere(_) => {}
        }
    }

    /// Returns whether a validation may include a stored response that this request didn't select.
    fn may_name(&self, head: &StoredHead) -> bool {
        let rules = &self.rule.caching;
        sharing::may_name(self.facts, &head.facts, head.nominated(), rules)
    }

    pub(crate) fn selecting(&self) -> Selecting<'_> {
        let sent = self.request.sent.unwrap_or(self.request.fields);
        self.rule.selecting(sent)
    }

    /// Returns the variant key of the request, from the nominated fields of the newest stored response, if any.
    fn variant_key(&self, entry: Option<&Arc<CacheEntry>>) -> Vec<u8> {
        let mut variant = Vec::new();
        if let Some(newest) = entry.and_then(|entry| entry.variants().first()) {
            newest.head.nominated().write_variant_key(self.selecting(), &mut variant);
        }
        variant
    }

    /// Returns how to continue if a stored response lacks requested bytes; `None` if the request forbids forwarding.
    //= RFC 9111 section 3.3: an incomplete response answers ranges inside it only
    //= RFC 9111 section 3.3: completing by a range request
    pub(crate) fn mode_for_rest(&self, hit: &Hit, used: Use, key: &[u8]) -> Option<ForwardMode> {
        let reason = NotReused::Partial;
        if self.is_within_reach(hit) {
            note(self.request.record, || {
                Finding::new("reuse", "bytes missing from memory are loaded from the tier behind it", "")
            });
            return Some(self.loading(hit, used, None, key));
        }
        let outcome = on_miss(self.facts, &self.rule.caching, Miss::Bytes);
        if matches!(outcome, Reuse::Unavailable(_)) {
            note(self.request.record, || explain::reuse(outcome, None, self.now));
            return None;
        }
        let scope = FetchScope::for_rest(self, hit);
        let Some(scope) = scope.filter(|_| self.facts.method == MethodClass::Get) else {
            let reason = ForwardReason { fwd: reason.fwd(), detail: reason.into() };
            return Some(ForwardMode::Alone { reason, stale: None });
        };
        note(self.request.record, || {
            findings::because("reuse", "only the missing bytes are fetched", reason.into())
        });
        Some(ForwardMode::Fetch(Arc::new(self.rest(scope, key))))
    }

    /// Returns the mode that loads the bytes of a stored response that memory lacks. `cause` is the failure that the response replaces,
    /// if any.
    pub(crate) fn loading(
        &self,
        hit: &Hit,
        used: Use,
        cause: Option<FailureCause>,
        key: &[u8],
    ) -> ForwardMode {
        let fetch = Arc::new(self.rest(FetchScope::Whole, key));
        ForwardMode::Assemble(Arc::new(Assemble { hit: hit.clone(), used, cause, fetch }))
    }

    /// Returns a fetch of the bytes that a stored response lacks.
    fn rest(&self, scope: FetchScope, key: &[u8]) -> Fetch {
        let entry = self.cache().look_up(key);
        Fetch { scope, ..self.fetch_for(NotReused::Partial, entry.as_ref(), key) }
    }

    /// Returns a fetch that validates a stale response.
    pub(crate) fn validation(&self, hit: &Hit, key: &[u8]) -> Fetch {
        let tags_max = self.live.config.store(&self.site.config).validation_tags_max;
        let entry = self.cache().look_up(key);
        Fetch {
            stale: Some(hit.clone()),
            candidates: hit.with_candidates(tags_max, |head| self.may_name(head)),
            ..self.fetch_for(NotReused::Expired, entry.as_ref(), key)
        }
    }

    /// Returns the reason to bypass the cache: an upgrade, or content that isn't part of a cache key.
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

/// Looks up a request, and replies if a stored response can be used.
///
/// # Errors
/// Returns how to continue if there is no immediate reply.
pub(crate) fn settle(lookup: &Lookup<'_>, key: &mut Vec<u8>) -> Result<Reply, ForwardMode> {
    let request = lookup.request;
    let unavailable = || lookup.at.reply(&Problem::only_if_cached());
    let looking = measure(request.timeline, Stage::Local);
    let found = lookup.run(key);
    drop(looking);
    match found {
        Found::Forward(reason, stale) => {
            if let Some(stale) = &stale
                && lookup.site.upstream.open_circuit().is_some()
                && let Some(way) = refresh::instead(lookup, (stale, reason.fwd), key)
            {
                return way;
            }
            note(request.record, || {
                findings::because("pass", "forwarded for this client alone", reason.detail)
            });
            Err(ForwardMode::Alone { reason, stale })
        }
        Found::Use(hit, use_) => match lookup.stored(&hit, use_) {
            Some(reply) => {
                lookup.validate_behind(use_, &hit, key);
                Ok(reply)
            }
            None => match lookup.mode_for_rest(&hit, use_, key) {
                Some(mode) => {
                    if matches!(mode, ForwardMode::Assemble(_)) {
                        lookup.validate_behind(use_, &hit, key);
                    }
                    Err(mode)
                }
                None => Ok(unavailable()),
            },
        },
        Found::Fetch(fetch) => {
            if let Some(hit) = &fetch.stale
                && lookup.site.upstream.open_circuit().is_some()
            {
                let stale = StandIn { hit: hit.clone(), look_up: fetch.look_up };
                if let Some(way) = refresh::instead(lookup, (&stale, fetch.reason.fwd()), key) {
                    return way;
                }
            }
            Err(ForwardMode::Fetch(fetch))
        }
        Found::NeedContent => Err(ForwardMode::Query),
        Found::Unavailable => Ok(unavailable()),
        Found::Load => Err(ForwardMode::Load(key.as_slice().into())),
    }
}

/// Looks up the request of a plan, with its content if that is part of its key.
///
/// # Errors
/// Returns the errors of [`settle`].
pub(crate) fn again(plan: &Plan, content: Option<&Bytes>, tier: TierLookUp) -> Result<Reply, ForwardMode> {
    let (lines, sent) = (plan.request.fields.to_lines(), plan.request.sent().to_lines());
    let request = RequestHead { sent: Some(&sent), ..plan.request.borrow(&lines) };
    let lookup = Lookup { content, tier, ..Lookup::new(plan.context(&request)) };
    settle(&lookup, &mut Vec::new())
}

/// Looks up a QUERY whose content has been read.
pub(crate) fn by_content(plan: &Plan, content: Bytes, tier: TierLookUp) -> Next {
    plan.cache().invalidations.watch_keys();
    match again(plan, Some(&content), tier) {
        Ok(reply) => Next::Reply(reply),
        Err(mode) => mode.first(plan::Content::Read(content)),
    }
}

/// Reads the content, for a look-up that depends on it.
//= RFC 10008 section 2.7: responses to QUERY are cacheable
pub(crate) async fn read_content(plan: &Plan, body: RequestBody) -> Next {
    let pass = |body, why: Reason| {
        let reason = ForwardReason { fwd: FwdReason::Bypass, detail: why.into() };
        Next::Forward { body, reason }
    };
    let (bytes_max, memory) = (plan.rule().query_content_bytes_max, plan.cache().budget());
    match body.gather(bytes_max, memory).await {
        Gathered::Whole(content) if query::is_typed(&plan.request.fields.to_lines()) => Next::LookUp(content),
        Gathered::Whole(content) => pass(RequestBody::from(content), Reason::QueryUntyped),
        Gathered::TooLarge(body) => pass(body, Reason::QueryContent),
        Gathered::Incomplete => {
            let problem = Problem::new(400, "request-content-incomplete", "the request content is truncated");
            Next::Reply(plan.at().failure(&problem))
        }
    }
}

/// Returns whether a look-up must first compute the fields of the forwarded request, because they differ from the received fields, and
/// `Vary` of this record nominates some of them.
fn differs_for(record: &CacheEntry, request: &RequestHead<'_>, site: &Site) -> bool {
    let differs = || request.nominations == Nominations::Some || reading::changes_fields(site);
    record.variants().iter().any(|variant| {
        variant.head.nominates_rewritten().is_some_and(|nominates_rewritten| nominates_rewritten || differs())
    })
}
