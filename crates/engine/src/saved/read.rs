//! Reads saved data as parts with valid checksums.

use std::fmt;

use super::format::{
    Checksum, HEADER_BYTES, Header, MAGIC, PART_BYTES, Part, SHARD_BYTES, ShardEntry, TRAILER_BYTES, Trailer,
};
use super::{Progress, SavedError, Source};
use crate::hash::Hashing;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes per read during verification.
const PIECE_BYTES: u64 = 256 << 10;

/// A saved data set with a valid header and trailer.
pub struct Saved {
    source: Box<dyn Source>,
    header: Header,
    note: u64,
    shards: Vec<ShardEntry>,
    pub(super) loaded_shards: AtomicU64,
    pub(super) loaded_keys: AtomicU64,
    pub(super) expired_keys: AtomicU64,
    pub(super) left_out_keys: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saved").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Iterates over the parts of a shard.
pub(super) struct Parts<'a> {
    saved: &'a Saved,
    shard: usize,
    at: u64,
    left: u64,
    number: u32,
}

/// The head of a part whose body is to be read next.
pub(super) struct Opened {
    pub(super) part: Part,
    /// Offset of the body.
    pub(super) offset: u64,
    head: [u8; PART_BYTES],
    checksum: u64,
}

impl Saved {
    /// Returns whether a file that begins with these bytes can't contain saved data, so that it belongs to
    /// another program. `beginning` may have any length.
    pub fn is_foreign(beginning: &[u8]) -> bool {
        beginning.iter().zip(&MAGIC).any(|(is, ours)| is != ours)
    }

    /// Reads the header, the trailer and the table of contents.
    ///
    /// # Errors
    /// If the data is of another kind or version, incomplete, or damaged.
    pub fn open(source: impl Source + 'static) -> Result<Self, SavedError> {
        let header = read_header(&source)?;
        let trailer = read_trailer(&source, &header)?;
        let shards = read_table(&source, &header, &trailer)?;
        let (loaded_shards, loaded_keys, expired_keys, left_out_keys) = Default::default();
        let failure = Mutex::new(None);
        let source = Box::new(source);
        let note = trailer.note;
        Ok(Self {
            source,
            header,
            note,
            shards,
            loaded_shards,
            loaded_keys,
            expired_keys,
            left_out_keys,
            failure,
        })
    }

    /// Reads a whole shard and verifies its checksums.
    ///
    /// # Errors
    /// If the source can't be read, or its contents have changed.
    pub fn verify(&self, shard: usize) -> Result<(), SavedError> {
        let mut buffer = Vec::new();
        let mut parts = self.parts(shard);
        while let Some(opened) = parts.next()? {
            let mut checksum = opened.begin(self.header.id);
            let mut left = opened.part.body_bytes();
            while left > 0 {
                let piece_bytes = left.min(PIECE_BYTES);
                buffer.resize(piece_bytes as usize, 0);
                let offset = opened.offset + opened.part.body_bytes() - left;
                self.source.read_at(offset, &mut buffer)?;
                checksum = checksum.add(&buffer);
                left -= piece_bytes;
            }
            opened.compare(&checksum)?;
        }
        Ok(())
    }

    /// Number of shards of the engine that wrote the data.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Time of writing.
    #[must_use]
    pub fn saved_at_ms(&self) -> u64 {
        self.header.saved_at_ms
    }

    /// The caller's note.
    #[must_use]
    pub fn note(&self) -> u64 {
        self.note
    }

    /// Number of keys written.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.shards.iter().flat_map(|shard| shard.keys).sum()
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Progress of loading into an engine.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            shards: self.loaded_shards.load(Relaxed),
            keys: self.loaded_keys.load(Relaxed),
            expired_keys: self.expired_keys.load(Relaxed),
            left_out_keys: self.left_out_keys.load(Relaxed),
            failure: self.failure.lock().clone(),
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.header.seed
    }

    pub(super) fn hashing(&self) -> Hashing {
        self.header.hashing
    }

    pub(super) fn entry(&self, shard: usize) -> &ShardEntry {
        &self.shards[shard]
    }

    /// Marks the data as damaged, so that the rest of it isn't loaded.
    pub(super) fn refuse(&self, why: &SavedError) {
        self.failure.lock().get_or_insert_with(|| super::text(why));
    }

    /// Returns whether damage was found while loading.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.failure.lock().is_some()
    }

    pub(super) fn parts(&self, shard: usize) -> Parts<'_> {
        let entry = self.entry(shard);
        Parts { saved: self, shard, at: entry.offset, left: entry.bytes, number: 0 }
    }

    /// Reads the body of a part.
    pub(super) fn read(
        &self,
        opened: &Opened,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<(), SavedError> {
        self.source.read_at(opened.offset, first)?;
        self.source.read_at(opened.offset + first.len() as u64, second)?;
        opened.compare(&opened.begin(self.header.id).add(first).add(second))
    }
}

