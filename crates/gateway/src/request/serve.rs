//! Creates a reply from a response that is stored or being stored: the whole response, a part of it, or a 304.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use cache::collapse::answer::Filling;
use cache::entry::stored::{Hit, StoredBody, StoredHead};
use cache::failure::FailureCause;
use cache::fill::{FillRanges, FillReader};
use caching::compression::{self, Coding};
use caching::multipart::Multipart;
use caching::partial::single_range;
use caching::range::{self, RangeSpec, write_content_range, write_unsatisfied};
use caching::{
    ByteRange, CacheStatus, MethodClass, Outcome, Precondition, Ranges, Timestamp, conditional, fields,
};
use http::HeaderName;
use message::explain_record::note;
use message::fields::PackedFields;
use message::reason::Reason;
use telemetry::CacheResult;

use crate::config::{Compression, PersonalResponses};
use crate::request::context::RequestContext;
use crate::request::fetch::assembly::Assembly;
use crate::request::findings;
use crate::request::reply::{Account, Body, Length, Reply, ReplyHead, has_no_content, x_cache};

/// Way in which a stored response is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Fresh,
    /// Used while fresh; a validation runs in the background.
    RefreshAhead,
    /// Used while stale; a validation runs in the background.
    StaleWhileRevalidate,
    /// Used while stale, for this reason.
    Stale(Reason),
    /// Used after this request or another one was forwarded.
    Asked {
        outcome: Outcome,
        result: CacheResult,
    },
    /// Used after another instance forwarded its request.
    FoundElsewhere(Outcome),
}

/// Requested bytes of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All bytes, for a 200.
    Whole(ByteRange),
    /// One range, for a 206.
    Range(ByteRange),
    /// Several ranges.
    Several,
    /// The length is unknown, or the response doesn't have the requested bytes.
    Unknown,
}

impl Extent {
    /// Returns the bytes if they are a single range.
    pub(crate) fn bytes(self) -> Option<ByteRange> {
        match self {
            Self::Whole(range) | Self::Range(range) => Some(range),
            Self::Several | Self::Unknown => None,
        }
    }
}

/// Representation from which a reply is created.
struct Representation<'a> {
    head: &'a Arc<StoredHead>,
    bytes: Option<u64>,
    source: Source<'a>,
}

