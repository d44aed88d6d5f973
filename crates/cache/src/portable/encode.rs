//! Encoding of a record in memory.

use std::sync::Arc;

use bytes::Bytes;
use caching::{RefusalScope, Timestamp};
use store::backing::{KEY_BYTES_MAX, RECORD_BYTES_MAX};
use store::format::{
    Body, FieldLine, INLINE_BYTES_MAX, Layout, Meaning, Note, NoteKind, Record, RecordKind, Response,
    Variant, decode_record, encode_record,
};
use store::{FillId, SegmentId};

use super::bodies;
use crate::entry::provenance::Provenance;
use crate::entry::stored::{CacheEntry, StoredBody, StoredHead, StoredResponse, Uncacheable};
use crate::invalidation::Invalidations;

/// Context of an encoding.
#[derive(Clone, Copy)]
pub struct Writing<'a> {
    /// Full cache key.
    pub key: &'a [u8],
    /// Layouts of segmented bodies that the tier has. The record leaves out responses with other bodies.
    pub given: &'a [Layout],
    /// Translates positions in this process's log to positions in the shared log. `None` leaves them unchanged.
    pub invalidations: Option<&'a Invalidations>,
    /// Current time by the clock of this process.
    pub now: Timestamp,
    /// Lead of the tier's clock over this process's clock.
    pub clock_ahead_ms: i64,
}

/// Other responses under the key in the tier.
#[derive(Clone, Copy, Default)]
pub struct Merge<'a> {
    /// Primary record in the tier. An unreadable record is ignored; the caller detects records that must not be overwritten
    /// ([`Meaning::Leave`]).
    pub theirs: Option<&'a [u8]>,
    /// Responses in that record that are no longer in use.
    pub dropped: &'a [FillId],
}

/// Encoded record with its parts.
#[derive(Debug)]
pub struct Encoded {
    /// Primary record.
    pub primary: Vec<u8>,
    /// Responses stored apart from the primary record, by id, if this process knows their bytes. The list includes responses that were
    /// written earlier.
    pub apart: Vec<(FillId, Vec<u8>)>,
    /// Bodies that memory stores inside the record and the tier in segments.
    pub segments: Vec<SegmentBytes>,
    /// Whether the record contains only this instance's responses: the tier had no other responses, and no newer versions of these. If
    /// false, a reader that needs the other responses reads the record again.
    pub has_ours_alone: bool,
}

/// Segment to be written.
#[derive(Debug)]
pub struct SegmentBytes {
    pub id: SegmentId,
    /// Size of the segment's cell; the last segment of a body may be shorter.
    pub cell_bytes: u32,
    pub data: Bytes,
}

/// Encodes the record of a key; `None` if it has no responses that a tier could hold. The newest response is inside the primary record if
/// it fits. This instance's responses come first. The tier's responses follow, except for dropped ones. If a response of each answers the
/// same requests, the tier's response stays only if it is known to be newer.
///
/// The record leaves out responses without inputs, and responses that are too large for a record. For a response stored apart, only the
/// description of its body changes; everything else under its id is written once.
pub fn encode(writing: &Writing<'_>, entry: &CacheEntry, merge: Merge<'_>) -> Option<Encoded> {
    let theirs =
        merge.theirs.and_then(|bytes| decode_record(bytes, RecordKind::Primary, writing.key, None).ok());
    let known: Vec<Known<'_>> =
        entry.by_use().into_iter().filter_map(|stored| Known::of(stored, writing.given)).collect();
    let mut variants: Vec<Variant<'_>> = known.iter().map(|known| known.variant(writing)).collect();
    let theirs = theirs.iter().flat_map(|record| &record.variants);
    let theirs: Vec<_> = theirs.filter(|their| !merge.dropped.contains(&their.id)).collect();
    let count = variants.len();
    variants.retain(|our| !theirs.iter().any(|their| overtakes(their, our, writing.tier_ms(writing.now))));
    let is_overtaken = variants.len() < count;
    let kept: Vec<_> =
        theirs.into_iter().filter(|their| !variants.iter().any(|our| is_same(their, our))).cloned().collect();
    let has_ours_alone = !is_overtaken && kept.is_empty();
    variants.extend(kept);
    let note = entry.uncacheable().filter(|note| writing.now < note.until);
    let note = note.as_ref().map(|note| written_note(note, writing));
    let (primary, inside, apart) = place(writing, note, variants)?;
    let ids: Vec<FillId> = inside.into_iter().chain(apart.iter().map(|apart| apart.listed.id)).collect();
    let apart = apart.into_iter().filter_map(|apart| Some((apart.listed.id, apart.bytes?))).collect();
    if ids.is_empty() && note.is_none() {
        return None;
    }
    let segments = known.iter().filter(|known| ids.contains(&known.inputs.id)).filter_map(Known::segment);
    let segments = segments.collect();
    Some(Encoded { primary, apart, segments, has_ours_alone })
}

