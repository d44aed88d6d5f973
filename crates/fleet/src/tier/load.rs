//! Look-ups in the tier, collapsed if several need the same record at the same time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use cache::RemoteTier;
use cache::entry::segmented::Absent;
use cache::entry::stored::CacheEntry;
use cache::portable::{self, Decoded, Reader};
use cache::settings::StorageRules;
use message::clock::{self, now};
use store::backing::{BackingError, Loaded, Tracking};
use store::format::{FormatError, Meaning};
use store::{Change, FillId, Placement};

use crate::answer::{Answer, RemoteState, Said};
use crate::counts::Event;
use crate::names;
use crate::tier::copies::{Held, Moment};
use crate::tier::{MemoryUse, Tier};
use crate::write_behind::KeyWatch;

/// The caller's rules for using a loaded record.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub rules: StorageRules<'a>,
    /// Key of the URL alone, if the key of the look-up has more parts.
    pub site_key: Option<&'a [u8]>,
}

/// Number of attempts if the key changes during a look-up in the tier.
const ATTEMPTS: usize = 3;

impl Tier {
    /// Looks up a key in memory and in the tier.
    pub async fn load(&self, key: &[u8], asker: Asker<'_>) -> Answer {
        self.log.in_touch().await;
        self.loads.get(key.into(), self.ask(key, asker)).await
    }

    /// Looks up a key with a new query. A look-up in progress isn't joined, because it may return an earlier record.
    pub async fn load_anew(&self, key: &[u8], asker: Asker<'_>) -> Answer {
        let known = self.memory.get(key).or_else(|| self.pending(key));
        // Another instance may have just changed the record, and the tier's report of that may still be on its way.
        known.iter().filter(|copy| copy.copy.version().is_some()).for_each(|copy| copy.copy.suspect());
        self.ask(key, asker).await
    }

    pub(crate) fn reader<'a>(&'a self, asker: Asker<'a>) -> Reader<'a> {
        Reader {
            memory: &self.memory,
            invalidations: &self.invalidations,
            rules: asker.rules,
            site_key: asker.site_key,
            clock_ahead_ms: self.tier_clock_ahead_ms(),
            outdated_to_ms: self.outdated_to_ms.load(Ordering::Acquire),
        }
    }

    /// Returns by how much the tier's clock is ahead of this process's clock.
    pub(crate) fn tier_clock_ahead_ms(&self) -> i64 {
        self.backing.clock_ahead_ms().unwrap_or(0)
    }

    /// Returns the correction, in milliseconds, of the arrival time from which the age of a response is computed.
    pub fn clock_ahead_ms(&self) -> i64 {
        clock::corrected_by_ms(self.tier_clock_ahead_ms())
    }

    async fn ask(&self, key: &[u8], asker: Asker<'_>) -> Answer {
        for _ in 0..ATTEMPTS {
            let asking = self.write_behind.ask(key);
            let held = match self.held(key) {
                Held::Sure(entry) => return Answer { entry, ..Answer::UNASKED },
                Held::Suspect(entry) => Some(entry),
                Held::Nothing => None,
            };
            let moment = self.moment();
            let read = self.read(key, held.as_deref(), &self.reader(asker)).await;
            if let Some(answer) = self.answer((&asking, moment), held, read) {
                return answer;
            }
            // The answer is outdated, so another attempt follows.
        }
        Answer { said: Said::Changing, ..Answer::UNASKED }
    }