enum Source<'a> {
    Stored(&'a Hit),
    Fill(&'a Filling),
}

/// Replies to a request from a response that is stored or being stored.
impl RequestContext<'_> {
    /// Returns a reply from a stored response; `None` if a part of its body was evicted.
    pub(crate) fn stored(&self, hit: &Hit, used: Use) -> Option<Reply> {
        let bytes = hit.body.complete_bytes();
        let representation = Representation { head: &hit.head, bytes, source: Source::Stored(hit) };
        // The reply is modified in place, because it has hundreds of bytes and each move adds to the cost of a hit.
        let mut reply = self.represent(&representation);
        if let Some(reply) = &mut reply {
            self.describe(reply, &hit.head, used);
        }
        reply
    }

    /// Returns a reply from a stored response in place of a failure of the origin.
    pub(crate) fn stale(&self, hit: &Hit, cause: FailureCause, used: Use) -> Option<Reply> {
        let mut reply = self.stored(hit, used)?;
        reply.cache_status.detail = Some(cause.detail.as_str());
        Some(reply)
    }

    /// Returns a reply from a fill. Returns `None` if the beginning of the fill has been dropped, or if it has a different part
    /// than this request needs.
    pub(crate) fn filling(&self, filling: &Filling, used: Use) -> Option<Reply> {
        let head = &filling.head;
        let representation =
            Representation { head, bytes: head.declared_bytes(), source: Source::Fill(filling) };
        let mut reply = self.represent(&representation)?;
        self.describe(&mut reply, head, used);
        Some(reply)
    }

    /// Returns a reply with the part in a fill, even if it ends before the requested range, because an origin may answer with a
    /// shorter part. `Content-Range` shows the client which part it is. Returns `None` if the part doesn't begin where the range
    /// begins.
    pub(crate) fn shorter_part(&self, filling: &Filling, used: Use) -> Option<Reply> {
        let (head, part) = (&filling.head, filling.part.as_ref()?);
        let is_beginning = match single_range(self.request.fields)? {
            RangeSpec::FromTo(first, last) => part.range.first == first && part.range.last <= last,
            RangeSpec::From(first) => part.range.first == first,
            RangeSpec::Suffix(_) => false,
        };
        let holds = range::if_range_holds(self.request.fields, &head.validators(), self.now);
        if !is_beginning || !holds || self.facts.method != MethodClass::Get {
            return None;
        }
        let body = Body::Fill(filling.fill.reader(0, Some(part.range.len_bytes()))?);
        let mut reply = self.part(head, part.range, part.complete_bytes, body);
        self.describe(&mut reply, head, used);
        Some(reply)
    }

    /// Returns a reply whose body is assembled from several parts of a representation of `bytes`.
    pub(crate) fn assembled(
        &self,
        head: &Arc<StoredHead>,
        bytes: u64,
        (extent, source): (Extent, Assembly),
        used: Use,
    ) -> Option<Reply> {
        let body = Body::Assembled(Box::new(source));
        let mut reply = match extent {
            Extent::Whole(_) => {
                let whole = ReplyHead::Whole(Arc::clone(head));
                self.reply(head.facts.status, whole, Length::Known(bytes), body)
            }
            Extent::Range(range) => self.part(head, range, Some(bytes), body),
            Extent::Several | Extent::Unknown => return None,
        };
        self.describe(&mut reply, head, used);
        Some(reply)
    }

    /// Returns the bytes of a stored response that answer this request.
    pub(crate) fn extent(&self, hit: &Hit) -> Extent {
        let Some(bytes) = hit.body.complete_bytes() else { return Extent::Unknown };
        match self.asked_ranges(&hit.head, bytes) {
            Ranges::Whole if bytes > 0 => Extent::Whole(ByteRange { first: 0, last: bytes - 1 }),
            Ranges::Single(range) => Extent::Range(range),
            Ranges::Multi(_) => Extent::Several,
            Ranges::Whole | Ranges::Unsatisfiable => Extent::Unknown,
        }
    }

    /// Returns whether all bytes of the reply are in memory or, as far as is known, in the tier behind it.
    pub(crate) fn is_within_reach(&self, hit: &Hit) -> bool {
        let Some(body) = hit.body.segmented().filter(|body| body.is_followed()) else { return false };
        let wanted = self.wanted(hit);
        let is_there = |range: &ByteRange| body.first_hole(range.first, range.last + 1).is_none();
        !wanted.is_empty() && wanted.iter().all(is_there)
    }

    /// Returns the ranges of a stored response that the reply contains.
    pub(crate) fn wanted(&self, hit: &Hit) -> Vec<ByteRange> {
        let Some(bytes) = hit.body.complete_bytes() else {
            return match single_range(self.request.fields) {
                Some(RangeSpec::FromTo(first, last)) if last < u64::MAX => vec![ByteRange { first, last }],
                _ => Vec::new(),
            };
        };
        match self.asked_ranges(&hit.head, bytes) {
            Ranges::Whole if bytes > 0 => vec![ByteRange { first: 0, last: bytes - 1 }],
            Ranges::Single(range) => vec![range],
            Ranges::Multi(ranges) => ranges.to_vec(),
            Ranges::Whole | Ranges::Unsatisfiable => Vec::new(),
        }
    }

    fn asked_ranges(&self, head: &StoredHead, bytes: u64) -> Ranges {
        if !self.facts.has_range {
            return Ranges::Whole;
        }
        let validators = head.validators();
        range::evaluate(self.facts.method, self.request.fields, &head.facts, &validators, bytes, self.now)
    }

    //= RFC 9110 section 13.2.2: preconditions come before ranges
    fn represent(&self, representation: &Representation<'_>) -> Option<Reply> {
        let head = representation.head;
        if self.facts.has_conditions {
            let validators = head.validators();
            let method = self.facts.method;
            let precondition =
                conditional::evaluate(method, self.request.fields, &head.facts, &validators, self.now);
            //= RFC 9111 section 4.3.2: a 304 that the client did not ask for becomes a 200
            if precondition == Precondition::NotModified && !self.names_lost_form(head, representation.bytes)
            {
                let head = ReplyHead::NotModified(Arc::clone(head));
                return Some(self.reply(304, head, Length::None, Body::Empty));
            }
        }
        match representation.bytes {
            Some(bytes) if self.facts.has_range => self.ranges(representation, bytes),
            None if self.facts.has_range && representation.is_part() => self.range_of_unknown(representation),
            _ => self.whole(representation),
        }
    }

    /// Returns whether the client has a form in a coding that is no longer used for this response. The old form is a different
    /// representation, so the client gets the current form.
    fn names_lost_form(&self, head: &StoredHead, bytes: Option<u64>) -> bool {
        let Some(compression) = self.rule.compression.as_deref() else { return false };
        let Ok(coding) = compression.compressible.choose(self.facts, self.request.fields) else {
            return false;
        };
        let form = head.fields.value("etag").and_then(|tag| compression::tag_in(coding, tag));
        let named = || fields::values(self.request.fields, "if-none-match");
        form.is_some_and(|form| compression::names_form(named(), &form))
            && !self.goes_out_in(coding, compression, (head, bytes))
    }

    fn goes_out_in(
        &self,
        coding: Coding,
        compression: &Compression,
        (head, bytes): (&StoredHead, Option<u64>),
    ) -> bool {
        let (status, lines) = (head.facts.status, head.fields.lines());
        compression.compressible.may_encode(status, lines, bytes, &self.rule.caching).is_ok()
            && !(compression.personal == PersonalResponses::AsTheyCame && is_for_one(self, head))
            && !head.has_no_gain(coding)
    }

    //= RFC 9111 section 3.3: an incomplete response answers ranges inside it only
    fn ranges(&self, representation: &Representation<'_>, bytes: u64) -> Option<Reply> {
        match self.asked_ranges(representation.head, bytes) {
            Ranges::Whole => self.whole(representation),
            Ranges::Single(range) => self.single_range(representation, range, Some(bytes)),
            Ranges::Multi(ranges) => self.multipart(representation, &ranges, bytes),
            Ranges::Unsatisfiable => Some(self.unsatisfiable(bytes)),
        }
    }

    fn whole(&self, representation: &Representation<'_>) -> Option<Reply> {
        let head = representation.head;
        let status = head.facts.status;
        let length = match representation.bytes {
            _ if has_no_content(status) => Length::None,
            Some(bytes) => Length::Known(bytes),
            None => Length::Unknown,
        };
        let body = match self.facts.method {
            MethodClass::Head => Body::Empty,
            _ => representation.body(0, representation.bytes)?,
        };
        Some(self.reply(status, ReplyHead::Whole(Arc::clone(head)), length, body))
    }

    //= RFC 9110 section 15.3.7.2: one range is no multipart
    //= RFC 9110 section 15.3.7: fields of a 206 response
    //= RFC 9111 section 3.3: a partial response is a 206
    //= RFC 9110 section 15.3.7: all fields of the whole without If-Range
    fn single_range(
        &self,
        representation: &Representation<'_>,
        range: ByteRange,
        bytes: Option<u64>,
    ) -> Option<Reply> {
        // If the complete length is unknown, `last` is the number that the client sent, which may be any.
        let end = range.last.checked_add(1)?;
        let body = representation.body(range.first, Some(end))?;
        Some(self.part(representation.head, range, bytes, body))
    }

    fn part(&self, head: &Arc<StoredHead>, range: ByteRange, bytes: Option<u64>, body: Body) -> Reply {
        let head = ReplyHead::Range(Arc::clone(head));
        let mut reply = self.reply(206, head, Length::Known(range.len_bytes()), body);
        let mut content_range = Vec::new();
        write_content_range(range, bytes, &mut content_range);
        reply.extra.push("content-range", &content_range);
        reply
    }

    /// Returns a reply with a range of a part whose complete length is unknown. The range must have both ends, and its bytes must
    /// be in memory.
    fn range_of_unknown(&self, representation: &Representation<'_>) -> Option<Reply> {
        let validators = representation.head.validators();
        let is_for_this = self.facts.method == MethodClass::Get
            && range::if_range_holds(self.request.fields, &validators, self.now);
        if !is_for_this {
            return self.whole(representation);
        }
        match single_range(self.request.fields)? {
            RangeSpec::FromTo(first, last) => {
                self.single_range(representation, ByteRange { first, last }, None)
            }
            RangeSpec::From(_) | RangeSpec::Suffix(_) => None,
        }
    }

    //= RFC 9110 section 14.6: multipart/byteranges
    //= RFC 9110 section 15.3.7.2: no Content-Range beside the parts
    //= RFC 9110 section 15.3.7.2: parts in the order of the request
    fn multipart(
        &self,
        representation: &Representation<'_>,
        ranges: &[ByteRange],
        bytes: u64,
    ) -> Option<Reply> {
        let head = representation.head;
        let boundary = boundary(head, self.now);
        let content_type = head.fields.value("content-type");
        let multipart = Multipart { boundary: boundary.as_bytes(), content_type, complete_bytes: bytes };
        let Some(body) = representation.multipart(&multipart, ranges) else {
            return match representation.source {
                Source::Stored(_) => None,
                // In a multipart reply, parts would have to wait for each other. The whole response is a valid answer, too.
                Source::Fill(_) => self.whole(representation),
            };
        };
        let length = Length::Known(multipart.total_bytes(ranges));
        let mut reply = self.reply(206, ReplyHead::Ranges(Arc::clone(head)), length, body);
        let mut own_type = Vec::new();
        multipart.write_content_type(&mut own_type);
        reply.extra.push("content-type", &own_type);
        Some(reply)
    }

    fn unsatisfiable(&self, bytes: u64) -> Reply {
        let mut fields = PackedFields::with_capacity(2);
        let mut content_range = Vec::new();
        write_unsatisfied(bytes, &mut content_range);
        fields.push("date", &caching::date::format(self.now));
        fields.push("content-range", &content_range);
        self.reply(416, ReplyHead::own(fields), Length::Known(0), Body::Empty)
    }

    fn reply(&self, status: u16, head: ReplyHead, length: Length, body: Body) -> Reply {
        Reply {
            status,
            head,
            extra: PackedFields::default(),
            length,
            body,
            age_s: None,
            cache_status: CacheStatus { outcome: Outcome::Hit, ttl_s: None, key: None, detail: None },
            x_cache: None,
            account: Account::new(Some(self.site), CacheResult::Hit, self.started),
        }
    }

    fn describe(&self, reply: &mut Reply, head: &StoredHead, used: Use) {
        let (outcome, result, detail) = match used {
            Use::Fresh => (Outcome::Hit, CacheResult::Hit, None),
            Use::RefreshAhead => (Outcome::Hit, CacheResult::Hit, Some(Reason::RefreshAhead.as_str())),
            Use::Stale(why) => (Outcome::Hit, CacheResult::Stale, Some(why.as_str())),
            Use::StaleWhileRevalidate => {
                (Outcome::Hit, CacheResult::Stale, Some(Reason::StaleWhileRevalidate.as_str()))
            }
            Use::Asked { outcome, result } => (outcome, result, None),
            Use::FoundElsewhere(outcome) => {
                (outcome, CacheResult::Collapsed, Some(Reason::CollapseFleet.as_str()))
            }
        };
        reply.cache_status.outcome = outcome;
        reply.cache_status.ttl_s = Some(head.facts.ttl_s(self.now));
        reply.cache_status.detail = detail;
        reply.account.result = result;
        reply.x_cache = x_cache(&self.site.config, result);
        //= RFC 9111 section 4: Age in a response that was not just validated
        let age_s = head.facts.age_s(self.now);
        let is_own_forward =
            matches!(used, Use::Asked { outcome: Outcome::Forwarded { collapsed: false, .. }, .. });
        //= RFC 9111 section 5.5: Warning is obsolete
        //= RFC 5861 section 4: visibly stale
        //= RFC 9111 section 5.1: Age implies that the response was not validated
        //= RFC 5861 section 3: a stale response has an Age
        reply.age_s = (!is_own_forward || age_s > 0).then_some(age_s);
        note(self.request.record, || findings::delivered(reply, used));
    }
}

