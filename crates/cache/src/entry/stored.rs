//! Records under cache keys: stored responses that differ by nominated fields.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use caching::validation::{self, Known};
use caching::{RefusalScope, RequestFacts, Selecting, Timestamp};
use message::reason::Detail;
use store::{ARC_HEADER_BYTES, Budget, Change, Charge, OverBudget, Record, Slice, allocated_bytes};

use crate::entry::copy::TierCopy;
use crate::entry::segmented::Segmented;
use crate::entry::usage::Owner;

pub use crate::entry::head::StoredHead;

/// A stored response, complete or incomplete.
#[derive(Clone, Debug)]
pub struct StoredResponse {
    pub head: Arc<StoredHead>,
    pub body: StoredBody,
}

/// A stored body.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// A complete body, inside the record.
    Inline(Bytes),
    /// A body in segments, any of which may be missing. Boxed, because most bodies are small.
    Segments(Box<Segmented>),
}

impl From<Segmented> for StoredBody {
    /// Converts a body for a record: a small body that has become complete is stored inline.
    //= RFC 9110 section 15.3.7.3: what is whole is a 200
    fn from(body: Segmented) -> Self {
        body.small_whole().map_or_else(|| Self::Segments(Box::new(body)), Self::Inline)
    }
}

impl StoredBody {
    /// Returns the length of the representation, if known.
    pub fn complete_bytes(&self) -> Option<u64> {
        match self {
            Self::Inline(data) => Some(data.len() as u64),
            Self::Segments(segmented) => segmented.complete_bytes,
        }
    }

    /// Returns whether no byte is missing: each is held, or known to a tier.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Inline(_) => true,
            Self::Segments(body) => {
                body.complete_bytes.is_some_and(|bytes| body.first_hole(0, bytes).is_none())
            }
        }
    }

    pub fn segmented(&self) -> Option<&Segmented> {
        match self {
            Self::Inline(_) => None,
            Self::Segments(segmented) => Some(segmented),
        }
    }
}

impl StoredResponse {
    /// Returns a copy that counts as stale.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> Self {
        Self { head: Arc::new(self.head.expired(now)), body: self.body.clone() }
    }

    fn known(&self, may_name: impl Fn(&StoredHead) -> bool) -> Known<'_> {
        let is_encoded = self.head.fields.value("content-encoding").is_some();
        let of_codings = is_encoded || self.head.nominated().has("accept-encoding");
        let is_only_for_selected = of_codings || !may_name(&self.head);
        Known { validators: self.head.validators(), is_only_for_selected }
    }

    fn heap_bytes(&self) -> usize {
        let body_bytes = match &self.body {
            StoredBody::Inline(data) => allocated_bytes(data.len()) + SHARED_BYTES,
            StoredBody::Segments(body) => allocated_bytes(size_of::<Segmented>()) + body.heap_bytes(),
        };
        self.head.heap_bytes() + body_bytes
    }
}

/// Hit-for-miss note: the responses for this key were not stored, so its requests aren't collapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncacheable {
    pub until: Timestamp,
    pub because: Detail,
    /// Requests to which the note applies.
    pub scope: RefusalScope,
}

impl Uncacheable {
    /// Returns whether this note still holds and applies to more requests than `note`.
    pub fn says_more_than(&self, note: &Self, now: Timestamp) -> bool {
        now < self.until && self.scope > note.scope
    }

    /// Returns whether a new note would only extend this one by a little, so that it isn't worth a new record.
    pub fn is_renewed_enough(&self, by: &Self, now: Timestamp) -> bool {
        let left_ms = |note: &Self| note.until.as_ms().saturating_sub(now.as_ms());
        (self.because, self.scope) == (by.because, by.scope)
            && left_ms(self).saturating_mul(8) >= left_ms(by).saturating_mul(7)
    }
}

/// Record under a cache key. It is shared and immutable: each change creates a new record.
#[derive(Debug)]
pub struct CacheEntry {
    variants: Variants,
    /// Note that prevents requests for this key from being collapsed.
    uncacheable: Option<Box<Uncacheable>>,
    /// `NEVER` if the record does not expire.
    expires_at_ms: u64,
    /// State of this record as a copy of a record in the tier.
    pub copy: TierCopy,
    /// Last field, because it must be dropped after the memory that it counts.
    charge: Charge,
}

/// Stored responses, newest first.
#[derive(Debug)]
enum Variants {
    /// The usual case: one response, in the record itself.
    One(StoredResponse),
    /// No response, or several.
    List(Box<[StoredResponse]>),
}

impl Variants {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::One(response) => response.heap_bytes(),
            Self::List(list) => {
                let each = list.iter().map(StoredResponse::heap_bytes).sum::<usize>();
                allocated_bytes(size_of_val(&**list)) + each
            }
        }
    }
}

