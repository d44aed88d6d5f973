//! What lies under a cache key: stored responses that differ by nominated fields.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use caching::validation::{self, Known};
use caching::{
    Matching, NominatedFields, NominatedValues, Selecting, StoredFacts, StoredValidators, Timestamp,
    Validators,
};
use smallvec::SmallVec;
use store::{Budget, Charge, OverBudget, Record, Slice, allocated_bytes};

use super::epochs::{Epochs, Membership};
use super::segmented::Segmented;
use crate::fields::PackedFields;
use crate::reason::Detail;

/// Everything about a stored response except its body. Immutable; freshening makes a new one.
#[derive(Clone, Debug)]
pub(crate) struct StoredHead {
    pub(crate) facts: StoredFacts,
    pub(super) validators: StoredValidators,
    /// Which requests it answers, beyond the cache key (RFC 9111 section 4.1).
    pub(crate) nominated: NominatedFields,
    pub(crate) nominated_values: NominatedValues,
    /// `None`: the usual phrase of the status.
    pub(crate) reason: Option<Box<[u8]>>,
    /// End-to-end fields without `Age` and `Content-Length`, which are computed at each use.
    pub(crate) fields: PackedFields,
    /// What it belongs to, if that can be invalidated.
    pub(crate) membership: Option<Membership>,
    /// Body length where the origin declared it.
    pub(crate) declared_bytes: Option<u64>,
}

impl StoredHead {
    /// What tells this response from others.
    pub(crate) fn validators(&self) -> Validators<'_> {
        self.validators.view(|name| self.fields.value(name))
    }

    fn heap_bytes(&self) -> usize {
        let boxed = [
            size_of::<Self>() + ARC_HEADER_BYTES,
            self.reason.as_deref().map_or(0, <[u8]>::len),
            self.nominated.as_str().len(),
            self.membership.as_ref().map_or(0, Membership::heap_bytes),
        ];
        let boxed = boxed.into_iter().chain(self.nominated_values.heap_bytes());
        boxed.map(allocated_bytes).sum::<usize>() + self.fields.heap_bytes()
    }

    /// Whether it was invalidated since it was asked for. Costs a response without groups one comparison.
    pub(crate) fn is_invalidated(&self, epochs: &Epochs) -> bool {
        self.membership.as_ref().is_some_and(|membership| epochs.is_outdated(membership))
    }

    /// Whether the request's nominated fields select this response.
    //= RFC 9111 section 4.1: all nominated fields match
    //= RFC 9111 section 4: nominated fields match
    pub(crate) fn is_selected_by(&self, request: Selecting<'_>) -> bool {
        self.nominated.is_empty() || self.nominated.matches(&self.nominated_values, request)
    }

    /// Whether the origin is certain to choose this response for the request too.
    fn is_certain_for(&self, request: Selecting<'_>) -> bool {
        self.nominated.is_certain(&self.nominated_values, request, &self.fields.to_lines())
    }

    fn matching(&self) -> Matching<'_> {
        Matching { facts: &self.facts, nominated: &self.nominated }
    }

    /// Whether both answer the same requests, so that one replaces the other.
    pub(crate) fn is_same_variant(&self, other: &Self) -> bool {
        self.nominated == other.nominated && self.nominated_values == other.nominated_values
    }
}

/// A stored response, complete or in part.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    pub(crate) head: Arc<StoredHead>,
    pub(crate) body: StoredBody,
}

/// A stored body.
#[derive(Clone, Debug)]
pub(crate) enum StoredBody {
    /// Complete, inside the record.
    Inline(Bytes),
    /// In segments of their own, any of which may be missing.
    Segments(Segmented),
}

impl StoredBody {
    /// The length of the representation, where it is known.
    pub(crate) fn complete_bytes(&self) -> Option<u64> {
        match self {
            Self::Inline(data) => Some(data.len() as u64),
            Self::Segments(segmented) => segmented.complete_bytes,
        }
    }

    /// Whether every byte is held.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Inline(_) => true,
            Self::Segments(body) => {
                body.complete_bytes.is_some_and(|bytes| body.first_hole(0, bytes).is_none())
            }
        }
    }

    pub(crate) fn segmented(&self) -> Option<&Segmented> {
        match self {
            Self::Inline(_) => None,
            Self::Segments(segmented) => Some(segmented),
        }
    }
}

impl StoredResponse {
    fn known(&self) -> Known<'_> {
        let is_encoded = self.head.fields.value("content-encoding").is_some();
        let of_codings = is_encoded || self.head.nominated.has("accept-encoding");
        let of_users = ["cookie", "authorization"].iter().any(|name| self.head.nominated.has(name));
        Known { validators: self.head.validators(), is_only_for_selected: of_codings || of_users }
    }

    fn heap_bytes(&self) -> usize {
        let body_bytes = match &self.body {
            StoredBody::Inline(data) => allocated_bytes(data.len()) + INLINE_OVERHEAD_BYTES,
            StoredBody::Segments(segmented) => segmented.heap_bytes(),
        };
        self.head.heap_bytes() + body_bytes
    }
}

/// The note that responses for a key are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncacheable {
    pub(crate) until: Timestamp,
    pub(crate) because: Detail,
}

impl Uncacheable {
    /// Whether a new note would say nothing new, for hardly any longer: not worth a new record.
    pub(crate) fn is_renewed_enough(&self, by: &Self, now: Timestamp) -> bool {
        let left_ms = |note: &Self| note.until.as_ms().saturating_sub(now.as_ms());
        self.because == by.because && left_ms(self).saturating_mul(8) >= left_ms(by).saturating_mul(7)
    }
}