impl Parts<'_> {
    pub(super) fn next(&mut self) -> Result<Option<Opened>, SavedError> {
        let damaged = |what| SavedError::damaged(self.at, what);
        if self.left == 0 {
            let is_all = u64::from(self.number) == self.saved.entry(self.shard).parts;
            return if is_all { Ok(None) } else { Err(damaged("parts are missing")) };
        }
        self.left = self.left.checked_sub(PART_BYTES as u64).ok_or_else(|| damaged("incomplete part"))?;
        let mut head = [0; PART_BYTES];
        self.saved.source.read_at(self.at, &mut head)?;
        let (part, checksum) = Part::decode(&head).map_err(damaged)?;
        if part.number != self.number || usize::from(part.shard) != self.shard {
            return Err(damaged("unexpected part"));
        }
        self.left =
            self.left.checked_sub(part.body_bytes()).ok_or_else(|| damaged("a part beyond its shard"))?;
        let offset = self.at + PART_BYTES as u64;
        self.at = offset + part.body_bytes();
        self.number += 1;
        Ok(Some(Opened { part, offset, head, checksum }))
    }
}

impl Opened {
    fn begin(&self, id: u64) -> Checksum {
        Checksum::of_part(id, &self.head)
    }

    fn compare(&self, found: &Checksum) -> Result<(), SavedError> {
        if found.is(self.checksum) { Ok(()) } else { Err(self.damaged("checksum mismatch in a part")) }
    }

    pub(super) fn damaged(&self, what: &'static str) -> SavedError {
        SavedError::damaged(self.offset, what)
    }
}

fn read_header(source: &impl Source) -> Result<Header, SavedError> {
    if source.bytes() < HEADER_BYTES as u64 {
        return Err(if source.bytes() == 0 { SavedError::Incomplete } else { SavedError::Foreign });
    }
    let mut bytes = [0; HEADER_BYTES];
    source.read_at(0, &mut bytes)?;
    Header::decode(&bytes)
}

fn trailer_offset(source: &impl Source) -> Result<u64, SavedError> {
    source.bytes().checked_sub(TRAILER_BYTES as u64).ok_or(SavedError::Incomplete)
}

fn read_trailer(source: &impl Source, header: &Header) -> Result<Trailer, SavedError> {
    let mut bytes = [0; TRAILER_BYTES];
    source.read_at(trailer_offset(source)?, &mut bytes)?;
    Trailer::decode(&bytes, header.id).ok_or(SavedError::Incomplete)
}

/// Reads the table, which must begin after the last part and end at the trailer.
fn read_table(
    source: &impl Source,
    header: &Header,
    trailer: &Trailer,
) -> Result<Vec<ShardEntry>, SavedError> {
    let trailer_offset = trailer_offset(source)?;
    let mut table = vec![0; header.shards as usize * SHARD_BYTES];
    if trailer.table_offset.checked_add(table.len() as u64) != Some(trailer_offset) {
        return Err(SavedError::Incomplete);
    }
    source.read_at(trailer.table_offset, &mut table)?;
    if !Checksum::new(header.id).add(&table).is(trailer.table_checksum) {
        return Err(SavedError::damaged(trailer.table_offset, "checksum mismatch in the table"));
    }
    let shards: Vec<_> = table.chunks_exact(SHARD_BYTES).map(ShardEntry::decode).collect();
    let mut at = HEADER_BYTES as u64;
    for shard in &shards {
        if shard.offset != at {
            return Err(SavedError::damaged(trailer.table_offset, "the shards have gaps between them"));
        }
        at = at.saturating_add(shard.bytes);
        if !shard.is_possible() {
            return Err(SavedError::damaged(trailer.table_offset, "more keys than bytes"));
        }
    }
    if at != trailer.table_offset {
        return Err(SavedError::damaged(trailer.table_offset, "the shards don't end at the table"));
    }
    Ok(shards)
}
