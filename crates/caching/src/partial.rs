//! Parts of a representation (RFC 9111 sections 3.3 and 3.4): the part in a 206, the conditions for combining two
//! responses, the request for the rest of a partly stored response, and the meaning of its response.

use smallvec::SmallVec;

use crate::entity_tag::Strength;
use crate::range::RangeSpec;
use crate::{ByteRange, ContentRange, FieldLine, Timestamp, Validators, content_range, fields};

/// Ranges of one representation: sorted, without overlap, and with a gap between any two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(SmallVec<[ByteRange; 4]>);

/// The result of adding a range to [`Extents`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The previous indices of the ranges that the new range overlapped or touched, and is now joined with.
    pub replaced: std::ops::Range<usize>,
    /// The joined range.
    pub union: ByteRange,
}

impl Extents {
    /// Returns the ranges, in order.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.0
    }

    /// Adds a range, and joins it with those that it overlaps or touches.
    pub fn insert(&mut self, range: ByteRange) -> Joined {
        let start = self.0.partition_point(|held| held.last.saturating_add(1) < range.first);
        let end = self.0.partition_point(|held| held.first <= range.last.saturating_add(1)).max(start);
        let touched = &self.0[start..end];
        let first = touched.first().map_or(range.first, |held| held.first.min(range.first));
        let last = touched.last().map_or(range.last, |held| held.last.max(range.last));
        let union = ByteRange { first, last };
        self.0.drain(start..end);
        self.0.insert(start, union);
        Joined { replaced: start..end, union }
    }

    /// Returns whether all of `range` is held.
    pub fn contains(&self, range: ByteRange) -> bool {
        let index = self.0.partition_point(|held| held.last < range.first);
        self.0.get(index).is_some_and(|held| held.first <= range.first && range.last <= held.last)
    }

    /// Returns the parts of `range` that are not held.
    pub fn missing(&self, range: ByteRange) -> Self {
        let mut missing = Self::default();
        let mut next = range.first;
        let index = self.0.partition_point(|held| held.last < range.first);
        for held in self.0[index..].iter().take_while(|held| held.first <= range.last) {
            if next < held.first {
                missing.0.push(ByteRange { first: next, last: held.first - 1 });
            }
            match held.last.checked_add(1) {
                Some(after) => next = after,
                None => return missing,
            }
        }
        if next <= range.last {
            missing.0.push(ByteRange { first: next, last: range.last });
        }
        missing
    }

    /// Returns the index of the shortest range, which costs least to fetch again.
    pub fn shortest(&self) -> Option<usize> {
        (0..self.0.len()).min_by_key(|index| self.0[*index].last - self.0[*index].first)
    }
}

impl FromIterator<ByteRange> for Extents {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> Self {
        let mut extents = Self::default();
        for range in ranges {
            extents.insert(range);
        }
        extents
    }
}

/// Returns the part in a 206 if it can be stored as one: it has a single valid `Content-Range`, is not multipart, and
/// declares no length that differs from that of its range.
//= RFC 9111 section 3.3: a 206 as an incomplete 200
//= RFC 9111 section 3.3: parts need Range, Content-Range and known units
//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
//= RFC 9110 section 14.4: a 206 of an unknown unit is forwarded
pub fn received_part(response: &[FieldLine<'_>], content_length: Option<u64>) -> Option<ContentRange> {
    const MULTIPART: &[u8] = b"multipart/byteranges";
    let is_multipart = fields::values(response, "content-type")
        .any(|value| value.get(..MULTIPART.len()).is_some_and(|start| start.eq_ignore_ascii_case(MULTIPART)));
    let part = content_range::parse(fields::only(response, "content-range")?)?;
    let is_whole_part = content_length.is_none_or(|bytes| bytes == part.range.len_bytes());
    (!is_multipart && is_whole_part).then_some(part)
}

/// Returns whether two responses are parts of the same representation: only an equal strong validator proves it. If
/// either has an entity tag, only the tags count; modification dates count only without tags, and only if both are
/// strong.
//= RFC 9111 section 3.4: the same strong validator
//= RFC 9110 section 15.3.7.3: combining parts
pub fn may_combine(stored: &Validators<'_>, received: &Validators<'_>) -> bool {
    if stored.etag.is_some() || received.etag.is_some() {
        let tags = stored.entity_tag().zip(received.entity_tag());
        return tags.is_some_and(|(stored, received)| stored.matches_strongly(&received));
    }
    let dates = stored.last_modified.zip(received.last_modified);
    dates.is_some_and(|((_, stored), (_, received))| stored == received)
        && stored.is_last_modified_strong()
        && received.is_last_modified_strong()
}

/// Whether a response describes its representation in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// A response to a request without `If-Range`.
    Full,
    /// A response to `If-Range`, which may omit fields that its recipient knows.
    //= RFC 9110 section 15.3.7: all fields of the whole without If-Range
    Short,
}