/// The record under a cache key. Shared and immutable; each change makes a new one.
#[derive(Debug)]
pub(crate) struct Primary {
    /// Newest first.
    variants: SmallVec<[StoredResponse; 1]>,
    /// Requests for this key are not collapsed then.
    uncacheable: Option<Uncacheable>,
    expires_at_ms: Option<u64>,
    /// Last, so that what it counts is gone before it is.
    charge: Charge,
}

/// The `Arc` and allocation headers of an inline body.
const INLINE_OVERHEAD_BYTES: usize = 48;
/// The two counts of an `Arc`.
pub(crate) const ARC_HEADER_BYTES: usize = 16;

impl Primary {
    /// # Errors
    /// When the memory budget has no room for the record.
    pub(crate) fn new(
        budget: &Arc<Budget>,
        variants: Vec<StoredResponse>,
        uncacheable: Option<Uncacheable>,
    ) -> Result<Self, OverBudget> {
        let expires_at_ms = expires_at_ms(&variants, uncacheable);
        // The usual one lies in the record itself, several in a list of exact size.
        let mut variants: SmallVec<[StoredResponse; 1]> = variants.into_iter().collect();
        variants.shrink_to_fit();
        let list_bytes = if variants.spilled() { size_of_val(&variants[..]) } else { 0 };
        let bytes = allocated_bytes(size_of::<Self>() + ARC_HEADER_BYTES)
            + allocated_bytes(list_bytes)
            + variants.iter().map(StoredResponse::heap_bytes).sum::<usize>();
        let charge = budget.reserve_record(bytes)?;
        Ok(Self { variants, uncacheable, expires_at_ms, charge })
    }

    pub(crate) fn variants(&self) -> &[StoredResponse] {
        &self.variants
    }

    /// Why responses for this key are not stored these days.
    pub(crate) fn why_uncacheable(&self, now: Timestamp) -> Option<Detail> {
        self.uncacheable.filter(|uncacheable| now < uncacheable.until).map(|uncacheable| uncacheable.because)
    }

    pub(crate) fn uncacheable(&self) -> Option<Uncacheable> {
        self.uncacheable
    }

    /// The stored response that the request's nominated fields select.
    pub(crate) fn select(self: &Arc<Self>, request: Selecting<'_>) -> Option<Hit> {
        let index = self
            .best_of(|head| head.is_selected_by(request))
            .or_else(|| self.best_of(|head| head.is_certain_for(request)))?;
        Some(Hit { primary: Arc::clone(self), index })
    }

    //= RFC 9111 section 4.1: the most recent of several matching responses
    fn best_of(&self, is_match: impl Fn(&StoredHead) -> bool) -> Option<usize> {
        let matching = self.variants.iter().enumerate().filter(|(_, variant)| is_match(&variant.head));
        let goes_before = |one: &StoredResponse, other: &StoredResponse| {
            one.head.matching().goes_before(&other.head.matching())
        };
        let best = matching.reduce(|best, next| if goes_before(next.1, best.1) { next } else { best });
        best.map(|(index, _)| index)
    }

    /// Which of the stored responses a validation names, the selected one first.
    pub(crate) fn candidates(self: &Arc<Self>, selected: Option<&Hit>, max: usize) -> Vec<Hit> {
        let stored: Vec<Known<'_>> = self.variants.iter().map(StoredResponse::known).collect();
        let named = validation::candidates(selected.map(|hit| hit.index), &stored, max);
        named.iter().map(|index| Hit { primary: Arc::clone(self), index: *index }).collect()
    }
}

fn expires_at_ms(variants: &[StoredResponse], uncacheable: Option<Uncacheable>) -> Option<u64> {
    let of_variant = |variant: &StoredResponse| {
        let facts = &variant.head.facts;
        let useful_ms = facts.freshness_lifetime_ms().saturating_add(facts.useful_when_stale_ms());
        facts.response_time.as_ms().saturating_add_unsigned(useful_ms)
    };
    let marker = uncacheable.map(|uncacheable| uncacheable.until.as_ms());
    let last_ms = variants.iter().map(of_variant).chain(marker).max()?;
    Some(u64::try_from(last_ms).unwrap_or(0))
}

impl Record for Primary {
    fn charge(&self) -> &Charge {
        &self.charge
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }
}

/// A stored response in use. Holds its record, so that its bytes stay counted until the response is delivered.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    primary: Arc<Primary>,
    index: usize,
}

impl Deref for Hit {
    type Target = StoredResponse;

    fn deref(&self) -> &StoredResponse {
        &self.primary.variants[self.index]
    }
}

impl Hit {
    /// This one and others under the same key, as a validation names them.
    pub(crate) fn with_candidates(&self, max: usize) -> Vec<Self> {
        self.primary.candidates(Some(self), max)
    }

    /// The newest variant of a record that was just written.
    pub(crate) fn newest(primary: Arc<Primary>) -> Option<Self> {
        (!primary.variants.is_empty()).then_some(Self { primary, index: 0 })
    }

    /// The bytes from `start` to `end`; `None` when some of them are missing.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> Option<VecDeque<Slice>> {
        match &self.body {
            StoredBody::Inline(data) => {
                Some(VecDeque::from([data.slice(start as usize..end as usize).into()]))
            }
            StoredBody::Segments(segmented) => segmented.pieces(start, end),
        }
    }
}
