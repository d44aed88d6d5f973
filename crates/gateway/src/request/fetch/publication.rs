//! Decides whether a response may be stored, and updates the record under its key with a new response, a freshened response, or only a
//! note that responses aren't stored.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use cache::collapse::answer::{Answer, Filling, PrivateAnswer};
use cache::collapse::table::{InFlight, LeaderGuard};
use cache::entry::stored::{CacheEntry, Hit, StoredBody, StoredHead, StoredResponse, Uncacheable};
use cache::entry::usage::{self, Mark, Owner};
use cache::fill::{CompleteBody, Fill, FillLimits};
use caching::partial::may_combine;
use caching::{
    ExchangeTimes, FieldLine, NotStored, ResponseFacts, Storable, Timestamp, VaryUnusable, file_type,
    may_store, sharing,
};
use http1::ResponseFraming;
use message::clock::now;
use message::reason::{Detail, Reason};
use origin::OriginResponse;
use store::{Applied, Change};

use crate::config::CloseDelimited;
use crate::events::{self, Event};
use crate::request::fetch::fetch_spec::FetchScope;
use crate::request::fetch::job::Job;

/// Permission of one forward to change the record under one key.
pub(crate) struct Publication<'a> {
    pub(crate) job: &'a Job,
    pub(crate) in_flight: &'a InFlight,
}

/// Stored responses that a new response replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replaced<'a> {
    /// Stored response of the same variant.
    Variant,
    /// Stored response of the same variant, and the response that a 304 has updated, if this request selects it.
    Former(&'a Hit),
    /// Stored response of the same variant, and all responses that could have answered this request.
    Selected,
}

/// Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotTaken;

