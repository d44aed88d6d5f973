//! Stores the part of a 206, as a separate response or combined with a stored part (RFC 9111 sections 3.3 and 3.4).

use std::sync::Arc;

use cache::collapse::answer::{Answer, Filling};
use cache::collapse::table::LeaderGuard;
use cache::entry::segmented::{CELLS_MAX, cut, first_piece_bytes};
use cache::entry::stored::{CacheEntry, Hit, StoredBody, StoredHead, StoredResponse};
use cache::fill::{CompleteBody, Fill, FillLimits};
use cache::head_maker::{reason, split};
use cache::portable;
use caching::explain::Finding;
use caching::partial::{
    self, Description, HoleAnswer, if_range_value, is_described_alike, is_of_one_message, may_combine,
    same_complete_length,
};
use caching::{
    ByteRange, ContentRange, ExchangeTimes, NotStored, ResponseFacts, StorageFilter, file_type, may_store,
};
use message::fields::PackedFields;
use message::reason::{Detail, Reason};
use origin::OriginResponse;
use store::{Applied, Change, Placement, Segment};

use crate::config::RangeMiss;
use crate::request::fetch::fetch_spec::{FetchScope, MissingRange};
use crate::request::fetch::job::Job;
use crate::request::fetch::publication::{NotTaken, Publication, Replaced};
use crate::request::findings;

/// Maximum number of attempts to store a part if other requests change the record concurrently.
const STORE_ATTEMPTS: usize = 8;

/// A 206 whose part may be stored.
struct Part<'a> {
    response: &'a OriginResponse,
    times: ExchangeTimes,
    range: ContentRange,
    /// Stored response to which the part belongs.
    base: Option<&'a Hit>,
}

/// Source of a part to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    /// A part, as requested.
    Part,
    /// The beginning of a whole response that was cut short. If only missing bytes were requested, a whole response means that the
    /// stored response is outdated.
    Beginning,
}

impl Job {
    /// Processes the response to a request for bytes that a stored response lacks.
    pub(crate) async fn hole_answered(
        &self,
        hole: &MissingRange,
        response: Box<OriginResponse>,
        times: ExchangeTimes,
        leader: LeaderGuard,
    ) {
        if self.lacks_what_it_completes() {
            return leader.land(Answer::Discarded);
        }
        let lines = response.fields.to_lines();
        let (status, length) = (response.status.as_u16(), response.body.content_length());
        let stored = hole.hit.head.fields.to_lines();
        let judgement = partial::judge(status, &lines, length, &hole.wanted(&stored), times.response);
        drop((lines, stored));
        self.worker.recorder.missing_part(judgement.as_str());
        self.note(|| findings::missing_part(judgement));
        match judgement {
            HoleAnswer::Splice(range) => {
                if self.is_for_begun_reply() && self.is_removed(&hole.hit) {
                    leader.keep_from_others();
                }
                let part = Part { response: &response, times, range, base: Some(&hole.hit) };
                match self.publication(&leader).part_filling(&part) {
                    Ok(filling) => self.fill(response, filling, leader).await,
                    // The `no-store` of this request doesn't apply to the stored part, which stays unchanged.
                    Err(Detail::Store(reason)) if reason.is_of_request() => {
                        self.keep_private(response, reason.into(), leader);
                    }
                    Err(_) => self.discard(&hole.hit, leader),
                }
            }
            HoleAnswer::Replace => self.take(response, times, leader).await,
            HoleAnswer::Failed => self.keep_private(response, NotStored::Status.into(), leader),
            HoleAnswer::Discard => self.discard(&hole.hit, leader),
        }
    }

    /// Returns whether a purge or invalidation has removed a stored response.
    fn is_removed(&self, stored: &Hit) -> bool {
        self.is_taken_away() || self.cache().is_removed(&self.fetch.key, &stored.head)
    }

    /// Removes a stored response that can't be completed; the whole response is fetched instead.
    fn discard(&self, stored: &Hit, leader: LeaderGuard) {
        self.publication(&leader).discard(stored);
        leader.land(Answer::Discarded);
    }

