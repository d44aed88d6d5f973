//! Heads of stored responses.

use std::sync::LazyLock;

use caching::compression::Coding;
use caching::partial::may_combine;
use caching::{
    Matching, NominatedFields, NominatedValues, Selecting, StoredFacts, StoredValidators, Timestamp,
    Validators,
};
use message::fields::{KeptFields, PackedFields};
use store::backing::LogCursor;
use store::{ARC_HEADER_BYTES, allocated_bytes};

use crate::entry::cold_fields::ColdFields;
use crate::entry::forms::{Form, FormsCell};
use crate::entry::provenance::Provenance;
use crate::entry::usage::{Mark, Usage};
use crate::membership::{Checked, Membership, Stamp};

/// Everything about a stored response except its body. Immutable: freshening creates a new head.
///
/// Each stored response has one head, so its size matters: see `docs/internals/requests.md`.
#[derive(Clone, Debug)]
pub struct StoredHead {
    pub facts: StoredFacts,
    validators: StoredValidators,
    /// End-to-end fields without `Age` and `Content-Length`, which are computed at each use.
    pub fields: KeptFields,
    /// Declared length of the body, or `UNDECLARED`.
    declared_bytes: u64,
    /// Latest stamp up to which no invalidation applies to the response; initially the stamp of its request.
    pub checked: Checked,
    /// `None` if all parts are empty.
    particulars: Option<Box<ColdFields>>,
    /// Forms in other content codings that have been requested.
    pub forms: FormsCell,
}

const UNDECLARED: u64 = u64::MAX;

impl StoredHead {
    pub fn new(
        facts: StoredFacts,
        fields: PackedFields,
        declared_bytes: Option<u64>,
        particulars: ColdFields,
        asked_at: Stamp,
    ) -> Self {
        let validators = Validators::parse(&fields.to_lines(), facts.response_time).into();
        Self {
            facts,
            validators,
            fields: fields.into(),
            declared_bytes: declared_bytes.unwrap_or(UNDECLARED),
            checked: Checked::at(asked_at),
            particulars: particulars.boxed(),
            forms: FormsCell::default(),
        }
    }

    /// Returns whether this coding is known not to make the body smaller.
    pub fn has_no_gain(&self, coding: Coding) -> bool {
        self.forms.known().is_some_and(|forms| matches!(forms.find(coding), Form::NoGain))
    }

    fn particulars(&self) -> &ColdFields {
        static NONE: LazyLock<ColdFields> = LazyLock::new(ColdFields::default);
        self.particulars.as_deref().unwrap_or_else(|| &NONE)
    }

    fn with_particulars(self, change: impl FnOnce(&mut ColdFields)) -> Self {
        let mut particulars = self.particulars.map(|boxed| *boxed).unwrap_or_default();
        change(&mut particulars);
        Self { particulars: particulars.boxed(), ..self }
    }

    pub fn with_membership(self, membership: Option<Membership>) -> Self {
        self.with_particulars(|particulars| {
            particulars.change_provenance(|provenance| provenance.membership = membership);
        })
    }

    pub fn with_inputs(self, inputs: Option<Provenance>) -> Self {
        self.with_particulars(|particulars| {
            particulars.change_provenance(|provenance| provenance.inputs = inputs.map(Box::new));
        })
    }

    /// Takes over the nominated values of `other`, if both nominate the same fields.
    pub fn for_requests_of(self, other: &Self) -> Self {
        if self.nominated() != other.nominated() {
            return self;
        }
        let nominated_values = other.nominated_values().clone();
        self.with_particulars(|particulars| particulars.nominated_values = nominated_values)
    }

    /// Replaces the fields and the declared length.
    pub fn with_fields(self, fields: PackedFields, declared_bytes: Option<u64>) -> Self {
        let particulars = self.particulars.map(|boxed| *boxed).unwrap_or_default();
        Self::new(self.facts, fields, declared_bytes, particulars, self.checked.stamp())
    }

    /// Returns the head, stale from `now` on.
    pub fn expired(&self, now: Timestamp) -> Self {
        let expired = Self { facts: self.facts.expired(now), ..self.clone() };
        match self.inputs() {
            None => expired,
            Some(inputs) => expired.with_inputs(Some(inputs.expired(now))),
        }
    }

    /// Returns the head, stale since a purge, with all invalidations up to `place` applied.
    pub fn purged(&self, since: Timestamp, (stamp, place): (Stamp, LogCursor)) -> Self {
        let expired = self.expired(since);
        let inputs = expired.inputs().map(|inputs| Provenance { asked_at: Some(place), ..inputs.clone() });
        let expired = if inputs.is_some() { expired.with_inputs(inputs) } else { expired };
        Self { checked: Checked::at(stamp), ..expired }
    }

