//! Observers of key changes: WATCH, client-side caching, and keyspace notifications.
//!
//! A single word of flags shows which kinds of observers exist. A command that changes a key checks the word
//! once, and continues if it is zero.

use std::sync::Arc;

use engine::{Cause, Cleared, Database, Engine, Removals};

use crate::clients::Client;
use crate::invalidation;
use crate::monitor::Monitors;
use crate::notify::{Change, Events};
use crate::pause::Pauses;
use crate::pubsub;
use crate::shared::Shared;
use crate::subscriptions::Subscriptions;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering::Relaxed, Ordering::SeqCst};
use crate::tracking::Tracking;
use crate::transaction::Watches;

/// Observers of all clients.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    flags: AtomicU8,
    /// Held while `flags` is recomputed.
    refresh: Mutex<()>,
    pub(crate) watches: Watches,
    pub(crate) tracking: Tracking,
    pub(crate) subscriptions: Subscriptions<Client>,
    pub(crate) pauses: Pauses,
    pub(crate) monitors: Monitors,
    events: AtomicU16,
    news: News,
}

/// A watched key, with the client's number for its database.
pub(crate) type WatchedKey = (Database, Arc<[u8]>);

/// The kinds of observers in [`Interests`] that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const WATCHED: Self = Self(1);
    pub(crate) const TRACKED: Self = Self(1 << 1);
    /// Keyspace notifications are enabled.
    pub(crate) const EVENTS: Self = Self(1 << 2);
    /// Some observers need to look at keys before a command.
    pub(crate) const LOOK_BEFORE: Self = Self(1 << 3);
    pub(crate) const PAUSED: Self = Self(1 << 4);
    pub(crate) const MONITORED: Self = Self(1 << 5);
    /// The flags for changes of keys.
    const CHANGES: u8 = Self::WATCHED.0 | Self::TRACKED.0 | Self::EVENTS.0;

    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// Returns whether changes have no observers.
    pub(crate) fn are_indifferent(self) -> bool {
        self.0 & Self::CHANGES == 0
    }
}

impl Interests {
    /// Loads the flags.
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.flags.load(Relaxed))
    }

    pub(crate) fn events(&self) -> Events {
        Events::of_bits(self.events.load(Relaxed))
    }

    /// Sets `notify-keyspace-events`.
    pub(crate) fn set_events(&self, events: Events, engine: &Engine) {
        self.events.store(events.bits(), SeqCst);
        self.refresh(engine);
    }

    /// Recomputes the flags. Called whenever an observer is added or removed.
    pub(crate) fn refresh(&self, engine: &Engine) {
        let _alone = self.refresh.lock();
        let events = self.events();
        let looks_before = events.tell(Change::New) || events.tell(Change::KeyMiss);
        let of = |is_there, flag: Flags| if is_there { flag.0 } else { 0 };
        let flags = of(!self.watches.is_empty(), Flags::WATCHED)
            | of(self.tracking.has_trackers(), Flags::TRACKED)
            | of(events.is_any(), Flags::EVENTS)
            | of(looks_before, Flags::LOOK_BEFORE)
            | of(self.pauses.is_any(), Flags::PAUSED)
            | of(!self.monitors.is_empty(), Flags::MONITORED);
        let before = self.flags.swap(flags, SeqCst);
        let is_collected = |flags: u8| !Flags(flags).are_indifferent();
        if is_collected(before) != is_collected(flags) {
            let removals = if is_collected(flags) { Removals::Collected } else { Removals::Forgotten };
            engine.collect_removals(removals);
        }
    }
}

/// Changes of keys that observers have not been notified of yet, in the order in which they happened. They
/// are noted while the key's shard is locked, and delivered when no lock is held.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// True until all changes are delivered. A thread that noted a change and finds this false knows that its
    /// change was delivered.
    is_any: AtomicBool,
    /// While this is locked, only the engine's log of removals may be locked.
    noted: Mutex<Vec<Happened>>,
    /// Held during delivery, so that two threads can't interleave it.
    telling: Mutex<()>,
}

/// A change of a key in a database of the engine.
#[derive(Debug)]
struct Happened {
    database: Database,
    key: Box<[u8]>,
    change: Change,
    /// The client that made the change.
    by: Option<u64>,
}

impl News {
    fn note(&self, happened: Happened, engine: &Engine) {
        let mut noted = self.noted.lock();
        // Note keys that expired or were evicted for this change first.
        self.note_removed(&mut noted, engine);
        noted.push(happened);
        self.is_any.store(true, SeqCst);
    }