impl Publication<'_> {
    /// Prepares head and fill of a response that may be stored.
    pub(crate) fn filling(
        &self,
        storable: &Storable,
        (lines, times): (&[FieldLine<'_>], ExchangeTimes),
        response: &OriginResponse,
        promised: &Arc<AtomicUsize>,
        limits: FillLimits,
    ) -> Result<Filling, VaryUnusable> {
        let (head, unshared) =
            self.job.head_maker().made(storable, lines, self.job.arrived(response, times))?;
        let budget = Arc::clone(self.job.cache().budget());
        let fill = Fill::new(budget, limits, response.body.content_length(), Arc::clone(promised));
        let status = response.status.as_u16();
        let refused = (!self.has_room_for(&head)).then_some(Reason::VariantsMax);
        let (head, unshared) = (Arc::new(head), Arc::new(unshared));
        Ok(Filling { head, status, fill, refused, unshared, part: None })
    }

    /// Stores a complete response as the newest variant. Removes all older responses that could have answered this request, because the
    /// origin has just sent a newer one.
    pub(crate) fn store(&self, head: &Arc<StoredHead>, body: CompleteBody) -> Result<(), NotTaken> {
        let body = match body {
            CompleteBody::Inline(data) => StoredBody::Inline(data),
            CompleteBody::Segments(segments) => self.store_segments(&segments)?,
        };
        self.put(StoredResponse { head: Arc::clone(head), body }, Replaced::Selected).map(drop)
    }

    fn store_segments(&self, segments: &[store::Segment]) -> Result<StoredBody, NotTaken> {
        let bytes = segments.iter().map(|segment| segment.len() as u64).sum();
        let body = self.job.cache().open_body(Some(bytes)).filled(segments);
        body.map(|body| StoredBody::Segments(Box::new(body))).ok_or(NotTaken)
    }

    fn put(&self, response: StoredResponse, replaced: Replaced<'_>) -> Result<Hit, NotTaken> {
        let mut stored = None;
        let applied = self.update(|current| {
            // The job is checked again under the lock of the key, so that a purged response isn't stored again.
            if matches!(replaced, Replaced::Former(_)) && self.job.is_taken_away() {
                return Change::Keep;
            }
            if let Some(rival) =
                self.in_flight.rival().filter(|rival| self.rivals(rival, &response.head, replaced))
            {
                return self.contested(current, &response.head, &rival, replaced);
            }
            let Some(entry) = self.with_variant(current, response, replaced) else { return Change::Keep };
            let entry = Arc::new(entry);
            stored = Hit::newest(Arc::clone(&entry));
            Change::Put(entry)
        });
        match (applied, stored) {
            (Applied::Stored, Some(hit)) => Ok(hit),
            _ => Err(NotTaken),
        }
    }

    /// Returns whether `rival`, which may be newer, would be replaced by this response and has a different representation.
    fn rivals(&self, rival: &Arc<StoredHead>, head: &Arc<StoredHead>, replaced: Replaced<'_>) -> bool {
        self.is_replaced(rival, head, replaced) && !rival.is_same_representation(head)
    }

    /// Resolves the order of two responses by the origin's clock. If their dates don't show the order, neither counts as newer, and the
    /// next request is forwarded.
    //= RFC 9111 section 4: the most recent of several
    fn contested(
        &self,
        current: Option<&Arc<CacheEntry>>,
        head: &Arc<StoredHead>,
        rival: &StoredHead,
        replaced: Replaced<'_>,
    ) -> Change<CacheEntry> {
        let Some(entry) = current.filter(|_| rival.date() <= head.date()) else { return Change::Keep };
        self.expire(entry, |variant| self.is_replaced(&variant.head, head, replaced))
    }

    /// Makes those variants of an entry stale for which `is_meant` returns true.
    fn expire(&self, entry: &CacheEntry, is_meant: impl Fn(&StoredResponse) -> bool) -> Change<CacheEntry> {
        let now = now();
        let stale = |variant: &StoredResponse| match is_meant(variant) {
            true => variant.expired(now),
            false => variant.clone(),
        };
        entry.changed_to(self.job.cache().budget(), entry.variants().iter().map(stale).collect())
    }

    /// Returns whether a response to be stored replaces `other`.
    fn is_replaced(&self, other: &Arc<StoredHead>, head: &StoredHead, replaced: Replaced<'_>) -> bool {
        let request = self.job.request.sent().to_lines();
        let selecting = self.job.rule().selecting(&request);
        let is_in_place = match replaced {
            Replaced::Variant => false,
            // A response that was stored for another request is kept for the requests that select it, even though it now answers this
            // request, too.
            Replaced::Former(former) => Arc::ptr_eq(&former.head, other) && other.is_selected_by(selecting),
            Replaced::Selected => other.is_selected_by(selecting) || other.is_covered_by(head, selecting),
        };
        other.is_same_variant(head) || is_in_place
    }

    /// Creates the record with a response as its newest variant. Returns `None` if the number of variants or the memory budget leaves
    /// no room.
    pub(crate) fn with_variant(
        &self,
        current: Option<&Arc<CacheEntry>>,
        response: StoredResponse,
        replaced: Replaced<'_>,
    ) -> Option<CacheEntry> {
        let new_head = Arc::clone(&response.head);
        let is_replaced = |other: &Arc<StoredHead>| self.is_replaced(other, &new_head, replaced);
        let others = self.beside(&new_head, current, replaced)?;
        let place = (&*self.job.fetch.key, self.in_flight.exchanged());
        self.job.cache().fetches.supersede(place, &new_head, |other| {
            is_replaced(other) && !may_combine(&other.validators(), &new_head.validators())
        });
        let variants = std::iter::once(response).chain(others).collect();
        // A note that doesn't apply to this request is kept.
        let note = current.and_then(|entry| entry.uncacheable());
        let note = note.filter(|note| !note.scope.has(&self.job.facts));
        CacheEntry::new(self.job.cache().budget(), variants, note).ok()
    }

    /// Returns whether the limit on variants leaves room for a new response.
    pub(crate) fn has_room_for(&self, new: &StoredHead) -> bool {
        let known = new.usage().and_then(|_| self.job.cache().look_up(&self.job.fetch.key));
        let before = known.as_ref().map(|entry| entry.variants()).unwrap_or_default();
        let variants_max = self.variants_max();
        if before.len() < variants_max {
            return true;
        }
        let others =
            before.iter().filter(|variant| !self.is_replaced(&variant.head, new, Replaced::Selected));
        let marks: Vec<Mark> = others.map(|variant| variant.head.mark()).collect();
        let new = Mark::of_new(now(), self.owner());
        marks.len() < before.len() || usage::makes_room(&marks, new, variants_max).is_some()
    }

    fn variants_max(&self) -> usize {
        self.job.live.config.store(&self.job.site.config).variants_max
    }

    fn owner(&self) -> Owner {
        Owner::of(self.job.client())
    }

    /// Returns the variants to keep next to a new one; `None` if there is no room for the new one.
    fn beside(
        &self,
        new: &Arc<StoredHead>,
        current: Option<&Arc<CacheEntry>>,
        replaced: Replaced<'_>,
    ) -> Option<Vec<StoredResponse>> {
        let before = current.map(|entry| entry.variants()).unwrap_or_default().iter().cloned();
        let (replaced, mut others): (Vec<_>, Vec<_>) =
            before.partition(|variant| self.is_replaced(&variant.head, new, replaced));
        let variants_max = self.variants_max();
        if let Some(usage) = new.usage() {
            usage.begin(now(), self.owner());
            let replaced = replaced.iter().filter_map(|variant| variant.head.usage());
            replaced.for_each(|before| usage.take_over(before));
        }
        while others.len() >= variants_max {
            let marks: Vec<Mark> = others.iter().map(|variant| variant.head.mark()).collect();
            others.remove(usage::makes_room(&marks, new.mark(), variants_max)?);
        }
        Some(others)
    }

    pub(crate) fn update(
        &self,
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) -> Applied {
        let decide = |current: Option<&Arc<CacheEntry>>| {
            // The fetch is checked under the lock of the key. A purge that invalidates this fetch later removes the response that is
            // stored now.
            if self.in_flight.is_invalidated() {
                return Change::Keep;
            }
            decide(current)
        };
        let key = &*self.job.fetch.key;
        match (self.job.tier(), &self.job.lease) {
            (Some(tier), Some(lease)) => tier.update_under((key, Some(lease)), decide),
            (None, _) | (_, None) => self.job.cache().update(key, decide),
        }
    }

    /// Freshens the stored responses that a 304 identifies, and returns the first one for the request that caused the validation. This
    /// request may not have selected the first response, but the 304 shows that it answers the request, too. The other responses are
    /// updated only if they could have answered the request. Returns `None` if the update made the head of the first response too large:
    /// the response is removed, and only a full response can answer the request.
    //= RFC 9111 section 4.3.4: responses that could have been chosen
    pub(crate) fn freshen_all<'a>(
        &self,
        mut identified: impl DoubleEndedIterator<Item = &'a Hit>,
        response: &OriginResponse,
        times: ExchangeTimes,
    ) -> Option<(Hit, Result<(), Detail>)> {
        let first = identified.next()?;
        let request = self.job.request.sent().to_lines();
        // The first response is freshened last, so that it becomes the most recent.
        let selecting = self.job.rule().selecting(&request);
        for other in identified.rev().filter(|other| other.head.is_selected_by(selecting)) {
            let _ = self.freshen(other, response, times);
        }
        let (freshened, storing) = self.freshen(first, response, times)?;
        Some((freshened.unwrap_or_else(|| first.clone()), storing))
    }

    /// Stores the response with the fields of a 304 in its place. If the 304 forbids storing, the response only answers this request, and
    /// the stored one is removed. If the request forbids storing, the response only answers this request, and the stored one stays
    /// unchanged ([`cache::head_maker::HeadMaker::freshen`]). If the response isn't stored, also returns the reason. Returns `None` if
    /// the stored response has been removed, or its head has become too large.
    //= RFC 9111 section 5.2.1.5: no-store of the request
    fn freshen(
        &self,
        stale: &Hit,
        response: &OriginResponse,
        times: ExchangeTimes,
    ) -> Option<(Option<Hit>, Result<(), Detail>)> {
        let cache = self.job.cache();
        // The response was purged during the validation, so the 304 refers to a removed response.
        if cache.is_removed(&self.job.fetch.key, &stale.head) {
            return None;
        }
        let freshened = self.job.head_maker().freshen(&stale.head, &self.job.arrived(response, times));
        let response = StoredResponse { head: Arc::new(freshened.head), body: stale.body.clone() };
        match freshened.storable {
            Ok(_) => {
                let stored = self.put(response, Replaced::Former(stale));
                let storing = stored.as_ref().map(|_| ()).map_err(|_| Reason::StoreFull.into());
                return Some((stored.ok(), storing));
            }
            // The `no-store` of this request doesn't apply to the stored response, which stays unchanged.
            //= RFC 9111 section 5.2.1.5: no-store does not reach what is stored already
            Err(reason) if reason.is_of_request() => {}
            Err(_) => self.keep_only(|variant| !variant.head.is_same_variant(&stale.head)),
        }
        if freshened.storable == Err(NotStored::HeadTooLarge) {
            return None;
        }
        let alone = CacheEntry::new(cache.budget(), vec![response], None);
        let alone = alone.ok().and_then(|entry| Hit::newest(Arc::new(entry)));
        Some((alone, freshened.storable.map(drop).map_err(Detail::from)))
    }

    /// Removes the stored responses that this request selects, except those with the same status, because the resource no longer exists.
    /// Making the responses stale isn't enough, because stale responses can be used under `stale-while-revalidate`, or in place of an
    /// error. Returns whether any response was removed.
    fn remove_selected(&self, gone: http::StatusCode) -> bool {
        let request = self.job.request.sent().to_lines();
        let selecting = self.job.rule().selecting(&request);
        let is_kept = |variant: &StoredResponse| {
            variant.head.facts.status == gone.as_u16() || !variant.head.is_selected_by(selecting)
        };
        let mut has_removed = false;
        self.update(|current| {
            let Some(entry) = current.filter(|entry| !entry.variants().iter().all(is_kept)) else {
                return Change::Keep;
            };
            has_removed = true;
            let others: Vec<_> =
                entry.variants().iter().filter(|variant| is_kept(variant)).cloned().collect();
            if others.is_empty() && entry.uncacheable().is_none() {
                return Change::Remove;
            }
            entry.changed_to(self.job.cache().budget(), others)
        });
        has_removed
    }

    /// Removes the stored responses under the key except those `kept`.
    pub(crate) fn keep_only(&self, kept: impl Fn(&StoredResponse) -> bool) {
        let mut is_known = true;
        self.update(|current| {
            is_known = current.is_some();
            let Some(entry) = current else { return Change::Keep };
            let others: Vec<_> = entry.variants().iter().filter(|variant| kept(variant)).cloned().collect();
            if others.is_empty() {
                return Change::Remove;
            }
            entry.changed_to(self.job.cache().budget(), others)
        });
        if !is_known {
            self.job.cache().remove_unknown(&self.job.fetch.key);
        }
    }
}