impl From<Vec<StoredResponse>> for Variants {
    fn from(mut responses: Vec<StoredResponse>) -> Self {
        match (responses.pop(), responses.is_empty()) {
            (Some(only), true) => Self::One(only),
            (last, _) => {
                responses.extend(last);
                Self::List(responses.into())
            }
        }
    }
}

const NEVER: u64 = u64::MAX;

/// Size of the allocation that [`Bytes`] makes to share an inline body when it is first sent.
const SHARED_BYTES: usize = 32;

impl CacheEntry {
    /// Returns the change that replaces the variants and keeps the note. If the budget has no room, the change removes the record.
    pub fn changed_to(&self, budget: &Arc<Budget>, variants: Vec<StoredResponse>) -> Change<Self> {
        Self::new(budget, variants, self.uncacheable())
            .map_or(Change::Remove, |entry| Change::Put(Arc::new(entry)))
    }

    /// # Errors
    /// If the memory budget has no room for the record.
    pub fn new(
        budget: &Arc<Budget>,
        variants: Vec<StoredResponse>,
        uncacheable: Option<Uncacheable>,
    ) -> Result<Self, OverBudget> {
        let expires_at_ms = expires_at_ms(&variants, uncacheable).unwrap_or(NEVER);
        let variants = Variants::from(variants);
        let bytes = allocated_bytes(size_of::<Self>() + ARC_HEADER_BYTES)
            + uncacheable.map_or(0, |_| allocated_bytes(size_of::<Uncacheable>()))
            + variants.heap_bytes();
        let charge = budget.reserve_record(bytes)?;
        Ok(Self {
            variants,
            uncacheable: uncacheable.map(Box::new),
            expires_at_ms,
            copy: TierCopy::default(),
            charge,
        })
    }

    pub fn variants(&self) -> &[StoredResponse] {
        match &self.variants {
            Variants::One(response) => std::slice::from_ref(response),
            Variants::List(responses) => responses,
        }
    }

    /// Returns the stored responses: the newest first, then all others in descending order of use.
    pub fn by_use(&self) -> Vec<&StoredResponse> {
        let mut variants: Vec<_> = self.variants().iter().collect();
        if let Some((_, others)) = variants.split_first_mut() {
            others.sort_by_key(|variant| Reverse(variant.head.mark().score_s));
        }
        variants
    }

    /// Copies the usage of variants from the previous record in memory to this record, which was read from a tier.
    pub fn keep_usage(&self, before: Option<&Self>, now: Timestamp) {
        for head in self.variants().iter().map(|variant| &variant.head) {
            let Some(usage) = head.usage() else { continue };
            let before = before.map(Self::variants).unwrap_or_default().iter();
            let known = before.map(|before| &before.head).find(|before| before.is_same_variant(head));
            known.and_then(|known| known.usage()).into_iter().for_each(|known| usage.copy(known));
            usage.begin(now, Owner::SEVERAL);
        }
    }

    /// Returns the note if it applies to this request and has not ended.
    pub fn uncacheable_for(&self, request: &RequestFacts, now: Timestamp) -> Option<Uncacheable> {
        self.uncacheable().filter(|uncacheable| now < uncacheable.until && uncacheable.scope.has(request))
    }

    pub fn uncacheable(&self) -> Option<Uncacheable> {
        self.uncacheable.as_deref().copied()
    }

    /// Returns the stored response that the request's nominated fields select.
    pub fn select(self: &Arc<Self>, request: Selecting<'_>) -> Option<Hit> {
        let index = self
            .best_of(|head| head.is_selected_by(request))
            .or_else(|| self.best_of(|head| head.is_certain_for(request)))?;
        Some(Hit { entry: Arc::clone(self), index })
    }

    //= RFC 9111 section 4.1: the most recent of several matching responses
    fn best_of(&self, is_match: impl Fn(&StoredHead) -> bool) -> Option<usize> {
        let matching = self.variants().iter().enumerate().filter(|(_, variant)| is_match(&variant.head));
        let goes_before = |one: &StoredResponse, other: &StoredResponse| {
            one.head.matching().goes_before(&other.head.matching())
        };
        let best = matching.reduce(|best, next| if goes_before(next.1, best.1) { next } else { best });
        best.map(|(index, _)| index)
    }

