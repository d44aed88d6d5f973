//! From bytes to what lies under a key in memory.

use bytes::Bytes;
use caching::{Rules, Timestamp};
use message::reason::Detail;
use store::format::{
    FormatError, Note, NoteKind, Record, RecordKind, Response, TagKeys, Variant, decode_record,
};
use store::{FillId, Memory};

use super::{bodies, encode, judge};
use crate::cache::epochs::Epochs;
use crate::cache::record::segmented::Absent;
use crate::cache::record::stored::{CacheEntry, StoredResponse, Uncacheable};
use crate::config::CacheRule;

/// A primary record, with the responses apart from it that were found.
pub(crate) struct Decoded<'a> {
    record: Record<'a>,
    keys: Option<&'a TagKeys>,
    /// All of the record and of what was added.
    bytes: usize,
}

/// Who reads a record.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// Where the body's segments will be.
    pub(crate) memory: &'a Memory<CacheEntry>,
    pub(crate) epochs: &'a Epochs,
    /// That of the request which asks for the key.
    pub(crate) rule: &'a CacheRule,
    pub(crate) groups_max: usize,
    /// The cache key of the target URI alone, where the one that was asked for has more: for QUERY, and where fields are a
    /// part of it. Keys are watched then ([`Epochs::watch_keys`]).
    pub(crate) site_key: Option<&'a [u8]>,
    /// How far the clock of the tier is ahead of that of this process.
    pub(crate) clock_ahead_ms: i64,
    /// What was written up to this time, by the clock of the tier, is not believed.
    pub(crate) outdated_to_ms: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn rules(&self) -> &'a Rules {
        &self.rule.caching
    }

    /// A time of the tier by the clock of this process.
    pub(super) fn at(&self, tier_ms: u64) -> Timestamp {
        let tier_ms = i64::try_from(tier_ms).unwrap_or(i64::MAX);
        Timestamp::from_ms(tier_ms.saturating_sub(self.clock_ahead_ms))
    }
}

/// The primary record of a key.
///
/// # Errors
/// When the bytes are anything else; [`FormatError::meaning`] says what to do.
pub(crate) fn decode<'a>(
    bytes: &'a [u8],
    key: &[u8],
    keys: Option<&'a TagKeys>,
) -> Result<Decoded<'a>, FormatError> {
    let record = decode_record(bytes, RecordKind::Primary, key, keys)?;
    Ok(Decoded { record, keys, bytes: bytes.len() })
}

impl<'a> Decoded<'a> {
    /// The ids of the responses that lie apart, the newest first, as far as they were not added.
    pub(crate) fn apart(&self) -> impl Iterator<Item = FillId> {
        self.record.variants.iter().filter(|variant| variant.response.is_none()).map(|variant| variant.id)
    }

    /// Adds a response that lies apart. What is not added is not there.
    ///
    /// # Errors
    /// When the bytes are anything else.
    pub(crate) fn add_apart(&mut self, id: FillId, bytes: &'a [u8]) -> Result<(), FormatError> {
        let apart = decode_record(bytes, RecordKind::Response, self.record.key, self.keys)?;
        let found = apart.variants.into_iter().find(|variant| variant.id == id).ok_or(FormatError::Other)?;
        if let Some(listed) = self.record.variants.iter_mut().find(|variant| variant.id == id) {
            *listed = found;
            self.bytes += bytes.len();
        }
        Ok(())
    }

    /// The bodies whose segments are wanted before anything can be made of the record.
    pub(crate) fn small_bodies(&self) -> impl Iterator<Item = Absent> {
        let responses = self.record.variants.iter().filter_map(|variant| variant.response.as_deref());
        responses.filter_map(|response| bodies::small(&response.body))
    }

    /// What lies under the key, to this reader: without the responses that it would not have stored, and those of whose
    /// small bodies something is missing. `small` are those that were found, by fill, all segments of each as one. `None`
    /// where nothing is left, or the memory budget has no room.
    pub(crate) fn entry(&self, small: &[(FillId, Bytes)], reader: &Reader<'_>) -> Option<CacheEntry> {
        let small_bytes = small.iter().map(|(_, data)| data.len()).sum::<usize>();
        // What is read is there twice for a moment; the record in memory reserves for itself.
        let _room = reader.memory.budget().reserve(self.bytes + small_bytes).ok()?;
        let variants: Vec<_> =
            self.record.variants.iter().filter_map(|variant| stored(variant, small, reader)).collect();
        let note = self.record.note.as_ref().and_then(|note| read_note(note, reader));
        if variants.is_empty() && note.is_none() {
            return None;
        }
        CacheEntry::new(reader.memory.budget(), variants, note).ok()
    }
}

/// What is written of a response inside of the record, if this reader may use that.
fn believed<'a>(variant: &'a Variant<'a>, reader: &Reader<'_>) -> Option<&'a Response<'a>> {
    let response = variant.response.as_deref()?;
    let is_too_large = |bytes: u64| bytes > reader.rule.object_bytes_max;
    let is_outdated = response.store_time_ms <= reader.outdated_to_ms;
    (!is_outdated && !response.body.complete_bytes.is_some_and(is_too_large)).then_some(response)
}

fn stored(variant: &Variant<'_>, small: &[(FillId, Bytes)], reader: &Reader<'_>) -> Option<StoredResponse> {
    let response = believed(variant, reader)?;
    let head = judge::head(variant, response, reader)?;
    let found = |fill| {
        let (_, data) = small.iter().find(|(found, _)| *found == fill)?;
        // A copy: it may be a part of a larger answer.
        Some(Bytes::copy_from_slice(data))
    };
    let body = bodies::read(&response.body, reader.memory, found)?;
    Some(StoredResponse { head: head.into(), body })
}

/// `None` where it is none of those that stand under a key, or says what only newer versions understand.
fn read_note(note: &Note<'_>, reader: &Reader<'_>) -> Option<Uncacheable> {
    match note.kind {
        NoteKind::NotShared => Some(Uncacheable {
            until: reader.at(note.until_ms),
            because: Detail::of_note(note.because)?,
            scope: encode::scope_of(note.scope)?,
        }),
        NoteKind::GaveUp => None,
    }
}