/// Encodes an empty record, which keeps its key in use. `None` if the key fits in no record.
pub fn nothing(key: &[u8]) -> Option<Vec<u8>> {
    sealed(RecordKind::Primary, &Record { key, note: None, variants: Vec::new() })
}

/// Returns whether a tier can hold a response with this head, for any size of the body. `true` without a tier, or if the key is too long
/// for the tier, because the tier isn't used then.
pub fn may_hold(head: &StoredHead, key: Option<&[u8]>) -> bool {
    let key_bytes = key.map(<[u8]>::len);
    let Some(inputs) = head.inputs().filter(|_| key_bytes.is_none_or(|bytes| bytes < KEY_BYTES_MAX)) else {
        return true;
    };
    // The key of a freshened response isn't known here. It is only a little longer than the target URI.
    let key_bytes = key_bytes.unwrap_or_else(|| inputs.target().len() + KEY_BEYOND_TARGET_BYTES);
    let count = head.fields.lines().len() + inputs.request().count() + inputs.judged().len();
    if count <= LINES_SURELY && key_bytes + head.heap_bytes() + inputs.heap_bytes() <= BYTES_SURELY {
        return true;
    }
    let body = StoredBody::Inline(Bytes::new());
    let stored = StoredResponse { head: Arc::new(head.clone()), body };
    let now = head.facts.response_time;
    let key = vec![0; key_bytes];
    let writing = Writing { key: &key, given: &[], invalidations: None, now, clock_ahead_ms: 0 };
    let bytes = Known::of(&stored, &[]).and_then(|known| sealed_alone(&key, known.variant(&writing)));
    bytes.is_some_and(|bytes| bytes.len() + body_bytes(head) <= RECORD_BYTES_MAX)
}

/// Returns the maximum size of the body in a record with this head: its content if small, otherwise its layout.
fn body_bytes(head: &StoredHead) -> usize {
    match head.declared_bytes().map(usize::try_from) {
        Some(Ok(bytes @ ..=INLINE_BYTES_MAX)) => bytes,
        Some(_) => LAYOUT_BYTES,
        None => INLINE_BYTES_MAX,
    }
}

/// Result of a fetch that produced no response to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseNote {
    /// The fetch was given up. Another instance should try.
    GaveUp,
    /// The response isn't shared, and other instances won't get a shareable response either.
    NotShared(Uncacheable),
    /// Nothing was fetched, because the existing record is sufficient.
    Unchanged,
}

/// Encodes the tier's record with this note added. `now` is a time of this process's clock, and `clock_ahead_ms` is the lead of the tier's
/// clock. `None` if the record doesn't fit, or must not be overwritten.
pub fn with_word(
    key: &[u8],
    theirs: Option<&[u8]>,
    word: ReleaseNote,
    (now, clock_ahead_ms): (Timestamp, i64),
) -> Option<Vec<u8>> {
    let writing = Writing { key, given: &[], invalidations: None, now, clock_ahead_ms };
    let variants = match theirs.map(|bytes| decode_record(bytes, RecordKind::Primary, key, None)) {
        None => Vec::new(),
        Some(Ok(record)) => record.variants,
        Some(Err(error)) if error.meaning() == Meaning::Leave => return None,
        Some(Err(_)) => Vec::new(),
    };
    let note = match &word {
        ReleaseNote::NotShared(note) => written_note(note, &writing),
        ReleaseNote::GaveUp | ReleaseNote::Unchanged => Note {
            kind: NoteKind::GaveUp,
            scope: scope_number(RefusalScope::All),
            until_ms: writing.tier_ms(now),
            because: b"",
        },
    };
    sealed(RecordKind::Primary, &Record { key, note: Some(note), variants })
}