    /// Stores the part that answers a client's range, or delivers it only to the request that caused the forward.
    pub(crate) async fn take_part(
        &self,
        range: ContentRange,
        response: Box<OriginResponse>,
        times: ExchangeTimes,
        leader: LeaderGuard,
    ) {
        let stored = self.stored_for(&response, &range, times);
        let part = Part { response: &response, times, range, base: stored.as_ref() };
        match self.publication(&leader).part_filling(&part) {
            Ok(filling) => self.fill(response, filling, leader).await,
            // Smaller parts of the response can be stored, so the key must not be marked as uncacheable.
            Err(reason) if self.is_only_part_too_large(&range) => self.keep_private(response, reason, leader),
            Err(reason) => self.refuse(reason, response, times, leader),
        }
    }

    fn is_only_part_too_large(&self, range: &ContentRange) -> bool {
        let object_bytes = range.complete_bytes.unwrap_or(range.range.last + 1);
        object_bytes <= self.rule().object_bytes_max
            && range.range.len_bytes() > self.cache().body_bytes_max()
    }

    /// Stores the bytes that arrived before a response was cut short, if the rest can be requested later.
    //= RFC 9111 section 3.3: an incomplete 200
    pub(crate) fn store_beginning(&self, filling: &Filling, leader: &LeaderGuard) {
        let (head, first) = (&filling.head, filling.part.map_or(0, |part| part.range.first));
        let Some(complete_bytes) =
            filling.part.map_or_else(|| head.declared_bytes(), |part| part.complete_bytes)
        else {
            return;
        };
        let can_be_completed = self.rule().range_miss == RangeMiss::Part
            && head.facts.status == 200
            && if_range_value(&head.validators()).is_some();
        let arrived_bytes = filling.fill.arrived_bytes();
        let is_too_long = filling.part.is_some_and(|part| arrived_bytes > part.range.len_bytes());
        if !can_be_completed || arrived_bytes == 0 || is_too_long || self.request.method != "GET" {
            return;
        }
        let Some(body) = filling.fill.body() else { return };
        let range = ByteRange { first, last: first + arrived_bytes - 1 };
        let part = ContentRange { range, complete_bytes: Some(complete_bytes) };
        let brought = if filling.part.is_some() { Brought::Part } else { Brought::Beginning };
        let publication = self.publication(leader);
        if range.last < complete_bytes && publication.store_part(head, &part, body, brought).is_ok() {
            self.worker.recorder.part_stored();
            self.note(|| Finding::new("store", "body cut short: stored as a part", "RFC 9111 section 3.3"));
        }
    }

    /// Returns the stored response that a part belongs to.
    fn stored_for(
        &self,
        response: &OriginResponse,
        range: &ContentRange,
        times: ExchangeTimes,
    ) -> Option<Hit> {
        let request = self.request.sent().to_lines();
        let stored = self.cache().look_up(&self.fetch.key)?.select(self.rule().selecting(&request))?;
        let lines = response.fields.to_lines();
        let received = caching::Validators::parse(&lines, times.response);
        let fits = stored.head.facts.status == 200
            && may_combine(&stored.head.validators(), &received)
            && is_described_alike(&stored.head.fields.to_lines(), &lines, Description::Full)
            && same_complete_length(stored.body.complete_bytes(), range.complete_bytes);
        fits.then_some(stored)
    }

    /// Returns whether the size and position of a part allow storing it. If a part that completes a stored response is too large, it is
    /// delivered through a window.
    fn has_room_for(&self, range: &ContentRange) -> bool {
        let cache = self.cache();
        let object_bytes = range.complete_bytes.unwrap_or(range.range.last + 1);
        object_bytes <= self.rule().object_bytes_max
            && (self.is_for_hole() || range.range.len_bytes() <= self.limits().body_bytes_max)
            && range.range.last / (cache.memory.segment_bytes_max().max(1) as u64) < CELLS_MAX
    }
}