    /// Returns the stored responses that a validation names: the selected one first, then others that it may name.
    pub fn candidates(
        self: &Arc<Self>,
        selected: Option<&Hit>,
        max: usize,
        may_name: impl Fn(&StoredHead) -> bool,
    ) -> Vec<Hit> {
        if self.variants().is_empty() {
            return Vec::new();
        }
        let stored: Vec<Known<'_>> = self.variants().iter().map(|variant| variant.known(&may_name)).collect();
        let named = validation::candidates(selected.map(|hit| hit.index), &stored, max);
        named.iter().map(|index| Hit { entry: Arc::clone(self), index: *index }).collect()
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

impl Record for CacheEntry {
    fn charge(&self) -> &Charge {
        &self.charge
    }

    fn expires_at_ms(&self) -> Option<u64> {
        (self.expires_at_ms != NEVER).then_some(self.expires_at_ms)
    }

    fn responses(&self) -> u64 {
        self.variants().len() as u64
    }
}

/// A stored response in use. It holds its record, so that the budget counts the bytes until the response is delivered.
#[derive(Clone, Debug)]
pub struct Hit {
    entry: Arc<CacheEntry>,
    index: usize,
}

impl Deref for Hit {
    type Target = StoredResponse;

    fn deref(&self) -> &StoredResponse {
        &self.entry.variants()[self.index]
    }
}

impl Hit {
    /// Returns this response and others under the same key, in the order in which a validation names them.
    pub fn with_candidates(&self, max: usize, may_name: impl Fn(&StoredHead) -> bool) -> Vec<Self> {
        self.entry.candidates(Some(self), max, may_name)
    }

    /// Returns the newest variant of a record that was just written.
    pub fn newest(entry: Arc<CacheEntry>) -> Option<Self> {
        (!entry.variants().is_empty()).then_some(Self { entry, index: 0 })
    }

    /// Returns the response with another body, for one reply.
    ///
    /// # Errors
    /// If the memory budget has no room.
    pub fn with_body(&self, budget: &Arc<Budget>, body: Segmented) -> Result<Self, OverBudget> {
        let body = StoredBody::Segments(Box::new(body));
        let response = StoredResponse { head: Arc::clone(&self.head), body };
        let entry = CacheEntry::new(budget, vec![response], None)?;
        Ok(Self { entry: Arc::new(entry), index: 0 })
    }

    /// Returns the bytes from `start` to `end`; `None` if some of them are not held.
    pub fn pieces(&self, start: u64, end: u64) -> Option<VecDeque<Slice>> {
        match &self.body {
            StoredBody::Inline(data) => {
                Some(VecDeque::from([data.slice(start as usize..end as usize).into()]))
            }
            StoredBody::Segments(segmented) => segmented.pieces(start, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use caching::{ExchangeTimes, NominatedFields, NominatedValues, ResponseFacts, Rules, StoredFacts};
    use message::fields::PackedFields;
    use store::{ENTRY_OVERHEAD_BYTES, Memory, MemoryConfig};

    use super::*;
    use crate::entry::cold_fields::ColdFields;
    use crate::membership::Stamp;

    /// Record and head, including the counts of their `Arc`s, fill size classes of the allocator.
    #[test]
    fn what_each_response_has_stays_small() {
        assert_eq!(size_of::<StoredHead>() + ARC_HEADER_BYTES, 128);
        assert_eq!(size_of::<CacheEntry>() + ARC_HEADER_BYTES, 112);
    }

    /// Returns the bytes counted for a record with these fields, beyond a body of 1 KiB and a key of up to 64 bytes.
    fn overhead_bytes(lines: &[caching::FieldLine<'_>]) -> usize {
        let at = Timestamp::from_seconds(1_800_000_000);
        let times = ExchangeTimes { request: at, response: at, clock_ahead_ms: 0 };
        let rules = Rules::default();
        let response = ResponseFacts::parse(200, lines, times, &rules);
        let facts = StoredFacts::new(&RequestFacts::parse("GET", &[]), &response, &rules);
        let nominated = NominatedFields::parse(lines).unwrap();
        let particulars = ColdFields::new(nominated, NominatedValues::default(), None);
        let fields = PackedFields::from_lines(lines.iter().copied());
        let head = Arc::new(StoredHead::new(facts, fields, Some(1024), particulars, Stamp::OLDEST));
        let body = StoredBody::Inline(Bytes::copy_from_slice(&[0; 1024]));
        let memory = Memory::<CacheEntry>::new(MemoryConfig::with_bytes_max(64 << 20));
        let record = CacheEntry::new(memory.budget(), vec![StoredResponse { head, body }], None).unwrap();
        record.charge().bytes() - 1024 + ENTRY_OVERHEAD_BYTES as usize + 64
    }

    /// The real memory use is measured by `a_stored_response_takes_little_beyond_its_body` of the binary.
    #[test]
    fn a_typical_response_costs_less_than_its_budget() {
        let lines: [caching::FieldLine<'_>; 5] = [
            ("Date", b"Sat, 21 Nov 2026 12:00:00 GMT"),
            ("Content-Type", b"text/plain"),
            ("Cache-Control", b"max-age=3600"),
            ("ETag", b"\"one\""),
            ("Via", b"1.1 larder"),
        ];
        assert_eq!(overhead_bytes(&lines), 592);
        let with_vary = [&lines[..], &[("Vary", b"Accept-Encoding")]].concat();
        // The `Vary` line moves the fields into the next size class; particulars and the name are allocated separately.
        assert_eq!(overhead_bytes(&with_vary), 592 + 32 + 96 + 16);
    }
}