/// Returns whether both variants are the same response, or answer the same requests.
fn is_same(their: &Variant<'_>, our: &Variant<'_>) -> bool {
    our.id == their.id || our.nominated == their.nominated
}

/// Returns whether the tier's response replaces this instance's: it was requested later, and not in the future. The comparison uses request
/// times, because a late answer to an old request is older than the response to a later reload. A request time in the future comes from a
/// wrong clock. For a response stored apart, the request time is unknown.
fn overtakes(their: &Variant<'_>, our: &Variant<'_>, now_ms: u64) -> bool {
    let asked = |variant: &Variant<'_>| variant.response.as_ref().map(|response| response.request_time_ms);
    our.id != their.id
        && our.nominated == their.nominated
        && asked(their).zip(asked(our)).is_some_and(|(their, our)| (our + 1..=now_ms).contains(&their))
}

impl Writing<'_> {
    fn tier_ms(&self, at: Timestamp) -> u64 {
        u64::try_from(at.plus_ms(self.clock_ahead_ms).as_ms()).unwrap_or(0)
    }
}

/// Returns the bytes of a record; `None` if it is too large.
fn sealed(kind: RecordKind, record: &Record<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    encode_record(record, kind, None, &mut bytes).ok()?;
    Some(bytes)
}

/// Returns the bytes of a response that is stored apart.
fn sealed_alone(key: &[u8], variant: Variant<'_>) -> Option<Vec<u8>> {
    sealed(RecordKind::Response, &Record { key, note: None, variants: vec![variant] })
}

/// A stored response with everything that a record needs from it.
struct Known<'a> {
    stored: &'a StoredResponse,
    inputs: &'a Provenance,
    content_length: Option<String>,
    body: Body<'a>,
}

impl<'a> Known<'a> {
    fn of(stored: &'a StoredResponse, given: &[Layout]) -> Option<Self> {
        let inputs = stored.head.inputs()?;
        let content_length = stored.head.declared_bytes().map(|bytes| bytes.to_string());
        let body = bodies::written(&stored.body, inputs.body, given)?;
        Some(Self { stored, inputs, content_length, body })
    }

    fn variant(&self, writing: &Writing<'_>) -> Variant<'_> {
        let head = &self.stored.head;
        let nominated = head.nominated().lines(head.nominated_values()).into_iter();
        Variant {
            nominated: nominated.map(|(name, value)| (name.as_bytes(), value)).collect(),
            id: self.inputs.id,
            response: Some(Box::new(self.response(writing))),
        }
    }

    fn response(&self, writing: &Writing<'_>) -> Response<'_> {
        let Self { stored, inputs, content_length, body } = self;
        let head = &stored.head;
        let length = content_length.iter().map(|text| (CONTENT_LENGTH.as_bytes(), text.as_bytes()));
        Response {
            status: head.facts.status,
            marks: inputs.marks,
            request_time_ms: writing.tier_ms(inputs.request_time),
            response_time_ms: writing.tier_ms(head.facts.response_time),
            store_time_ms: writing.tier_ms(writing.now),
            stale_since_ms: inputs.stale_since.map(|since| writing.tier_ms(since)),
            log: inputs.asked_at.map(|place| {
                writing.invalidations.map_or(place, |invalidations| invalidations.shared_place(place))
            }),
            method: inputs.method().as_bytes(),
            target: inputs.target().as_bytes(),
            reason: head.reason(),
            head: head.fields.lines().map(as_bytes).collect(),
            judged: inputs.judged().map(as_bytes).chain(length).collect(),
            request: inputs.request().map(|(name, value)| (name.as_bytes(), value)).collect(),
            body: body.clone(),
        }
    }

    fn segment(&self) -> Option<SegmentBytes> {
        let id = SegmentId { fill: self.inputs.body, index: 0 };
        let StoredBody::Inline(data) = &self.stored.body else { return None };
        (data.len() > INLINE_BYTES_MAX).then(|| SegmentBytes {
            id,
            cell_bytes: bodies::SMALL_CELL_BYTES,
            data: data.clone(),
        })
    }
}

fn as_bytes<'a>((name, value): caching::FieldLine<'a>) -> FieldLine<'a> {
    (name.as_bytes(), value)
}

