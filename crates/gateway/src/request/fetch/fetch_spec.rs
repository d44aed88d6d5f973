//! The specification of a fetch, which a look-up creates, and the scope of the fetch: the whole response, a range, or the bytes that a
//! stored response lacks.

use std::sync::Arc;

use bytes::Bytes;
use cache::entry::segmented::Segmented;
use cache::entry::stored::{CacheEntry, Hit, Uncacheable};
use cache::membership::LookUp;
use caching::partial::{self, Wanted};
use caching::range::{RangeSpec, write_range};
use caching::{ByteRange, FieldLine, MethodClass, NotReused, RequestFacts};
use message::fields::PackedFields;
use message::head::OwnedRequest;
use origin::RequestBody;

use crate::config::RangeMiss;
use crate::request::context::RequestContext;
use crate::request::serve::Extent;

/// The specification of a fetch.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) key: Box<[u8]>,
    /// Variant key, which distinguishes forwards for different variants of one key. The key is empty until the nominated fields are
    /// known.
    pub(crate) variant: Vec<u8>,
    /// Look-up that returned the stored responses of this fetch. The responses may be purged or invalidated while the request waits for
    /// others, so each use first checks them against this look-up.
    pub(crate) look_up: LookUp,
    /// Stored response that the request selected, as a fallback.
    pub(crate) stale: Option<Hit>,
    /// Responses named in a validation: the selected one, and others under the key that the origin may select.
    pub(crate) candidates: Vec<Hit>,
    pub(crate) reason: NotReused,
    pub(crate) sharing: Sharing,
    pub(crate) scope: FetchScope,
    /// Content of the request; empty except for QUERY.
    pub(crate) content: Bytes,
    /// State of the tier look-up for bytes of a stored response that memory lacks.
    pub(crate) tier: TierLookUp,
    /// Record under the key. The fetch holds the record, so that it stays in use even if memory drops it. A new response then changes
    /// this record instead of creating another one.
    pub(crate) in_use: Option<Arc<CacheEntry>>,
}

/// Whether the tier behind memory has been searched for the missing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierLookUp {
    Unasked,
    Asked,
}

/// Whether other requests may wait for the same forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Joined,
    Alone,
    /// No request waits for it, because a note says that the response won't be stored.
    Unlikely(Uncacheable),
}

impl Fetch {
    /// Creates a fetch of the whole response, without stored responses for validation or fallback.
    pub(crate) fn new(key: impl Into<Box<[u8]>>, look_up: LookUp, reason: NotReused) -> Self {
        Self {
            key: key.into(),
            variant: Vec::new(),
            look_up,
            stale: None,
            candidates: Vec::new(),
            reason,
            sharing: Sharing::Joined,
            scope: FetchScope::Whole,
            content: Bytes::new(),
            tier: TierLookUp::Unasked,
            in_use: None,
        }
    }

    /// Returns a copy of the fetch with a new scope, without the stored responses for validation and fallback.
    pub(crate) fn with_scope(&self, scope: FetchScope) -> Self {
        Self {
            variant: self.variant.clone(),
            sharing: self.sharing,
            scope,
            content: self.content.clone(),
            tier: self.tier,
            in_use: self.in_use.clone(),
            ..Self::new(&*self.key, self.look_up, self.reason)
        }
    }

    /// Returns the note that the response won't be stored; `None` if it may be stored, or if stored responses or a range are involved.
    pub(crate) fn known_uncacheable(&self) -> Option<Uncacheable> {
        let Sharing::Unlikely(known) = self.sharing else { return None };
        let is_plain = self.stale.is_none() && self.candidates.is_empty();
        (is_plain && matches!(self.scope, FetchScope::Whole)).then_some(known)
    }

    /// Returns the content of the request as a body to send.
    pub(crate) fn body(&self) -> RequestBody {
        RequestBody::from(self.content.clone())
    }
}

/// Scope of a fetch.
#[derive(Clone, Debug)]
pub(crate) enum FetchScope {
    /// The complete response.
    Whole,
    /// The client's own request, with its `If-None-Match` and `If-Modified-Since`: the origin evaluates them, since no stored response
    /// exists.
    AsAsked,
    /// The client's single range, if no stored response could include it. The client's `If-Range` is removed and evaluated here: the
    /// 206 to a conditional range request may omit fields that later clients need.
    Range(RangeSpec),
    /// Bytes that a stored response lacks, requested with `If-Range`.
    MissingRange(MissingRange),
}

/// Kind of a [`FetchScope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    Whole,
    AsAsked,
    Range,
    MissingRange,
}

/// Bytes that a stored response lacks.
#[derive(Clone, Debug)]
pub(crate) struct MissingRange {
    pub(crate) hit: Hit,
    pub(crate) range: ByteRange,
    pub(crate) reply: ReplyOfParts,
}

/// State of the reply that needs the missing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyOfParts {
    /// The reply has not begun. A response that is purged before the reply begins must not be used.
    ToCome,
    /// The reply has begun. The reply continues to its end, even if the response is purged in the meantime.
    Begun,
}

/// Maximum distance between the received bytes of a running fill of the whole response and a range that reads from that fill. Within
/// this distance, the fill delivers the bytes at least about as soon as a separate request.
const NEAR_BYTES: u64 = 1 << 20;

impl FetchScope {
    pub(crate) fn kind(&self) -> ScopeKind {
        match self {
            Self::Whole => ScopeKind::Whole,
            Self::AsAsked => ScopeKind::AsAsked,
            Self::Range(_) => ScopeKind::Range,
            Self::MissingRange(_) => ScopeKind::MissingRange,
        }
    }