impl Publication<'_> {
    /// Prepares head and fill of a part. The head is stored like the head of a 200. Only the body shows that the response is a part.
    fn part_filling(&self, part: &Part<'_>) -> Result<Filling, Detail> {
        let (job, response, times) = (self.job, part.response, part.times);
        let rules = &job.rule().caching;
        let received = response.fields.to_lines();
        let alone = ResponseFacts::parse(200, &received, times, rules);
        let storable = may_store(&job.facts, &alone, rules, times.response)?;
        file_type::permits(
            rules,
            &job.request.path_and_query,
            alone.status,
            response.fields.values("content-type"),
        )?;
        if response.unknown_transfer_coding {
            return Err(Reason::UnknownTransferCoding.into());
        }
        if !job.has_room_for(&part.range) {
            return Err(Reason::TooLarge.into());
        }
        let filter = StorageFilter::of(&received, rules);
        let maker = self.job.head_maker();
        let end_to_end = self.job.arrived(response, times).end_to_end;
        let end_to_end = end_to_end.lines().filter(|(name, _)| !is_of_one_message(name));
        let (stored, unshared) = split(PackedFields::from_lines(end_to_end), |name| filter.keeps(name));
        let head = match part.base {
            Some(base) => self.combined_head(base, part)?,
            None => {
                let phrase = reason(response, storable.facts.status);
                let head = maker.head(storable.facts, stored, phrase, part.range.complete_bytes);
                let head = head.map_err(|_| Detail::from(NotStored::VaryUnusable))?;
                let head = head.with_membership(maker.membership(&received));
                maker.remember(head, &received, times.request)
            }
        };
        if !portable::may_hold(&head, Some(&self.job.fetch.key)) {
            return Err(NotStored::HeadTooLarge.into());
        }
        let range = (!part.range.is_complete()).then_some(part.range);
        Ok(Filling {
            head: Arc::new(head),
            status: response.status.as_u16(),
            fill: self.part_fill(part),
            refused: None,
            unshared: Arc::new(unshared),
            part: range,
        })
    }

    fn part_fill(&self, part: &Part<'_>) -> Arc<Fill> {
        let limits = self.job.limits();
        // If the stored response is from another instance, it keeps the segment size of that instance.
        let grid = part.base.and_then(|base| base.body.segmented()).map(|body| body.segment_bytes);
        let segment_bytes = grid.unwrap_or(limits.segment_bytes);
        let first_segment_bytes = first_piece_bytes(part.range.range.first, segment_bytes);
        let limits = FillLimits { segment_bytes, first_segment_bytes, ..limits };
        let budget = Arc::clone(self.job.cache().budget());
        Fill::new(budget, limits, Some(part.range.range.len_bytes()), Arc::clone(&self.in_flight.waiters))
    }

    /// Updates the head of a stored response with the fields of a new part, as after a 304.
    //= RFC 9111 section 3.4: fields of the newer part
    //= RFC 9110 section 15.3.7.3: header fields of the most recent part
    fn combined_head(&self, base: &Hit, part: &Part<'_>) -> Result<StoredHead, Detail> {
        // A reply that has begun continues to its end, but the part isn't stored ([`InFlight::is_invalidated`]).
        if !self.job.is_for_begun_reply() && self.job.cache().is_removed(&self.job.fetch.key, &base.head) {
            return Err(Reason::Outdated.into());
        }
        let freshened =
            self.job.head_maker().freshen(&base.head, &self.job.arrived(part.response, part.times));
        freshened.storable?;
        let declared_bytes = base.body.complete_bytes().or(part.range.complete_bytes);
        let of_whole = freshened.head.fields.lines().filter(|(name, _)| !is_of_one_message(name));
        let fields = PackedFields::from_lines(of_whole);
        // The head still answers all its earlier requests, not just this one.
        Ok(freshened.head.with_fields(fields, declared_bytes).for_requests_of(&base.head))
    }

    /// Combines a part with the stored response that it belongs to, or replaces that response.
    pub(crate) fn store_part(
        &self,
        head: &Arc<StoredHead>,
        part: &ContentRange,
        body: CompleteBody,
        brought: Brought,
    ) -> Result<(), NotTaken> {
        let segments = self.segments_of(part, body)?;
        let cache = self.job.cache();
        for _ in 0..STORE_ATTEMPTS {
            let seen = cache.look_up(&self.job.fetch.key);
            let stored = seen.iter().flat_map(|entry| entry.variants());
            let stored = stored.into_iter().find(|variant| variant.head.is_same_variant(head));
            // The segments are stored before the record changes, because the update itself must not store segments.
            let body = match self.body_to_extend(stored, head, (part, brought))? {
                StoredBody::Inline(data) => StoredBody::Inline(data),
                StoredBody::Segments(held) => held
                    .with_part(&cache.memory, part.range.first, segments.clone(), part.complete_bytes)
                    .into(),
            };
            match self.put_if_unchanged(seen.as_ref(), StoredResponse { head: Arc::clone(head), body }) {
                Some(Applied::Stored) => return Ok(()),
                Some(_) => return Err(NotTaken),
                None => {}
            }
        }
        Err(NotTaken)
    }

    /// Cuts the part into segments at cell boundaries. Fails if its length differs from the announced one.
    fn segments_of(&self, part: &ContentRange, body: CompleteBody) -> Result<Vec<Segment>, NotTaken> {
        let cache = self.job.cache();
        let segments = match body {
            CompleteBody::Inline(data) => cut(
                &cache.memory,
                Placement::Heap,
                (part.range.first, cache.memory.segment_bytes_max()),
                &data,
            ),
            CompleteBody::Segments(segments) => Ok(segments),
        };
        let segments = segments.map_err(|_| NotTaken)?;
        let bytes = segments.iter().map(|segment| segment.len() as u64).sum::<u64>();
        if bytes == part.range.len_bytes() { Ok(segments) } else { Err(NotTaken) }
    }

    /// Returns the body to which a part is added: the stored body of the same representation, or an empty one. Fails if a different
    /// response has been stored since the request was sent.
    //= RFC 9111 section 3.4: the same strong validator
    fn body_to_extend(
        &self,
        stored: Option<&StoredResponse>,
        head: &StoredHead,
        (part, brought): (&ContentRange, Brought),
    ) -> Result<StoredBody, NotTaken> {
        let hole = match (&self.job.fetch.scope, brought) {
            (FetchScope::MissingRange(hole), Brought::Part) => Some(hole),
            _ => None,
        };
        let is_for_hole = hole.is_some();
        let Some(stored) = stored else {
            // The response to complete has been removed, perhaps by a purge, so its fields must not be stored again.
            return if is_for_hole { Err(NotTaken) } else { Ok(self.empty_body(part)) };
        };
        // A response that was stored in the meantime has newer fields, which older ones must not replace.
        let is_another = |hole: &MissingRange| {
            let bodies = hole.segmented().zip(stored.body.segmented());
            !bodies.is_some_and(|(asked, held)| asked.is_same_representation(held))
        };
        let can_be_combined = stored.head.facts.status == 200
            && !hole.is_some_and(is_another)
            && may_combine(&stored.head.validators(), &head.validators())
            && is_described_alike(&stored.head.fields.to_lines(), &head.fields.to_lines(), Description::Full)
            && same_complete_length(stored.body.complete_bytes(), part.complete_bytes);
        if can_be_combined {
            return Ok(stored.body.clone());
        }
        let is_newer = stored.head.facts.response_time >= head.facts.response_time;
        if is_newer || is_for_hole { Err(NotTaken) } else { Ok(self.empty_body(part)) }
    }

    fn empty_body(&self, part: &ContentRange) -> StoredBody {
        let body = self.job.cache().open_body(part.complete_bytes);
        StoredBody::Segments(Box::new(body))
    }

    /// Stores `response`. Returns `None` if the record has changed since `seen`.
    fn put_if_unchanged(&self, seen: Option<&Arc<CacheEntry>>, response: StoredResponse) -> Option<Applied> {
        let mut is_unchanged = true;
        let applied = self.update(|current| {
            is_unchanged = current.map(Arc::as_ptr) == seen.map(Arc::as_ptr);
            if !is_unchanged {
                return Change::Keep;
            }
            self.with_variant(current, response, Replaced::Variant)
                .map_or(Change::Keep, |entry| Change::Put(Arc::new(entry)))
        });
        is_unchanged.then_some(applied)
    }

    /// Removes a stored response that differs from the origin's current one.
    pub(crate) fn discard(&self, discarded: &Hit) {
        let Some(body) = discarded.body.segmented() else { return };
        self.keep_only(|variant| {
            !variant.body.segmented().is_some_and(|own| own.is_same_representation(body))
        });
    }
}
