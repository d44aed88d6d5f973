//! Dispatch of one connection's invalidations to watchers and waiters.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::follow_table::{FollowOutcome, FollowTable};
use super::names::{Digest, Named, Names};
use crate::backing::{Source, Watchers};

/// Dispatcher of one connection's invalidations. The next connection begins without followed keys; otherwise, a late message of the
/// previous connection would be mistaken for one of its own.
pub(super) struct PushDispatcher {
    source: Source,
    names: Names,
    watchers: Arc<Watchers>,
    table: Mutex<FollowTable>,
    waiting: Mutex<HashMap<Digest, Waiters>>,
    log_changed: Notify,
}

struct Waiters {
    signal: Arc<ChangeSignal>,
    waiters: usize,
}

/// Signal to all callers that wait for one record.
#[derive(Default)]
pub(super) struct ChangeSignal {
    pub(super) changed: Notify,
    /// Number of changes to exactly this record that the server has reported.
    changes: AtomicU64,
}

/// A load in flight whose record is followed.
pub(super) struct Loading<'a> {
    dispatcher: &'a PushDispatcher,
    digest: Digest,
}

/// A caller that waits for a record to change.
pub(super) struct Waiter<'a> {
    dispatcher: &'a PushDispatcher,
    digest: Digest,
    pub(super) signal: Arc<ChangeSignal>,
}

impl ChangeSignal {
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

impl PushDispatcher {
    pub(super) fn new(source: Source, names: Names, watchers: Arc<Watchers>, bytes_max: usize) -> Self {
        Self {
            source,
            names,
            watchers,
            table: Mutex::new(FollowTable::new(bytes_max)),
            waiting: Mutex::default(),
            log_changed: Notify::new(),
        }
    }

    /// Follows a key, before its load is sent; `None` if it can't be followed.
    pub(super) fn load(&self, digest: Digest, key: &[u8]) -> Option<Loading<'_>> {
        let begun = self.table.lock().begin(digest, key);
        let FollowOutcome::Followed { given_up } = begun else { return None };
        self.tell_suspect(&given_up);
        Some(Loading { dispatcher: self, digest })
    }

    /// Registers a waiter, before the record is read.
    pub(super) fn wait(&self, digest: Digest) -> Waiter<'_> {
        let mut waiting = self.waiting.lock();
        let waiting = waiting.entry(digest).or_insert_with(|| Waiters { signal: Arc::default(), waiters: 0 });
        waiting.waiters += 1;
        Waiter { dispatcher: self, digest, signal: Arc::clone(&waiting.signal) }
    }

    pub(super) async fn log_changed(&self) {
        self.log_changed.notified().await;
    }

    /// Handles a message from the server, in the order of arrival.
    pub(super) fn dispatch(&self, push: PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        match push.data.into_iter().next() {
            Some(Value::Array(names)) => self.names_changed(&names),
            _ => self.all_changed(),
        }
    }

    fn names_changed(&self, names: &[Value]) {
        let named = names.iter().filter_map(|name| match name {
            Value::BulkString(name) => Some(self.names.meaning(name)),
            _ => None,
        });
        let mut suspect = Vec::new();
        for named in named {
            match named {
                Named::Record(digest) => {
                    suspect.extend(self.table.lock().changed(digest));
                    self.wake(digest);
                }
                Named::Log => self.log_changed.notify_one(),
                Named::Other => {}
            }
        }
        self.tell_suspect(&suspect);
    }

    /// Announces that other nodes now have some of the records.
    pub(super) fn moved(&self, has_moved: impl Fn(Digest) -> bool) {
        let suspect = self.table.lock().moved(&has_moved);
        self.tell_suspect(&suspect);
        let waiting: Vec<Digest> =
            self.waiting.lock().keys().copied().filter(|digest| has_moved(*digest)).collect();
        waiting.into_iter().for_each(|digest| self.wake(digest));
    }

    /// Announces that everything may have changed: the server flushed its data, or the connection has ended.
    pub(super) fn all_changed(&self) {
        self.table.lock().all_changed();
        self.watchers.tell(|watcher| watcher.all_suspect(Some(self.source)));
        let signals: Vec<_> =
            self.waiting.lock().values().map(|waiting| Arc::clone(&waiting.signal)).collect();
        signals.iter().for_each(|signal| signal.changed.notify_waiters());
        self.log_changed.notify_one();
    }

    fn tell_suspect(&self, keys: &[Box<[u8]>]) {
        if !keys.is_empty() {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
            self.watchers.tell(|watcher| watcher.suspect(&keys));
        }
    }

    fn wake(&self, digest: Digest) {
        let signal = self.waiting.lock().get(&digest).map(|waiting| Arc::clone(&waiting.signal));
        if let Some(signal) = signal {
            signal.changes.fetch_add(1, Ordering::AcqRel);
            signal.changed.notify_waiters();
        }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.dispatcher.table.lock().end(self.digest);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut waiting) = self.dispatcher.waiting.lock().entry(self.digest) {
            waiting.get_mut().waiters -= 1;
            if waiting.get().waiters == 0 {
                waiting.remove();
            }
        }
    }
}