    /// Takes the next changes to deliver. Empty if all were delivered.
    fn take(&self, engine: &Engine) -> Vec<Happened> {
        let mut noted = self.noted.lock();
        self.note_removed(&mut noted, engine);
        self.is_any.store(!noted.is_empty(), SeqCst);
        std::mem::take(&mut *noted)
    }

    /// Notes keys that were removed without a command.
    fn note_removed(&self, noted: &mut Vec<Happened>, engine: &Engine) {
        if !engine.has_removed() {
            return;
        }
        self.is_any.store(true, SeqCst);
        noted.extend(engine.take_removed().into_iter().map(|removal| {
            let change = match removal.cause {
                Cause::Expired => Change::Expired,
                Cause::Evicted => Change::Evicted,
            };
            Happened { database: removal.database, key: removal.key.into(), change, by: None }
        }));
    }
}

impl Shared {
    /// Notes a change of a key in a database of the engine. The key's shard is locked.
    pub(crate) fn note(&self, database: Database, key: &[u8], change: Change, by: Option<u64>) {
        let happened = Happened { database, key: key.into(), change, by };
        self.interests.news.note(happened, &self.engine);
    }

    /// Delivers the noted changes. No shard may be locked. When it returns, every change that this thread
    /// noted has been delivered, possibly by another thread.
    pub(crate) fn settle(&self) {
        let news = &self.interests.news;
        if self.engine.has_removed() || news.is_any.load(SeqCst) {
            self.tell_news();
        }
    }

    #[cold]
    fn tell_news(&self) {
        let news = &self.interests.news;
        let _in_order = news.telling.lock();
        loop {
            let happened = news.take(&self.engine);
            if happened.is_empty() {
                return;
            }
            happened.iter().for_each(|happened| self.tell(happened));
        }
    }

    fn tell(&self, happened: &Happened) {
        let Happened { database, ref key, change, by } = *happened;
        let flags = self.interests.flags();
        // After SWAPDB, clients know the database by another number.
        let database = self.databases.of_clients(database);
        if change.is_change() {
            if flags.has(Flags::WATCHED) {
                self.interests.watches.touch(database, key);
            }
            if flags.has(Flags::TRACKED) {
                invalidation::tell_of_key(self, key, by);
            }
        }
        if flags.has(Flags::EVENTS) {
            for (channel, payload) in self.interests.events().messages(change, database, key) {
                if let Err(error) = pubsub::publish(self, &channel, payload) {
                    tracing::warn!(%error, "keyspace notification not delivered to all pattern subscribers");
                }
            }
        }
    }

    /// The watched keys that exist in a database, or in all databases.
    pub(crate) fn watched(&self, database: Option<Database>, now_ms: u64) -> Vec<WatchedKey> {
        let mut keys = self.interests.watches.keys(database);
        keys.retain(|(database, key)| self.is_there(*database, key, now_ms));
        self.settle();
        keys
    }

    fn is_there(&self, database: Database, key: &[u8], now_ms: u64) -> bool {
        let key = self.engine.key(self.databases.of_engine(database), key);
        self.engine.lock(&key).contains(now_ms)
    }

    /// Reports keys that were removed or swapped together; `watched` contains those that clients watch.
    pub(crate) fn flushed(&self, watched: &[WatchedKey]) {
        for (database, key) in watched {
            self.interests.watches.touch(*database, key);
        }
        if self.interests.flags().has(Flags::TRACKED) {
            invalidation::tell_of_flush(self);
        }
    }

    /// Removes all keys. No other thread may be executing commands.
    pub(crate) fn clear(&self, now_ms: u64) -> Cleared {
        let watched = self.watched(None, now_ms);
        let cleared = self.engine.clear();
        self.flushed(&watched);
        cleared
    }

    /// Swaps two databases, for SWAPDB. A watched key counts as changed if it exists in either database. As
    /// in Redis, client-side caches aren't notified, and keep values of the other database.
    pub(crate) fn swap(&self, one: Database, other: Database, now_ms: u64) {
        let watched = [one, other].map(|database| self.interests.watches.keys(Some(database))).concat();
        let is_in_either =
            |key: &[u8]| [one, other].iter().any(|database| self.is_there(*database, key, now_ms));
        let touched: Vec<_> = watched.into_iter().filter(|(_, key)| is_in_either(key)).collect();
        self.settle();
        self.databases.swap(one, other);
        if one != other {
            self.flushed(&touched);
        }
    }

    /// Delivers the pending changes, and the broadcasts that were deferred to the end of the batch.
    pub(crate) fn end_batch(&self) {
        self.settle();
        if self.interests.tracking.has_changes() {
            invalidation::broadcast(self);
        }
    }
}