/// Returns whether the fields of a part describe the same representation as the stored fields. Some origin servers give one strong tag to
/// all codings, languages and types of a content, so an equal tag alone proves too little: a body of bytes in two codings would be corrupt.
/// Both must name the same coding, even though a response to `If-Range` may omit it. Other fields must agree if both have them. The part's
/// `Vary` must not name more request fields than the stored response's.
//= RFC 9110 section 15.3.7.3: combining parts
pub fn is_described_alike(
    stored: &[FieldLine<'_>],
    received: &[FieldLine<'_>],
    description: Description,
) -> bool {
    let codings = |lines| fields::members(lines, "content-encoding");
    let is_same = |name: &str| match (fields::first(stored, name), fields::first(received, name)) {
        (Some(stored), Some(received)) => stored.eq_ignore_ascii_case(received),
        (Some(_), None) => description == Description::Short,
        // Fields that the operator hides are not stored.
        (None, _) => true,
    };
    let nominates =
        |wanted: &[u8]| fields::members(stored, "vary").any(|name| name.eq_ignore_ascii_case(wanted));
    codings(stored).eq(codings(received))
        && DESCRIBING.into_iter().all(is_same)
        && fields::members(received, "vary").all(nominates)
}

const DESCRIBING: [&str; 3] = ["content-language", "content-location", "content-type"];

/// Returns whether a field describes the content of one message: in a response with a part, it doesn't apply to the
/// whole, nor the reverse.
//= RFC 9110 section 14.4: Content-Range
pub fn is_of_one_message(name: &str) -> bool {
    OF_ONE_MESSAGE.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// `Repr-Digest` (RFC 9530) is about the whole, and stays.
const OF_ONE_MESSAGE: [&str; 4] = ["content-range", "content-length", "content-digest", "content-md5"];

/// Returns the value of `If-Range` for requesting the rest of a stored response; `None` if it has no strong validator, because parts could
/// then not be combined.
//= RFC 9110 section 13.1.5: If-Range takes strong validators only
//= RFC 9110 section 13.1.5: no date where there is an entity tag
pub fn if_range_value<'a>(stored: &Validators<'a>) -> Option<&'a [u8]> {
    if let Some(etag) = stored.etag {
        return stored.entity_tag().is_some_and(|tag| tag.strength == Strength::Strong).then_some(etag);
    }
    //= RFC 9111 section 4.3.1: Last-Modified of a subrange
    let (modified, _) = stored.last_modified?;
    stored.is_last_modified_strong().then_some(modified)
}

/// A missing part of a stored response, as requested.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The bytes that are missing.
    pub range: ByteRange,
    /// Validators of the stored response.
    pub validators: Validators<'a>,
    /// The stored fields.
    pub fields: &'a [FieldLine<'a>],
    /// Complete length of the stored response, if known.
    pub complete_bytes: Option<u64>,
}

/// The meaning of the response to a request for a missing part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoleAnswer {
    /// The response has all or the first of the missing bytes.
    Splice(ContentRange),
    /// A complete response, which replaces the stored one.
    Replace,
    /// A server error, or a refusal of this client. Neither concerns the stored part.
    Failed,
    /// Any other response, which shows that the stored part is of no use.
    Discard,
}

impl HoleAnswer {
    /// Returns a stable word, for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Splice(_) => "spliced",
            Self::Replace => "replaced",
            Self::Failed => "failed",
            Self::Discard => "discarded",
        }
    }
}

/// Judges the response to a request for `wanted` with `Range` and `If-Range`. A 206 must begin at the first missing
/// byte (it may end earlier: the rest is requested again), and must certainly belong to the same representation.
//= RFC 9111 section 3.4: the same strong validator
pub fn judge(
    status: u16,
    response: &[FieldLine<'_>],
    content_length: Option<u64>,
    wanted: &Wanted<'_>,
    now: Timestamp,
) -> HoleAnswer {
    match status {
        200 => HoleAnswer::Replace,
        206 => received_part(response, content_length)
            .filter(|part| fits(part, wanted))
            .filter(|_| may_combine(&wanted.validators, &Validators::parse(response, now)))
            .filter(|_| is_described_alike(wanted.fields, response, Description::Short))
            .map_or(HoleAnswer::Discard, HoleAnswer::Splice),
        404 | 410 | 412 | 416 => HoleAnswer::Discard,
        400..=999 => HoleAnswer::Failed,
        _ => HoleAnswer::Discard,
    }
}

fn fits(part: &ContentRange, wanted: &Wanted<'_>) -> bool {
    same_complete_length(wanted.complete_bytes, part.complete_bytes)
        && part.range.first == wanted.range.first
        && part.range.last <= wanted.range.last
}

/// Returns whether parts of these complete lengths can belong to one representation; an unknown length matches any.
pub fn same_complete_length(stored: Option<u64>, received: Option<u64>) -> bool {
    stored.is_none() || received.is_none() || stored == received
}

/// Returns the range of a request with exactly one range. Only the response to such a request is stored as a part.
pub fn single_range(request: &[FieldLine<'_>]) -> Option<RangeSpec> {
    let specs = crate::range::parse(fields::only(request, "range")?)?;
    match specs[..] {
        [spec] => Some(spec),
        _ => None,
    }
}
