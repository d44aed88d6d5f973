//! Decoding of records for memory.

use bytes::Bytes;
use caching::Timestamp;
use message::reason::Detail;
use store::format::{FormatError, Note, NoteKind, Record, RecordKind, Variant, decode_record};
use store::{FillId, Memory};

use super::{bodies, encode, judge};
use crate::entry::segmented::Absent;
use crate::entry::stored::{CacheEntry, StoredResponse, Uncacheable};
use crate::invalidation::Invalidations;
use crate::settings::StorageRules;

/// A primary record, with the separately stored responses that were found for it.
pub struct Decoded<'a> {
    record: Record<'a>,
    /// Size of the record and of the added responses.
    bytes: usize,
}

/// Context of a reader.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// Memory for the body's segments.
    pub memory: &'a Memory<CacheEntry>,
    pub invalidations: &'a Invalidations,
    /// Rules that apply to the request for the key.
    pub rules: StorageRules<'a>,
    /// Cache key of the target URI alone, if the requested key has more parts, as for QUERY or with keyed fields. Keys are watched then
    /// ([`Invalidations::watch_keys`]).
    pub site_key: Option<&'a [u8]>,
    /// Lead of the tier's clock over this process's clock.
    pub clock_ahead_ms: i64,
    /// Responses written up to this time, by the tier's clock, are ignored.
    pub outdated_to_ms: u64,
}

impl<'a> Reader<'a> {
    /// Converts a time of the tier to this process's clock.
    pub(super) fn at(&self, tier_ms: u64) -> Timestamp {
        let tier_ms = i64::try_from(tier_ms).unwrap_or(i64::MAX);
        Timestamp::from_ms(tier_ms.saturating_sub(self.clock_ahead_ms))
    }
}

/// Decodes the primary record of a key.
///
/// # Errors
/// Returns an error if the bytes are not a primary record of this key. [`FormatError::meaning`] says how to treat such bytes.
pub fn decode<'a>(bytes: &'a [u8], key: &[u8]) -> Result<Decoded<'a>, FormatError> {
    let record = decode_record(bytes, RecordKind::Primary, key, None)?;
    Ok(Decoded { record, bytes: bytes.len() })
}

impl<'a> Decoded<'a> {
    /// Returns the ids of separately stored responses that were not added yet, newest first.
    pub fn apart(&self) -> impl Iterator<Item = FillId> {
        self.record.variants.iter().filter(|variant| variant.response.is_none()).map(|variant| variant.id)
    }

    /// Adds a response that is stored separately. A response that is not added counts as missing.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a record of this response.
    pub fn add_apart(&mut self, id: FillId, bytes: &'a [u8]) -> Result<(), FormatError> {
        let apart = decode_record(bytes, RecordKind::Response, self.record.key, None)?;
        let found = apart.variants.into_iter().find(|variant| variant.id == id).ok_or(FormatError::Other)?;
        if let Some(listed) = self.record.variants.iter_mut().find(|variant| variant.id == id) {
            *listed = found;
            self.bytes += bytes.len();
        }
        Ok(())
    }

    /// Returns the small bodies whose segments are needed before the record can be used.
    pub fn small_bodies(&self) -> impl Iterator<Item = Absent> {
        let responses = self.record.variants.iter().filter_map(|variant| variant.response.as_deref());
        responses.filter_map(|response| bodies::small(&response.body))
    }

    /// Returns whether the record has responses, for this reader or others.
    pub fn has_responses(&self) -> bool {
        !self.record.variants.is_empty()
    }

    /// Creates the record for this reader, without responses that the reader would not have stored or whose small bodies are incomplete.
    /// `small` contains the small bodies that were found, by fill, each with all its segments joined. `None` if the record is empty, or the
    /// memory budget has no room.
    pub fn entry(&self, small: &[(FillId, Bytes)], reader: &Reader<'_>) -> Option<CacheEntry> {
        let small_bytes = small.iter().map(|(_, data)| data.len()).sum::<usize>();
        // The bytes exist twice for a short time; the record in memory makes its own reservation.
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

/// Returns the response inside the record, if this reader may use it.
fn stored(variant: &Variant<'_>, small: &[(FillId, Bytes)], reader: &Reader<'_>) -> Option<StoredResponse> {
    let response = variant.response.as_deref()?;
    let is_too_large = |bytes: u64| bytes > reader.rules.object_bytes_max;
    let is_outdated = response.store_time_ms <= reader.outdated_to_ms;
    if is_outdated || response.body.complete_bytes.is_some_and(is_too_large) {
        return None;
    }
    let head = judge::head(variant, response, reader)?;
    let found = |fill| {
        let (_, data) = small.iter().find(|(found, _)| *found == fill)?;
        // Copies the data, because it may be part of a larger reply.
        Some(Bytes::copy_from_slice(data))
    };
    let body = bodies::read(&response.body, reader.memory, found)?;
    Some(StoredResponse { head: head.into(), body })
}

/// Reads a note; `None` if its kind isn't used for keys in memory, or is understood only by newer versions.
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