/// Stores a note that responses for this key aren't stored, so that requests for it don't wait for each other.
fn mark_uncacheable(job: &Job, note: Uncacheable, now: Timestamp, is_outdated: impl FnOnce() -> bool) {
    let cache = job.cache();
    cache.annotate(&job.fetch.key, |current| {
        let known = current.and_then(|entry| entry.uncacheable());
        // The condition is checked under the lock of the key. A later purge removes the note that is stored now.
        let is_known =
            |known: Uncacheable| known.is_renewed_enough(&note, now) || known.says_more_than(&note, now);
        if is_outdated() || known.is_some_and(is_known) {
            return None;
        }
        let variants = current.map(|entry| entry.variants().to_vec()).unwrap_or_default();
        CacheEntry::new(cache.budget(), variants, Some(note)).ok().map(Arc::new)
    });
}

impl Job {
    /// Delivers a response that isn't stored to the request that caused the forward.
    pub(crate) fn refuse(
        &self,
        reason: Detail,
        response: Box<OriginResponse>,
        times: ExchangeTimes,
        leader: LeaderGuard,
    ) {
        let has_removed = self.tells_all_of_absence(reason, &response, times)
            && self.publication(&leader).remove_selected(response.status);
        // Requests to a failing origin must stay collapsed. The same is true for a page that was just removed, because many clients may
        // request it.
        if !response.status.is_server_error() && !has_removed {
            self.remember_refusal(reason, times.response, None, || leader.in_flight.is_invalidated());
        }
        self.keep_private(response, reason, leader);
    }