    pub fn nominated(&self) -> &NominatedFields {
        &self.particulars().nominated
    }

    /// Returns whether a nominated field may reach the origin in another form than the client sent; `None` if no field is nominated.
    pub fn nominates_rewritten(&self) -> Option<bool> {
        let particulars = self.particulars.as_deref().filter(|particulars| !particulars.nominated.is_empty());
        particulars.map(|particulars| particulars.nominates_rewritten)
    }

    /// Returns the usage of the variant; `None` for a response without nominated fields, which answers every request.
    pub fn usage(&self) -> Option<&Usage> {
        let particulars = self.particulars.as_deref().filter(|particulars| !particulars.nominated.is_empty());
        particulars.map(|particulars| &particulars.usage)
    }

    /// Returns a snapshot of the variant's usage, to compare it with other variants of the key.
    pub fn mark(&self) -> Mark {
        self.usage().map_or(Mark::ALWAYS, Usage::mark)
    }

    pub fn nominated_values(&self) -> &NominatedValues {
        &self.particulars().nominated_values
    }

    /// Returns the reason phrase; `None` for the usual phrase of the status.
    pub fn reason(&self) -> Option<&[u8]> {
        self.particulars.as_ref()?.reason.as_deref()
    }

    /// Returns the groups, tags and key by which it can be invalidated, if any.
    pub fn membership(&self) -> Option<&Membership> {
        self.particulars.as_ref()?.membership()
    }

    /// Returns the inputs of the decision to store it, if they are kept.
    pub fn inputs(&self) -> Option<&Provenance> {
        self.particulars.as_ref()?.inputs()
    }

    /// Returns the body length, if the origin declared it.
    pub fn declared_bytes(&self) -> Option<u64> {
        (self.declared_bytes != UNDECLARED).then_some(self.declared_bytes)
    }

    /// Validators of the response.
    pub fn validators(&self) -> Validators<'_> {
        self.validators.view(|name| self.fields.value(name))
    }

    /// Returns the time of the response according to its `Date` field.
    pub fn date(&self) -> Option<Timestamp> {
        self.fields.value("date").and_then(|date| caching::date::parse(date, self.facts.response_time))
    }

    /// Returns whether validators prove that both heads belong to one representation: equal tags, weak or strong, or equal strong dates.
    pub fn is_same_representation(&self, other: &Self) -> bool {
        let (own, others) = (self.validators(), other.validators());
        let is_tag_equal = own.entity_tag().is_some_and(|tag| others.entity_tag() == Some(tag));
        is_tag_equal || may_combine(&own, &others)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocated_bytes(size_of::<Self>() + ARC_HEADER_BYTES)
            + self.fields.heap_bytes()
            + self.particulars.as_deref().map_or(0, ColdFields::heap_bytes)
    }

    /// Returns whether the request's nominated fields select this response.
    //= RFC 9111 section 4.1: all nominated fields match
    //= RFC 9111 section 4: nominated fields match
    pub fn is_selected_by(&self, request: Selecting<'_>) -> bool {
        let Some(particulars) = &self.particulars else { return true };
        let ColdFields { nominated, nominated_values, .. } = &**particulars;
        nominated.is_empty() || nominated.matches(nominated_values, request)
    }

    /// Returns whether the origin would certainly select this response for the request too.
    pub(super) fn is_certain_for(&self, request: Selecting<'_>) -> bool {
        self.nominated().is_certain(self.nominated_values(), request, &self.fields.to_lines())
    }

    /// Returns whether `newer` also answers every request that this response answers, with the same coding.
    pub fn is_covered_by(&self, newer: &Self, selecting: Selecting<'_>) -> bool {
        let coding = |head: &Self| head.fields.value("content-encoding").map(<[u8]>::to_ascii_lowercase);
        !self.nominated().is_empty()
            && self.nominated() == newer.nominated()
            && coding(self) == coding(newer)
            && newer.nominated().covers(
                newer.nominated_values(),
                self.nominated_values(),
                selecting,
                &newer.fields.to_lines(),
            )
    }

    pub(super) fn matching(&self) -> Matching<'_> {
        Matching { facts: &self.facts, nominated: self.nominated() }
    }

    /// Returns whether both heads answer the same requests, so that one replaces the other.
    pub fn is_same_variant(&self, other: &Self) -> bool {
        self.nominated() == other.nominated() && self.nominated_values() == other.nominated_values()
    }
}