/// Returns whether a stored response may only answer requests with the same credentials as this one.
pub(crate) fn is_for_one(context: &RequestContext<'_>, head: &StoredHead) -> bool {
    let keyed = context.site.config.request_fields_keyed.iter().map(HeaderName::as_str);
    let vary = head.fields.view().values("vary");
    compression::is_stored_for_one(context.facts, vary, keyed, &context.rule.caching)
}

impl Representation<'_> {
    /// Returns whether the body may continue beyond the available bytes.
    fn is_part(&self) -> bool {
        match &self.source {
            Source::Stored(hit) => hit.body.complete_bytes().is_none(),
            Source::Fill(filling) => filling.part.is_some(),
        }
    }

    /// Returns a multipart body; `None` if bytes are missing, or don't arrive in the order of the ranges.
    fn multipart(&self, multipart: &Multipart<'_>, ranges: &[ByteRange]) -> Option<Body> {
        let (parts, end) = frame(multipart, ranges);
        match &self.source {
            Source::Fill(filling) if filling.part.is_some() => None,
            Source::Fill(filling) => {
                let reader = filling.fill.reader(ranges.first()?.first, None)?;
                FillRanges::new(reader, parts, end).map(|ranges| Body::FillRanges(Box::new(ranges)))
            }
            Source::Stored(hit) => {
                let mut pieces = VecDeque::new();
                for (head, range) in parts {
                    pieces.push_back(head.into());
                    pieces.extend(hit.pieces(range.first, range.last + 1)?);
                }
                pieces.push_back(end.into());
                Some(Body::Pieces(pieces))
            }
        }
    }

    fn body(&self, start: u64, end: Option<u64>) -> Option<Body> {
        match &self.source {
            Source::Fill(filling) => fill_body(filling, start, end).map(Body::Fill),
            Source::Stored(hit) => {
                let end = end.or_else(|| hit.body.complete_bytes())?;
                match &hit.body {
                    StoredBody::Inline(_) => Some(Body::Inline {
                        hit: Hit::clone(hit),
                        start: usize::try_from(start).ok()?,
                        end: usize::try_from(end).ok()?,
                    }),
                    StoredBody::Segments(body) => body.pieces(start, end).map(Body::Pieces),
                }
            }
        }
    }
}