    /// Returns whether the resource no longer exists for any client, not only for this user or this request. An update by HEAD has the
    /// same criteria.
    fn tells_all_of_absence(&self, reason: Detail, response: &OriginResponse, times: ExchangeTimes) -> bool {
        let is_of_request = matches!(reason, Detail::Store(reason) if reason.is_of_request());
        if !is_gone(response.status) || is_of_request || self.request.has_unkeyed_overrides() {
            return false;
        }
        let rules = &self.rule().caching;
        let lines = response.fields.to_lines();
        let facts = ResponseFacts::parse(response.status.as_u16(), &lines, times, rules);
        sharing::may_inform(&self.facts, &facts, rules)
    }

    /// Stores a note under the key that responses for it aren't stored, if the reason also applies to later responses and there is no
    /// such note yet.
    pub(crate) fn remember_refusal(
        &self,
        reason: Detail,
        now: Timestamp,
        known: Option<Uncacheable>,
        is_outdated: impl FnOnce() -> bool,
    ) {
        if !is_lasting(reason) {
            return;
        }
        let until = now.plus_ms(self.site.config.collapse.uncacheable_for_ms());
        let note = Uncacheable { until, because: reason, scope: self.refusal_scope(reason) };
        self.lease.iter().for_each(|lease| lease.note(note));
        if !known.is_some_and(|known| known.is_renewed_enough(&note, now)) {
            mark_uncacheable(self, note, now, is_outdated);
        }
    }

