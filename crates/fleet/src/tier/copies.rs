//! Coherence between the tier and copies in memory.
//!
//! A look-up that keeps a record in memory makes the tier follow its key, and stores the version of the record in the copy. If the tier
//! later reports a change, the copy becomes suspect: its next use reads the record again, once for all requests that need it. If the tier
//! reports a change during the look-up, the number of the look-up reveals that (`write_behind.rs`), and the answer is discarded.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use cache::entry::copy::{Flush, Reliance};
use cache::entry::stored::CacheEntry;
use store::backing::{CopyStatus, Loaded, Source, Tracking, Version, Watcher};

use crate::counts::Event;
#[cfg(feature = "test-double")]
use crate::faults::{self, Fault};
use crate::names;
use crate::tier::{Coherence, Tier};
use crate::write_behind::{KeyWatch, KnownRecord};

/// State at the time when a look-up is sent. The answer may be older than changes that are reported after this time.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    flush: Flush,
    source: Source,
}

/// State of a key before the tier is queried.
pub(super) enum Held {
    /// The record, or `None` if the tier has none, is known for certain.
    Sure(Option<Arc<CacheEntry>>),
    /// The copy may be outdated.
    Suspect(Arc<CacheEntry>),
    /// The tier's record is unknown.
    Nothing,
}

/// Number of attempts to read a record that other instances keep changing.
const ATTEMPTS: usize = 3;

impl Tier {
    /// Returns whether the tier may have a newer record than memory, and can be queried.
    pub fn is_suspect(&self, entry: &CacheEntry) -> bool {
        match entry.copy.reliance(self.flush(), |source| self.standing(source)) {
            Reliance::Trusted => false,
            #[cfg(feature = "test-double")]
            Reliance::Suspect if faults::is_planted(Fault::TrustsSuspects) => false,
            Reliance::Suspect => true,
            Reliance::Unverified => {
                self.counts.add(Event::Unverified);
                false
            }
        }
    }

    /// Returns the status of copies whose records were read over a connection. While this instance can't read the purge log, they count as
    /// unverified.
    fn standing(&self, source: Source) -> CopyStatus {
        if self.log.is_followed() { self.backing.standing(source) } else { CopyStatus::Unverified }
    }

    /// Returns whether a copy has to be validated at the origin before use, because the tier can't verify it. A record that this instance
    /// wrote is included while the tier is unreachable, and until this instance has read the purges from that time, because other
    /// instances may have changed the same record.
    pub fn needs_verification(&self, entry: &CacheEntry) -> bool {
        let standing = |source| self.standing(source);
        let source = self.backing.source();
        self.coherence == Coherence::Strict
            && (self.region.as_ref().is_some_and(|region| region.is_behind())
                || standing(source) != CopyStatus::Verified
                || !self.log.was_read_over(source)
                || entry.copy.reliance(self.flush(), standing) != Reliance::Trusted)
    }

    /// Registers `watcher` for messages that the tier sends without a request.
    pub fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.backing.watch(watcher);
    }

    /// Marks records as suspect that the tier has reported as changed.
    pub fn suspect(&self, names: &[&[u8]]) {
        for key in names.iter().filter_map(|name| names::key_of(name)) {
            self.counts.add(Event::Pushed);
            let in_use = self.write_behind.suspect(key);
            let entries = [in_use, self.memory.get(key)];
            entries.iter().flatten().for_each(|entry| entry.copy.suspect());
        }
    }

    /// Marks all records as suspect, because anything in the tier may have changed.
    pub fn all_suspect(&self) {
        self.flushes.fetch_add(1, Ordering::AcqRel);
        self.counts.add(Event::Flushed);
    }

    fn flush(&self) -> Flush {
        Flush::of_count(self.flushes.load(Ordering::Acquire))
    }

    /// Returns the current moment. Call this function before sending a look-up.
    pub(super) fn moment(&self) -> Moment {
        Moment { flush: self.flush(), source: self.backing.source() }
    }

    pub(super) fn held(&self, key: &[u8]) -> Held {
        let entry = match self.write_behind.known(key) {
            KnownRecord::Nothing => return Held::Sure(None),
            KnownRecord::Entry(entry) => Some(entry),
            KnownRecord::Unknown => self.memory.get(key).filter(|entry| self.is_suspect(entry)),
        };
        match entry {
            None => Held::Nothing,
            Some(entry) if self.is_suspect(&entry) => Held::Suspect(entry),
            Some(entry) => Held::Sure(Some(entry)),
        }
    }

    /// Marks a copy as older than the tier's record, so that its next use reads that record.
    pub(super) fn record_overtaken(&self, entry: &CacheEntry) {
        entry.copy.overtaken(self.moment().source, self.flush());
    }

    /// Makes the tier follow a record that this instance has written, so that it reports changes by other instances.
    pub(super) async fn follow_written(&self, key: &[u8], entry: &Arc<CacheEntry>, version: Version) {
        let Some(name) = names::of_record(key) else { return };
        for _ in 0..ATTEMPTS {
            let (asking, moment) = (self.write_behind.ask(key), self.moment());
            let there = self.record(&name, Tracking::UntilChanged).await;
            let is_current = match there {
                Ok(Some(there)) if there.version == version => moment.follow(&asking, entry, &there),
                Ok(None) => moment.leave_alone(&asking, entry),
                Ok(Some(_)) | Err(_) => break,
            };
            // If a newer write is pending, its record will be followed instead.
            if is_current || self.write_behind.pending(key).is_some() {
                return;
            }
        }
        entry.copy.follow(self.moment().source, self.flush(), version);
        entry.copy.suspect();
    }
}

impl Moment {
    /// Marks a copy with the version that was read. Returns false if the record has changed since the look-up was sent.
    pub(super) fn follow(self, asking: &KeyWatch<'_>, copy: &Arc<CacheEntry>, read: &Loaded) -> bool {
        asking.found(copy, |mark| {
            mark.follow(read.source, self.flush, read.version);
            if read.tracking == Tracking::Off {
                mark.suspect();
            }
        })
    }

    /// Marks a copy whose key has no record in the tier. Returns false if the record has changed since the look-up was sent.
    pub(super) fn leave_alone(self, asking: &KeyWatch<'_>, copy: &Arc<CacheEntry>) -> bool {
        asking.found(copy, |mark| mark.leave_alone(self.source, self.flush))
    }
}
