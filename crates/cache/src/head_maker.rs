//! Heads of stored responses: created from a response of the origin, and recreated when another response updates them.

use caching::validation::HeadLimits;
use caching::{
    ExchangeTimes, FieldLine, NominatedFields, NominatedValues, NotStored, RequestFacts, Storable,
    StorageFilter, StoredFacts, Timestamp, VaryUnusable, fields, may_store, sharing, tags, validation,
};
use message::fields::PackedFields;
use message::head::OwnedRequest;
use origin::{FIELDS_MAX, HEAD_BYTES_MAX, OriginResponse};
use smallvec::SmallVec;
use tokio::sync::SetOnce;

use crate::entry::cold_fields::ColdFields;
use crate::entry::provenance::{self, Provenance};
use crate::entry::stored::StoredHead;
use crate::invalidation::Invalidations;
use crate::membership::{Membership, Stamp};
use crate::portable;
use crate::settings::StorageRules;

/// Request whose response supplied a stored head.
pub trait ForwardedRequest: Send + Sync {
    /// The request as the client sent it.
    fn received(&self) -> &OwnedRequest;

    /// Field lines that were sent to the origin.
    fn sent(&self) -> &PackedFields;

    /// Set when another request waits for this request's slot at the origin.
    fn place_wanted(&self) -> &SetOnce<()>;
}

/// Response of an origin, with the fields that Larder forwards.
pub struct Arrived<'a> {
    pub response: &'a OriginResponse,
    /// Fields as this cache forwards them, without hop-by-hop fields.
    pub end_to_end: PackedFields,
    pub times: ExchangeTimes,
}

/// Makes the heads that are stored for the responses to one request.
pub struct HeadMaker<'a> {
    pub rules: StorageRules<'a>,
    pub request: &'a dyn ForwardedRequest,
    /// Facts of the request, treated as a GET.
    pub facts: &'a RequestFacts,
    /// Cache key of the target URI alone, if the key of the response has more parts.
    pub site_key: Option<Vec<u8>>,
    pub invalidations: &'a Invalidations,
    /// Stamp of the request.
    pub stamp: Stamp,
    /// Whether the inputs of decisions are kept with a head.
    pub keeps_inputs: bool,
}

/// Limits for heads combined from several responses: the same as for a single response from an origin.
const LIMITS: HeadLimits = HeadLimits { fields_max: FIELDS_MAX, bytes_max: HEAD_BYTES_MAX };

/// A stored head with new fields.
pub struct Freshened {
    pub head: StoredHead,
    /// Whether the response may stay stored, because the new fields may forbid storing.
    pub storable: Result<Storable, NotStored>,
}