    pub(crate) fn storable(
        &self,
        facts: &ResponseFacts,
        response: &OriginResponse,
        times: ExchangeTimes,
    ) -> Result<Storable, Detail> {
        let rules = &self.rule().caching;
        let storable = may_store(&self.facts, facts, rules, times.response)?;
        let path_and_query = &self.request.path_and_query;
        file_type::permits(rules, path_and_query, facts.status, response.fields.values("content-type"))?;
        // The response depends on the requested range, which isn't part of the key.
        if response.status == http::StatusCode::RANGE_NOT_SATISFIABLE
            && matches!(self.fetch.scope, FetchScope::Range(_))
        {
            return Err(NotStored::Status.into());
        }
        if response.unknown_transfer_coding {
            return Err(Reason::UnknownTransferCoding.into());
        }
        //= RFC 9112 section 8: what the close ends is complete if its header section is
        if response.body.framing() == ResponseFraming::UntilClose
            && self.rule().close_delimited == CloseDelimited::Pass
        {
            return Err(Reason::CloseDelimited.into());
        }
        match response.body.content_length() {
            Some(bytes) if bytes > self.limits().body_bytes_max => Err(Reason::TooLarge.into()),
            _ => Ok(storable),
        }
    }

    //= RFC 9111 section 5.2.1.5: no trace in storage
    //= RFC 9111 section 5.2.2.5: no trace in storage
    pub(crate) fn keep_private(&self, response: Box<OriginResponse>, reason: Detail, leader: LeaderGuard) {
        self.not_stored(reason);
        let status = response.status.as_u16();
        let response = parking_lot::Mutex::new(Some(response));
        let scope = self.refusal_scope(reason);
        leader.land(Answer::Private(Arc::new(PrivateAnswer { reason, scope, status, response })));
    }

    pub(crate) fn not_stored(&self, reason: Detail) {
        if reason == Reason::MemoryFull.into() {
            self.worker.make_room(&self.site, &self.live.config.limits);
        }
        let reason = reason.as_str();
        self.worker.recorder.not_stored(reason);
        events::emit(&self.site, &self.request.path_and_query, &Event::NotStored(reason));
    }

    pub(crate) fn publication<'a>(&'a self, leader: &'a LeaderGuard) -> Publication<'a> {
        Publication { job: self, in_flight: &leader.in_flight }
    }
}

/// Returns whether a status means that the origin has no resource under the URL.
pub(crate) fn is_gone(status: http::StatusCode) -> bool {
    matches!(status, http::StatusCode::NOT_FOUND | http::StatusCode::GONE)
}

/// Returns whether the next response for the key will probably not be stored either, for requests in the scope of the reason.
fn is_lasting(reason: Detail) -> bool {
    match reason {
        Detail::Store(reason) => matches!(
            reason,
            NotStored::ResponseNoStore
                | NotStored::Private
                | NotStored::Authorization
                | NotStored::Credentials
                | NotStored::NotSignalled
                | NotStored::SetCookie
                | NotStored::TypeMismatch
                | NotStored::VaryAny
                | NotStored::VaryUnusable
                | NotStored::NoFreshness
                | NotStored::HeadTooLarge
        ),
        Detail::Here(_) => true,
        Detail::Reuse(_) | Detail::Origin(_) => false,
    }
}