/// Returns the heads of the parts with their ranges, and the closing delimiter after the last part.
fn frame(multipart: &Multipart<'_>, ranges: &[ByteRange]) -> (VecDeque<(Bytes, ByteRange)>, Bytes) {
    let with_head = |range: &ByteRange| {
        let mut head = Vec::new();
        multipart.write_part_head(*range, &mut head);
        (Bytes::from(head), *range)
    };
    let mut end = Vec::new();
    multipart.write_end(&mut end);
    (ranges.iter().map(with_head).collect(), Bytes::from(end))
}

fn fill_body(filling: &Filling, start: u64, end: Option<u64>) -> Option<FillReader> {
    let Some(part) = &filling.part else {
        let end = end.filter(|end| start > 0 || Some(*end) != filling.head.declared_bytes());
        return filling.fill.reader(start, end);
    };
    let (first, end) = (part.range.first, end?);
    let is_inside = first <= start && end <= part.range.last + 1;
    is_inside.then(|| filling.fill.reader(start - first, Some(end - first)))?
}

/// Returns a boundary that practically never occurs in the parts, because it has 128 bits that the author of a body can't guess.
fn boundary(head: &StoredHead, now: Timestamp) -> String {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new();
    format!("{:016x}{:016x}", random.hash_one(now.as_ms()), random.hash_one(head.facts.date.as_ms()))
}