impl HeadMaker<'_> {
    /// Creates a stored head with the fields of `response` in place of its own.
    pub fn freshen(&self, stored: &StoredHead, arrived: &Arrived<'_>) -> Freshened {
        let Arrived { response, end_to_end, times } = arrived;
        let (rules, times) = (self.rules.caching, *times);
        let received = response.fields.to_lines();
        let news: Vec<FieldLine<'_>> = end_to_end.lines().collect();
        let news = sharing::news(self.facts, stored.facts.status, &news, times, rules);
        let known = stored.fields.to_lines();
        let freshened = validation::freshen(stored.facts.status, &known, &news, times, rules);
        let storable = may_store(self.facts, &freshened.response, rules, times.response);
        let outgrows = validation::outgrows(freshened.fields.iter().copied(), &known, LIMITS);
        let storable = if outgrows { Err(NotStored::HeadTooLarge) } else { storable };
        let facts = StoredFacts::new(self.facts, &freshened.response, rules);
        let is_for_one = storable.is_err_and(|reason| reason != NotStored::RequestNoStore);
        let facts = if is_for_one { facts.for_one_request() } else { facts };
        let fields = PackedFields::from_lines(freshened.fields);
        let membership = match received.iter().any(|(name, _)| tags::names_tags(name)) {
            true => self.membership_after(&received, stored),
            false => stored.membership().cloned(),
        };
        // If no later request could match, `storable` already forbids storing.
        let nominated = NominatedFields::parse(&fields.to_lines()).unwrap_or_default();
        let mut particulars = self.particulars(nominated, stored.reason());
        particulars.change_provenance(|provenance| provenance.membership = membership);
        let mut head = StoredHead::new(facts, fields, stored.declared_bytes(), particulars, self.stamp);
        head.forms.clone_from(&stored.forms);
        let head = self.remember_news(head, stored, (&received, &news), times.request);
        let storable = storable.and_then(|storable| match portable::may_hold(&head, None) {
            true => Ok(storable),
            false => Err(NotStored::HeadTooLarge),
        });
        Freshened { head, storable }
    }

    /// Returns the groups and tags of a response with these fields.
    pub fn membership(&self, received: &[FieldLine<'_>]) -> Option<Membership> {
        let (target, site_key) = (self.request.received().target(), self.site_key.as_deref());
        self.invalidations.membership_of(received, &self.rules, Some(&target), site_key)
    }

    /// Returns the membership after an update with only some of the fields that name groups or tags. Groups or tags from the other fields
    /// stay, because those fields are no longer known.
    fn membership_after(&self, received: &[FieldLine<'_>], stored: &StoredHead) -> Option<Membership> {
        let news = self.membership(received);
        let Some(before) = stored.membership() else { return news };
        let mut news = news.unwrap_or_default();
        news.add_tags(before, self.rules.tags.tags_max);
        if !fields::contains(received, "cache-groups") {
            news.groups.clone_from(&before.groups);
        }
        Some(news)
    }

    /// Returns the head with which to store a response, and the fields that go only to the request that caused the forward.
    pub fn made(
        &self,
        storable: &Storable,
        received: &[FieldLine<'_>],
        arrived: Arrived<'_>,
    ) -> Result<(StoredHead, PackedFields), VaryUnusable> {
        let Arrived { response, end_to_end, times } = arrived;
        let filter = StorageFilter::of(received, self.rules.caching);
        let (stored, unshared) = split(end_to_end, |name| filter.keeps(name));
        let reason = reason(response, storable.facts.status);
        let head = self.head(storable.facts, stored, reason, response.body.content_length())?;
        let head = head.with_membership(self.membership(received));
        Ok((self.remember(head, received, times.request), unshared))
    }

    pub fn head(
        &self,
        facts: StoredFacts,
        fields: PackedFields,
        reason: Option<&[u8]>,
        declared_bytes: Option<u64>,
    ) -> Result<StoredHead, VaryUnusable> {
        let nominated = NominatedFields::parse(&fields.to_lines())?;
        let particulars = self.particulars(nominated, reason);
        Ok(StoredHead::new(facts, fields, declared_bytes, particulars, self.stamp))
    }

    /// Adds the received fields and other inputs of the decision to a head, if they are kept.
    pub fn remember(&self, head: StoredHead, received: &[FieldLine<'_>], sent_at: Timestamp) -> StoredHead {
        if !self.keeps_inputs {
            return head;
        }
        let judged = provenance::judged(received, &head.fields, self.rules.caching);
        let inputs = self.provenance(judged, sent_at);
        head.with_inputs(Some(inputs))
    }

    /// Adds the inputs of the decision to a head that replaces `before` in this update.
    fn remember_news(
        &self,
        head: StoredHead,
        before: &StoredHead,
        lines: (&[FieldLine<'_>], &[FieldLine<'_>]),
        sent_at: Timestamp,
    ) -> StoredHead {
        if !self.keeps_inputs {
            return head;
        }
        let before = before.inputs();
        let judged = provenance::judged_after(before, lines, &head.fields, self.rules.caching);
        let mut inputs = self.provenance(judged, sent_at);
        if let Some(before) = before {
            inputs.body = before.body;
        }
        head.with_inputs(Some(inputs))
    }

    fn provenance(&self, judged: PackedFields, sent_at: Timestamp) -> Provenance {
        let judged = provenance::with_imprint(judged, self.rules.imprint);
        let exchanged = (self.request.received(), self.request.sent());
        let asked_at = self.invalidations.place_of(self.stamp);
        Provenance::new(exchanged, self.facts, (asked_at, sent_at), judged)
    }

    fn particulars(&self, nominated: NominatedFields, reason: Option<&[u8]>) -> ColdFields {
        let nominated_values = if nominated.is_empty() {
            NominatedValues::default()
        } else {
            let request = self.request.sent().to_lines();
            nominated.capture(self.rules.selecting(&request))
        };
        ColdFields::new(nominated, nominated_values, reason)
    }
}

/// Returns the reason phrase for the stored status, unless it is the usual one: a 206 is stored as a part of a 200.
pub fn reason(response: &OriginResponse, stored_status: u16) -> Option<&[u8]> {
    let own = response.reason.as_deref().filter(|_| response.status == stored_status)?;
    (own != http1::reason_phrase(stored_status).as_bytes()).then_some(own)
}

/// Splits the fields into those that are stored and those that go only to the request that caused the forward.
pub fn split(all: PackedFields, keeps: impl Fn(&str) -> bool) -> (PackedFields, PackedFields) {
    let is_kept: SmallVec<[bool; 32]> = all.lines().map(|(name, _)| keeps(name)).collect();
    if is_kept.iter().all(|is_kept| *is_kept) {
        return (all, PackedFields::default());
    }
    let (mut kept, mut unshared) = (PackedFields::with_capacity(all.len()), PackedFields::default());
    for ((name, value), is_kept) in all.lines().zip(is_kept) {
        if is_kept {
            kept.push(name, value);
        } else if !name.eq_ignore_ascii_case("age") {
            unshared.push(name, value);
        }
    }
    (kept, unshared)
}
