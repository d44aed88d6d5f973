//! The log of keys that expired or were evicted.

use crate::hash::Database;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

/// The reason for a removal without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The key's expiry has passed.
    Expired,
    /// The key's memory was needed.
    Evicted,
}

/// A key that expired or was evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    pub key: Vec<u8>,
    pub database: Database,
    pub cause: Cause,
}

/// Whether [`Removal`]s are recorded, which costs a copy of each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Removals {
    #[default]
    Forgotten,
    Collected,
}

/// Removals in all shards, in order. A thread may take this lock while it holds a shard, but takes no other
/// lock while it holds this one.
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