    /// Chooses the scope for a request without a stored response.
    pub(crate) fn on_miss(
        facts: &RequestFacts,
        request: &[FieldLine<'_>],
        range_miss: RangeMiss,
        whole_arrived_bytes: impl FnOnce() -> Option<u64>,
    ) -> Self {
        if facts.method != MethodClass::Get || !facts.has_range || range_miss == RangeMiss::Whole {
            return Self::Whole;
        }
        let Some(spec) = partial::single_range(request) else { return Self::Whole };
        match (spec, whole_arrived_bytes()) {
            (RangeSpec::FromTo(first, _) | RangeSpec::From(first), Some(arrived_bytes))
                if first <= arrived_bytes.saturating_add(NEAR_BYTES) =>
            {
                Self::Whole
            }
            _ => Self::Range(spec),
        }
    }

    /// Chooses the scope for the bytes that `hit` lacks to answer the request. If these bytes can't be combined with `hit`, the scope
    /// is the same as after a miss. Returns `None` if the request has several ranges, because the origin answers those.
    pub(crate) fn for_rest(context: &RequestContext<'_>, hit: &Hit) -> Option<Self> {
        let rule = context.rule;
        let extent = context.extent(hit);
        if extent == Extent::Several {
            return None;
        }
        // With `no-store`, no part of the exchange may be stored, so the fetch doesn't use the stored response.
        let is_stored = !(context.facts.directives.no_store && rule.caching.honour_request_directives);
        let wanted = extent.bytes().filter(|_| is_stored);
        let hole = wanted.and_then(|wanted| MissingRange::first(hit, wanted)).map(Self::MissingRange);
        let anew = || Self::on_miss(context.facts, context.request.fields, rule.range_miss, || None);
        Some(hole.unwrap_or_else(anew))
    }

    /// Returns a suffix that distinguishes forwards for different bytes of one variant. A variant key begins with a length, which is
    /// never equal to `MARK`.
    pub(crate) fn scope_suffix(&self) -> Vec<u8> {
        const MARK: [u8; 4] = [0xff; 4];
        let mut suffix = MARK.to_vec();
        match self {
            Self::Whole | Self::AsAsked => suffix.clear(),
            Self::Range(spec) => write_range(*spec, &mut suffix),
            Self::MissingRange(hole) => {
                let fill = hole.segmented().map(|segmented| segmented.group.fill());
                let numbers = fill.map_or([0; 2], |fill| [fill.process, fill.sequence]);
                numbers.iter().for_each(|number| suffix.extend_from_slice(&number.to_be_bytes()));
                write_range(RangeSpec::FromTo(hole.range.first, hole.range.last), &mut suffix);
            }
        }
        suffix
    }

    /// Adds preconditions and ranges to the fields of the request.
    //= RFC 9111 section 3.3: completing by a range request
    pub(crate) fn write_fields(&self, request: &OwnedRequest, fields: &mut PackedFields) {
        let spec = match self {
            Self::Whole => return,
            Self::AsAsked => return append_preconditions(request, fields),
            Self::Range(spec) => *spec,
            Self::MissingRange(hole) => {
                let validators = hole.hit.head.validators();
                //= RFC 9110 section 13.1.5: no If-Range without Range
                fields.set("if-range", partial::if_range_value(&validators).unwrap_or_default());
                hole.spec()
            }
        };
        let mut value = Vec::new();
        write_range(spec, &mut value);
        fields.set("range", &value);
    }
}

impl MissingRange {
    /// Returns the first missing range in `wanted`, if a response for it can be combined with the stored response.
    fn first(hit: &Hit, wanted: ByteRange) -> Option<Self> {
        if !Self::can_be_part_of(hit) {
            return None;
        }
        let range = hit.body.segmented()?.first_hole(wanted.first, wanted.last.saturating_add(1))?;
        Some(Self { hit: hit.clone(), range, reply: ReplyOfParts::ToCome })
    }

    /// Returns whether a stored response can be combined with a response for its missing bytes.
    pub(crate) fn can_be_part_of(hit: &Hit) -> bool {
        hit.head.facts.status == 200 && partial::if_range_value(&hit.head.validators()).is_some()
    }

    /// Returns the range to request. If the range ends with the representation, the last position is left out, so that the response
    /// shows the new length of a representation that has grown.
    fn spec(&self) -> RangeSpec {
        let ByteRange { first, last } = self.range;
        let is_to_the_end = self.hit.body.complete_bytes().is_some_and(|bytes| last + 1 == bytes);
        if is_to_the_end { RangeSpec::From(first) } else { RangeSpec::FromTo(first, last) }
    }

    pub(crate) fn segmented(&self) -> Option<&Segmented> {
        self.hit.body.segmented()
    }

    /// Returns the properties that the response must have, including the stored fields.
    pub(crate) fn wanted<'a>(&'a self, stored: &'a [FieldLine<'a>]) -> Wanted<'a> {
        Wanted {
            fields: stored,
            range: self.range,
            validators: self.hit.head.validators(),
            complete_bytes: self.hit.body.complete_bytes(),
        }
    }
}

//= RFC 9111 section 4.3.2: preconditions where nothing is stored
fn append_preconditions(request: &OwnedRequest, fields: &mut PackedFields) {
    for name in ["if-none-match", "if-modified-since"] {
        request.fields.values(name).for_each(|value| fields.push(name, value));
    }
}
