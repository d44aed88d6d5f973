//! Keys that are gone although nobody removed them, for those who want to know.

use crate::hash::Database;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

/// Why a key is gone that nobody removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its time was over.
    Expired,
    /// Its memory was needed.
    Evicted,
}

/// A key that is gone although nobody removed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    pub key: Vec<u8>,
    pub database: Database,
    pub cause: Cause,
}

/// Whether [`Removal`]s are collected, which costs a copy of each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Removals {
    #[default]
    Forgotten,
    Collected,
}

/// Of all shards, in the order in which they happened. Its lock is the innermost: a shard takes it while it is locked itself.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    is_collected: AtomicBool,
    is_any: AtomicBool,
    collected: Mutex<Vec<Removal>>,
}

impl Losses {
    pub(crate) fn note(&self, key: &[u8], database: Database, cause: Cause) {
        if !self.is_collected.load(Relaxed) {
            return;
        }
        self.collected.lock().push(Removal { key: key.to_vec(), database, cause });
        self.is_any.store(true, SeqCst);
    }

    pub(crate) fn collect(&self, removals: Removals) {
        self.is_collected.store(removals == Removals::Collected, SeqCst);
        if removals == Removals::Forgotten {
            self.take();
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    pub(crate) fn take(&self) -> Vec<Removal> {
        let mut collected = self.collected.lock();
        self.is_any.store(false, SeqCst);
        std::mem::take(&mut *collected)
    }
}