fn written_note<'a>(note: &Uncacheable, writing: &Writing<'_>) -> Note<'a> {
    Note {
        kind: NoteKind::NotShared,
        scope: scope_number(note.scope),
        until_ms: writing.tier_ms(note.until),
        because: note.because.as_str().as_bytes(),
    }
}

fn scope_number(scope: RefusalScope) -> u8 {
    match scope {
        RefusalScope::Authorization => 0,
        RefusalScope::Credentials => 1,
        RefusalScope::All => 2,
    }
}

/// Returns the scope with a number from [`scope_number`].
pub(super) fn scope_of(number: u8) -> Option<RefusalScope> {
    let all = [RefusalScope::Authorization, RefusalScope::Credentials, RefusalScope::All];
    all.into_iter().find(|scope| scope_number(*scope) == number)
}

/// A variant stored apart, with its bytes unless they are already written.
struct Apart<'a> {
    listed: Variant<'a>,
    bytes: Option<Vec<u8>>,
}

impl<'a> Apart<'a> {
    /// Encodes a variant; `None` if it doesn't fit in a record.
    fn of(variant: Variant<'a>, writing: &Writing<'_>) -> Option<Self> {
        let listed = Variant { response: None, nominated: variant.nominated.clone(), id: variant.id };
        let bytes = match variant.response {
            None => None,
            Some(_) => Some(sealed_alone(writing.key, variant)?),
        };
        Some(Self { listed, bytes })
    }
}

/// Places the newest response inside the record if it fits, or else apart. If even the list of responses is too long, the least used are
/// left out. Returns the primary record, the id of the response inside, and the responses apart that the record lists.
fn place<'a>(
    writing: &Writing<'_>,
    note: Option<Note<'_>>,
    variants: Vec<Variant<'a>>,
) -> Option<(Vec<u8>, Option<FillId>, Vec<Apart<'a>>)> {
    let mut variants = variants.into_iter().take(VARIANTS_MAX);
    let newest = variants.next();
    let mut apart: Vec<Apart<'_>> = variants.filter_map(|variant| Apart::of(variant, writing)).collect();
    let primary = |newest: Option<&Variant<'_>>, apart: &[Apart<'_>]| {
        let listed = apart.iter().map(|apart| apart.listed.clone());
        let variants = newest.cloned().into_iter().chain(listed).collect();
        sealed(RecordKind::Primary, &Record { key: writing.key, note, variants })
    };
    if let Some(bytes) = primary(newest.as_ref(), &apart) {
        return Some((bytes, newest.map(|newest| newest.id), apart));
    }
    if let Some(newest) = newest.and_then(|newest| Apart::of(newest, writing)) {
        apart.insert(0, newest);
    }
    loop {
        if let Some(bytes) = primary(None, &apart) {
            return Some((bytes, None, apart));
        }
        apart.pop()?;
    }
}

/// Below these numbers of lines and bytes, a head certainly fits, so the check doesn't have to encode it.
const LINES_SURELY: usize = 256;
const BYTES_SURELY: usize = 32 << 10;
/// Size of a layout with about twenty runs; a whole body has one run.
const LAYOUT_BYTES: usize = 256;
/// Length of a key beyond the target: site, method, and keyed fields.
const KEY_BEYOND_TARGET_BYTES: usize = 1 << 10;
/// Maximum number of variants in a record.
const VARIANTS_MAX: usize = 32;
pub(super) const CONTENT_LENGTH: &str = "content-length";
