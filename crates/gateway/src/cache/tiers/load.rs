//! Asking the tier: once for all who want the same at the same time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use store::backing::{BackingError, Loaded, Tracking};
use store::format::{FormatError, Meaning};
use store::{Change, FillId, Memory, Place};

use super::counts::Event;
use super::working::{Asking, Known};
use super::{MemoryUse, Tiers, names};
use crate::cache::epochs::Epochs;
use crate::cache::record::portable::{self, Decoded, Reader};
use crate::cache::record::segmented::Absent;
use crate::cache::record::stored::CacheEntry;
use crate::config::CacheRule;

/// Who asks, and by which rules what comes is judged.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) rule: &'a CacheRule,
    pub(crate) groups_max: usize,
    /// The key of the URL alone, where what is asked for lies under one that has more.
    pub(crate) site_key: Option<&'a [u8]>,
}

/// Where what comes is put, and what it is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    pub(crate) memory: &'a Memory<CacheEntry>,
    pub(crate) epochs: &'a Epochs,
}

/// How often the tier is asked again because something has changed meanwhile.
const ATTEMPTS: usize = 3;

impl Tiers {
    /// What lies under a key, in memory or in the tier.
    pub(crate) async fn load(&self, home: Home<'_>, key: &[u8], asker: Asker<'_>) -> Option<Arc<CacheEntry>> {
        self.loads.get(key.into(), self.ask(home, key, asker)).await
    }

    fn reader<'a>(&self, home: Home<'a>, asker: Asker<'a>) -> Reader<'a> {
        let Home { memory, epochs } = home;
        let Asker { rule, groups_max, site_key } = asker;
        let clock_ahead_ms = self.clock_ahead_ms();
        let outdated_to_ms = self.outdated_to_ms.load(Ordering::Acquire);
        Reader { memory, epochs, rule, groups_max, site_key, clock_ahead_ms, outdated_to_ms }
    }

    pub(super) fn clock_ahead_ms(&self) -> i64 {
        self.backing.clock_ahead_ms().unwrap_or(0)
    }

    async fn ask(&self, home: Home<'_>, key: &[u8], asker: Asker<'_>) -> Option<Arc<CacheEntry>> {
        for _ in 0..ATTEMPTS {
            let asking = self.working.ask(key);
            match self.working.known(key) {
                Known::Entry(entry) => return Some(entry),
                Known::Nothing => return None,
                Known::Unknown => {}
            }
            match self.read(key, &self.reader(home, asker)).await.map(Arc::new) {
                Some(entry) if self.take(home.memory, key, &asking, &entry) => return Some(entry),
                None if asking.is_current() => return None,
                // Whatever that was is outdated.
                _ => {}
            }
        }
        None
    }

    /// Makes it known, and gives it to memory where that keeps records. Whether it is still what the tier has.
    fn take(
        &self,
        memory: &Memory<CacheEntry>,
        key: &[u8],
        asking: &Asking<'_>,
        entry: &Arc<CacheEntry>,
    ) -> bool {
        let mut is_current = false;
        memory.update(key, |_| {
            is_current = asking.found(entry);
            match self.memory_use {
                MemoryUse::Kept if is_current => Change::Put(Arc::clone(entry)),
                // A note is not to hide it.
                MemoryUse::Forgotten if is_current => Change::Remove,
                MemoryUse::Kept | MemoryUse::Forgotten => Change::Keep,
            }
        });
        is_current
    }

    async fn read(&self, key: &[u8], reader: &Reader<'_>) -> Option<CacheEntry> {
        let Ok(record) = self.record(&names::of_record(key)?).await else {
            self.counts.add(Event::LoadFailed);
            return None;
        };
        let entry = match record {
            Some(record) => self.entry(&record, key, reader).await,
            None => None,
        };
        self.counts.add(if entry.is_some() { Event::LoadHit } else { Event::LoadMissed });
        entry
    }

    async fn entry(&self, record: &Loaded, key: &[u8], reader: &Reader<'_>) -> Option<CacheEntry> {
        let apart = match portable::decode(&record.bytes, key, None) {
            Ok(decoded) => self.apart(&decoded).await,
            Err(error) => {
                self.unusable(&error, key);
                return None;
            }
        };
        let mut decoded = portable::decode(&record.bytes, key, None).ok()?;
        for (id, bytes) in &apart {
            // As good as missing.
            let _ = decoded.add_apart(*id, bytes);
        }
        let bodies = self.bodies(&decoded).await;
        decoded.entry(&bodies, reader)
    }

    /// What is corrupt is removed by who finds it, unless it is on its way to be changed here.
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

    pub(super) async fn record(&self, name: &[u8]) -> Result<Option<Loaded>, BackingError> {
        let loaded = self.backing.load(&[name], Tracking::Off).await?;
        Ok(loaded.into_iter().next().flatten())
    }

    /// The responses that lie apart, as far as they are there.
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

    /// The bodies that are one with their records in memory, as far as they are there.
    async fn bodies(&self, decoded: &Decoded<'_>) -> Vec<(FillId, Bytes)> {
        let mut bodies = Vec::new();
        for small in decoded.small_bodies() {
            bodies.extend(self.small_body(&small).await.map(|body| (small.fill, body)));
        }
        bodies
    }

    async fn small_body(&self, small: &Absent) -> Option<Bytes> {
        let mut body = BytesMut::new();
        for segment in self.segments.load(small, Place::Heap).await.ok()? {
            body.extend_from_slice(&segment?.to_bytes().ok()?);
        }
        Some(body.freeze())
    }
}
