//! How copies in memory stay true to what the tier has.
//!
//! Whoever reads a record to keep it has the tier follow its key, and notes beside the copy what was read. A change that is told afterwards
//! makes the copy suspect: its next use reads the record anew, once for all who want it. A change that is told while the record is on its way is
//! seen by the number of the question (`working.rs`), and the answer is thrown away.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use store::Memory;
use store::backing::{Loaded, Source, Standing, Tracking, Version, Watcher};

use super::counts::Event;
use super::working::{Asking, Known};
use super::{Coherence, Tiers, names};
use crate::cache::record::copy::{Flush, Reliance};
use crate::cache::record::stored::CacheEntry;

/// How often the tier has said that everything may have changed.
#[derive(Debug, Default)]
pub(super) struct Flushes(AtomicU32);

/// When a question was put to the tier: what it answers may be older than what is told from now on.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    flush: Flush,
    source: Source,
}

/// What is there for a key before the tier is asked.
pub(super) enum Held {
    /// It is known what lies there.
    Sure(Option<Arc<CacheEntry>>),
    /// A copy that may be outdated.
    Doubtful(Arc<CacheEntry>),
    /// What the tier has is unknown.
    Nothing,
}

/// How often a record is read anew that others change all the time.
const ATTEMPTS: usize = 3;

impl Flushes {
    fn now(&self) -> Flush {
        Flush::of_count(self.0.load(Ordering::Acquire))
    }
}

impl Tiers {
    /// Whether the tier may have something else than a record in memory, and can be asked.
    pub(crate) fn is_suspect(&self, entry: &CacheEntry) -> bool {
        match entry.copy().reliance(self.flushes.now(), |source| self.standing(source)) {
            Reliance::Trusted => false,
            #[cfg(test)]
            Reliance::Suspect
                if crate::cache::model::is_planted(crate::cache::model::Rule::SuspectsAreReadAgain) =>
            {
                false
            }
            Reliance::Suspect => true,
            Reliance::Unverified => {
                self.counts.add(Event::Unverified);
                false
            }
        }
    }

    /// Of what was read over a connection. A tier whose log can't be read vouches for nothing.
    fn standing(&self, source: Source) -> Standing {
        if self.log.is_followed() { self.backing.standing(source) } else { Standing::Unverified }
    }

    /// Whether a copy that the tier cannot vouch for, even if it was asked, may not be used as it is. Own ones too, while the tier
    /// is not heard, and until the log of what they have purged meanwhile is read: others may have changed the same.
    pub(crate) fn needs_verification(&self, entry: &CacheEntry) -> bool {
        let standing = |source| self.standing(source);
        let source = self.backing.source();
        self.coherence == Coherence::Strict
            && (standing(source) != Standing::Verified
                || !self.log.was_read_over(source)
                || entry.copy().reliance(self.flushes.now(), standing) != Reliance::Trusted)
    }

    /// From now on `watcher` is told what the tier tells unasked.
    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.backing.watch(watcher);
    }

    /// The tier says that these records have changed.
    pub(crate) fn suspect(&self, memory: &Memory<CacheEntry>, names: &[&[u8]]) {
        for key in names.iter().filter_map(|name| names::key_of(name)) {
            self.counts.add(Event::Pushed);
            let in_use = self.working.doubt(key);
            let entries = [in_use, memory.get(key)];
            entries.iter().flatten().for_each(|entry| entry.copy().suspect());
        }
    }

    /// The tier says that everything may have changed.
    pub(crate) fn all_suspect(&self) {
        self.flushes.0.fetch_add(1, Ordering::AcqRel);
        self.counts.add(Event::Flushed);
    }

    /// To be taken before a question is put to the tier.
    pub(super) fn moment(&self) -> Moment {
        Moment { flush: self.flushes.now(), source: self.backing.source() }
    }

    pub(super) fn held(&self, memory: &Memory<CacheEntry>, key: &[u8]) -> Held {
        let entry = match self.working.known(key) {
            Known::Nothing => return Held::Sure(None),
            Known::Entry(entry) => Some(entry),
            Known::Unknown => memory.get(key).filter(|entry| self.is_suspect(entry)),
        };
        match entry {
            None => Held::Nothing,
            Some(entry) if self.is_suspect(&entry) => Held::Doubtful(entry),
            Some(entry) => Held::Sure(Some(entry)),
        }
    }

    /// What the tier has is newer: the next use reads it.
    pub(super) fn is_overtaken(&self, entry: &CacheEntry) {
        entry.copy().overtaken(self.moment().source, self.flushes.now());
    }

    /// From now on the tier tells what others do to what was written here.
    pub(super) async fn follow_written(&self, key: &[u8], entry: &Arc<CacheEntry>, version: Version) {
        let Some(name) = names::of_record(key) else { return };
        for _ in 0..ATTEMPTS {
            let (asking, moment) = (self.working.ask(key), self.moment());
            let there = self.record(&name, Tracking::UntilChanged).await;
            let is_current = match there {
                Ok(Some(there)) if there.version == version => moment.follow(&asking, entry, &there),
                Ok(None) => moment.leave_alone(&asking, entry),
                Ok(Some(_)) | Err(_) => break,
            };
            // Something newer is to be written, and to be followed then.
            if is_current || self.working.pending(key).is_some() {
                return;
            }
        }
        entry.copy().follow(self.moment().source, self.flushes.now(), version);
        entry.copy().suspect();
    }
}

impl Moment {
    /// A copy is what was read; whether nothing has changed since the question.
    pub(super) fn follow(self, asking: &Asking<'_>, copy: &Arc<CacheEntry>, read: &Loaded) -> bool {
        asking.found(copy, |mark| {
            mark.follow(read.source, self.flush, read.version);
            if read.tracking == Tracking::Off {
                mark.suspect();
            }
        })
    }

    /// The tier has nothing for the key of a copy, so nobody has changed it there.
    pub(super) fn leave_alone(self, asking: &Asking<'_>, copy: &Arc<CacheEntry>) -> bool {
        asking.found(copy, |mark| mark.leave_alone(self.source, self.flush))
    }
}