    /// Puts the record of an answer into memory, and returns the answer, or `None` if it is outdated. An answer without an entry gets the
    /// copy in memory as its entry, unless this instance can't use the tier's record.
    fn answer(
        &self,
        (asking, moment): (&KeyWatch<'_>, Moment),
        held: Option<Arc<CacheEntry>>,
        read: Answer,
    ) -> Option<Answer> {
        let is_current = match (read.said, &read.remote, read.entry.as_ref().or(held.as_ref())) {
            (Said::Failed, ..) => true,
            (Said::Nothing, _, None) => asking.is_current(),
            (Said::Nothing, _, Some(held)) => moment.leave_alone(asking, held),
            (Said::Unchanged, RemoteState::Record(record), Some(held)) => moment.follow(asking, held, record),
            (Said::Found, RemoteState::Record(record), Some(entry)) => {
                self.take(asking, entry, || moment.follow(asking, entry, record))
            }
            _ => self.drop_copy(asking),
        };
        let held = held.filter(|_| read.said != Said::Unusable);
        is_current.then(|| Answer { entry: read.entry.or(held), ..read })
    }

    /// Puts a record into memory, if memory keeps the tier's records. Returns whether the record is still current.
    fn take(&self, asking: &KeyWatch<'_>, entry: &Arc<CacheEntry>, found: impl FnOnce() -> bool) -> bool {
        let mut is_current = false;
        self.memory.update(asking.key(), |current| {
            entry.keep_usage(current.map(Arc::as_ref), now());
            is_current = found();
            match self.memory_use {
                MemoryUse::Kept if is_current => Change::Put(Arc::clone(entry)),
                // In this mode the record isn't kept, but a note in memory would hide it, so the note is removed.
                MemoryUse::Forgotten if is_current => Change::Remove,
                MemoryUse::Kept | MemoryUse::Forgotten => Change::Keep,
            }
        });
        is_current
    }

    /// Removes the copy in memory, because it is outdated and this instance can't use the tier's record. Returns whether the answer is
    /// still current.
    fn drop_copy(&self, asking: &KeyWatch<'_>) -> bool {
        let mut is_current = false;
        self.memory.update(asking.key(), |_| {
            is_current = asking.gone();
            if is_current { Change::Remove } else { Change::Keep }
        });
        is_current
    }

    /// Reads a key from the tier. The answer has an entry only if it differs from the copy in memory.
    async fn read(&self, key: &[u8], held: Option<&CacheEntry>, reader: &Reader<'_>) -> Answer {
        let answer = |said, remote, entry| Answer { said, remote, entry };
        let Some(name) = names::of_record(key) else {
            return answer(Said::Nothing, RemoteState::Nothing, None);
        };
        if !self.log.is_read() {
            // Until this instance has read the log, it doesn't know which of the tier's records have been purged.
            self.counts.add(Event::LoadFailed);
            return answer(Said::Failed, RemoteState::Unread, None);
        }
        let record = self.record(&name, Tracking::UntilChanged).await;
        self.is_silent.store(record.is_err(), Ordering::Relaxed);
        let (event, read) = match record {
            Err(_) => (Event::LoadFailed, answer(Said::Failed, RemoteState::Unread, None)),
            Ok(None) => (Event::LoadMissed, answer(Said::Nothing, RemoteState::Nothing, None)),
            Ok(Some(record)) if held.and_then(|held| held.copy.version()) == Some(record.version) => {
                (Event::LoadHit, answer(Said::Unchanged, RemoteState::Record(record), None))
            }
            Ok(Some(record))
                if held.is_some_and(|held| held.copy.is_refused() && !has_responses(&record, key)) =>
            {
                (Event::LoadMissed, answer(Said::Nothing, RemoteState::Record(record), None))
            }
            Ok(Some(record)) => match self.entry(&record, key, reader).await {
                Some(entry) => {
                    let entry = Some(Arc::new(entry));
                    (Event::LoadHit, answer(Said::Found, RemoteState::Record(record), entry))
                }
                None => (Event::LoadMissed, answer(Said::Unusable, RemoteState::Record(record), None)),
            },
        };
        self.counts.add(event);
        read
    }

    async fn entry(&self, record: &Loaded, key: &[u8], reader: &Reader<'_>) -> Option<CacheEntry> {
        let apart = match portable::decode(&record.bytes, key) {
            Ok(decoded) => self.apart(&decoded).await,
            Err(error) => {
                self.unusable(&error, key);
                return None;
            }
        };
        let mut decoded = portable::decode(&record.bytes, key).ok()?;
        for (id, bytes) in &apart {
            // A response that can't be used counts as missing.
            let _ = decoded.add_apart(*id, bytes);
        }
        let bodies = self.bodies(&decoded).await;
        decoded.entry(&bodies, reader)
    }

    /// Counts an unusable record. Removes a corrupt record, unless a change to its key is pending.
    fn unusable(&self, error: &FormatError, key: &[u8]) {
        tracing::debug!(%error, "a record of the tier can't be used");
        match error.meaning() {
            Meaning::Corrupt => {
                self.counts.add(Event::Corrupt);
                self.remove_unknown(key);
            }
            Meaning::Forged => self.counts.add(Event::Forged),
            Meaning::Leave | Meaning::Replace => {}
        }
    }

    pub(super) async fn record(
        &self,
        name: &[u8],
        tracking: Tracking,
    ) -> Result<Option<Loaded>, BackingError> {
        let loaded = self.backing.load(&[name], tracking).await?;
        Ok(loaded.into_iter().next().flatten())
    }

    /// Loads the responses that are stored apart from the record, as far as the tier has them.
    async fn apart(&self, decoded: &Decoded<'_>) -> Vec<(FillId, Bytes)> {
        let ids: Vec<FillId> = decoded.apart().collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let names: Vec<Vec<u8>> = ids.iter().map(|id| names::of_response(*id)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let loaded = self.backing.load(&names, Tracking::Off).await.unwrap_or_default();
        ids.into_iter().zip(loaded).filter_map(|(id, found)| Some((id, found?.bytes))).collect()
    }

    /// Loads the small bodies, as far as the tier has them. In memory they are part of the record.
    async fn bodies(&self, decoded: &Decoded<'_>) -> Vec<(FillId, Bytes)> {
        let mut bodies = Vec::new();
        for small in decoded.small_bodies() {
            bodies.extend(self.small_body(&small).await.map(|body| (small.fill, body)));
        }
        bodies
    }

    async fn small_body(&self, small: &Absent) -> Option<Bytes> {
        let mut body = BytesMut::new();
        for segment in self.segments.load(small, Placement::Heap).await.ok()? {
            body.extend_from_slice(&segment?.to_bytes().ok()?);
        }
        Some(body.freeze())
    }
}

/// Returns whether a record contains a response. Returns true if the record can't be decoded.
fn has_responses(record: &Loaded, key: &[u8]) -> bool {
    portable::decode(&record.bytes, key).map_or(true, |decoded| decoded.has_responses())
}
