//! Who wants to know of changes of keys: watchers, client-side caches, subscribers of keyspace notifications.
//!
//! One word says whether there is any of them. A command that changes a key looks at it once, and goes on if it is zero.

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

/// Of all clients.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    flags: AtomicU8,
    /// Held while `flags` are found out.
    refresh: Mutex<()>,
    pub(crate) watches: Watches,
    pub(crate) tracking: Tracking,
    pub(crate) subscriptions: Subscriptions<Client>,
    pub(crate) pauses: Pauses,
    pub(crate) monitors: Monitors,
    events: AtomicU16,
    news: News,
}

/// A watched key, and the database by the number that clients know.
pub(crate) type WatchedKey = (Database, Arc<[u8]>);

/// What of [`Interests`] there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const WATCHED: Self = Self(1);
    pub(crate) const TRACKED: Self = Self(1 << 1);
    /// Keyspace notifications.
    pub(crate) const EVENTS: Self = Self(1 << 2);
    /// Those that need a look at keys before a command.
    pub(crate) const LOOK_BEFORE: Self = Self(1 << 3);
    pub(crate) const PAUSED: Self = Self(1 << 4);
    pub(crate) const MONITORED: Self = Self(1 << 5);
    /// Of those, what concerns changes of keys.
    const CHANGES: u8 = Self::WATCHED.0 | Self::TRACKED.0 | Self::EVENTS.0;

    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// Whether nobody wants to know of changes.
    pub(crate) fn are_indifferent(self) -> bool {
        self.0 & Self::CHANGES == 0
    }
}

impl Interests {
    /// One load.
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.flags.load(Relaxed))
    }

    pub(crate) fn events(&self) -> Events {
        Events::of_bits(self.events.load(Relaxed))
    }

    /// CONFIG SET notify-keyspace-events.
    pub(crate) fn set_events(&self, events: Events, engine: &Engine) {
        self.events.store(events.bits(), SeqCst);
        self.refresh(engine);
    }

    /// To be called whenever somebody began or ceased to be interested.
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

/// What happened to keys and is not told yet, in the order in which it happened: it is noted while the shard of the key is locked, and told when
/// nothing is.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Until all of it is told: whoever has noted something, and finds this false, knows that it was.
    is_any: AtomicBool,
    /// Innermost but for what the engine notes itself.
    noted: Mutex<Vec<Happened>>,
    /// Held while it is told: two who tell at the same time would mix it.
    telling: Mutex<()>,
}

/// To a key of this database of the engine.
#[derive(Debug)]
struct Happened {
    database: Database,
    key: Box<[u8]>,
    change: Change,
    /// The client that did it.
    by: Option<u64>,
}

impl News {
    fn note(&self, happened: Happened, engine: &Engine) {
        let mut noted = self.noted.lock();
        // What expired or was evicted for it was gone before.
        self.note_removed(&mut noted, engine);
        noted.push(happened);
        self.is_any.store(true, SeqCst);
    }

    /// What is to be told next. Empty: all was told.
    fn take(&self, engine: &Engine) -> Vec<Happened> {
        let mut noted = self.noted.lock();
        self.note_removed(&mut noted, engine);
        self.is_any.store(!noted.is_empty(), SeqCst);
        std::mem::take(&mut *noted)
    }

    /// Keys that went without a command.
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
    /// Something has happened to a key of this database of the engine, whose shard is locked.
    pub(crate) fn note(&self, database: Database, key: &[u8], change: Change, by: Option<u64>) {
        let happened = Happened { database, key: key.into(), change, by };
        self.interests.news.note(happened, &self.engine);
    }

    /// Tells what has happened to keys, if anything. No shard may be locked. Whatever this thread has noted before is told when it comes back, be
    /// it by another one.
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
        // Clients know it by another number after SWAPDB.
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
                    tracing::warn!(%error, "a keyspace notification is not told to all patterns");
                }
            }
        }
    }

    /// The watched keys of a database, or of all, that are there.
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

    /// Keys have been removed, or exchanged, all at once; among them some that were watched.
    pub(crate) fn flushed(&self, watched: &[WatchedKey]) {
        for (database, key) in watched {
            self.interests.watches.touch(*database, key);
        }
        if self.interests.flags().has(Flags::TRACKED) {
            invalidation::tell_of_flush(self);
        }
    }

    /// Removes all keys. Nobody else may be executing commands.
    pub(crate) fn clear(&self, now_ms: u64) -> Cleared {
        let watched = self.watched(None, now_ms);
        let cleared = self.engine.clear();
        self.flushed(&watched);
        cleared
    }

    /// SWAPDB. What is watched in one of both changes if it is there before or after. Redis does not tell client-side caches, and leaves
    /// them with values of the other database.
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

    /// Tells what was put off to the end of a batch.
    pub(crate) fn end_batch(&self) {
        self.settle();
        if self.interests.tracking.has_changes() {
            invalidation::broadcast(self);
        }
    }
}
