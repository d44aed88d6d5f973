//! Transactions: commands queued for EXEC, and watched keys.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use engine::Database;
use resp::{Arguments, encode_command};
use thiserror::Error;

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use crate::sync::{Mutex, RwLock};

/// The commands after MULTI, encoded as requests.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    requests: Vec<u8>,
    commands: usize,
    has_writes: bool,
    need: Need,
    slots: Slots,
    pub(crate) state: State,
}

/// Memory that the commands of a transaction may need, judged by their arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) writes: usize,
    pub(crate) bytes: usize,
    /// Whether a value may become longer than the argument of its command.
    pub(crate) is_growing: bool,
}

/// The slots of a transaction's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Slots {
    #[default]
    None,
    One(u16),
    Several,
}

/// State of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Ready,
    /// A command could not be queued, so EXEC will fail.
    Aborted,
}

/// The queue exceeds the size limit of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("ERR the commands of a transaction can have at most {bytes_max} bytes together")]
pub(crate) struct QueueOverLimit {
    bytes_max: usize,
}

impl Queue {
    /// Queues a command, unless the transaction has been aborted.
    pub(crate) fn push(&mut self, arguments: &Arguments<'_>, bytes_max: usize) -> Result<(), QueueOverLimit> {
        if self.state == State::Aborted {
            return Ok(());
        }
        let bytes: usize = arguments.iter().map(|argument| argument.len() + ARGUMENT_BYTES).sum();
        if self.requests.len() + bytes > bytes_max {
            self.abort();
            return Err(QueueOverLimit { bytes_max });
        }
        let arguments: Vec<&[u8]> = arguments.iter().collect();
        encode_command(&mut self.requests, &arguments);
        self.commands += 1;
        Ok(())
    }

    /// Aborts the transaction and drops the queued commands.
    pub(crate) fn abort(&mut self) {
        *self = Self { state: State::Aborted, slots: self.slots, ..Self::default() };
    }

    /// Records that a command writes.
    pub(crate) fn note_write(&mut self) {
        self.has_writes = true;
    }

    pub(crate) fn has_writes(&self) -> bool {
        self.has_writes
    }

    /// Adds the arguments of a command that stores them, and returns the total need.
    pub(crate) fn note_need(&mut self, arguments: &Arguments<'_>) -> Need {
        self.need.writes += arguments.len() - 1;
        self.need.bytes = self.need.bytes.saturating_add(arguments.bytes_everywhere());
        self.need
    }

    /// Records that a command may make a value longer than its argument.
    pub(crate) fn note_growth(&mut self) {
        self.need.is_growing = true;
    }

    /// The total need; if it has no writes, no command needs memory.
    pub(crate) fn need(&self) -> Need {
        self.need
    }

    /// Records the slot of a key.
    pub(crate) fn note_slot(&mut self, slot: u16) {
        self.slots = match self.slots {
            Slots::None => Slots::One(slot),
            Slots::One(other) if other == slot => return,
            _ => Slots::Several,
        };
    }

    pub(crate) fn slots(&self) -> Slots {
        self.slots
    }

    /// Number of queued commands.
    pub(crate) fn len(&self) -> usize {
        self.commands
    }

    /// Memory of the queued commands.
    pub(crate) fn bytes(&self) -> usize {
        self.requests.capacity()
    }

    /// The queued requests, encoded one after the other.
    pub(crate) fn requests(&self) -> &[u8] {
        &self.requests
    }
}

/// Overhead of an argument for its length and line ends.
const ARGUMENT_BYTES: usize = 16;

/// Watched keys of all clients.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    databases: RwLock<BTreeMap<Database, Watched>>,
    watchers: AtomicU64,
    /// Keys of clients that no longer watch, still to be removed from the tables.
    leaving: Mutex<Vec<Leaving>>,
    /// Number of entries in `leaving`, readable without the lock.
    leaving_count: AtomicUsize,
}

type Name = Arc<[u8]>;
/// The watchers of each key, sorted by number.
type Watched = HashMap<Name, Vec<Arc<Watcher>>>;

/// A client that watches keys.
#[derive(Debug)]
struct Watcher {
    /// A new number each time a client begins to watch.
    number: u64,
    is_touched: AtomicBool,
}

#[derive(Debug)]
struct Leaving {
    watcher: u64,
    keys: Vec<(Database, Name)>,
}

/// The keys that one client watches.
#[derive(Debug)]
pub(crate) struct Watching {
    watcher: Arc<Watcher>,
    keys: BTreeMap<Database, HashSet<Name>>,
    bytes: usize,
}

/// The watched keys exceed their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("ERR the keys that a client watches can have at most {WATCHED_BYTES_MAX} bytes together")]
pub(crate) struct WatchedOverLimit;

/// Limit of the watched keys of a client, including the overhead of the tables per key.
pub(crate) const WATCHED_BYTES_MAX: usize = 16 << 20;
const WATCHED_OVERHEAD_BYTES: usize = 100;
/// Keys removed each time the tables are locked.
const LEAVING_AT_ONCE: usize = 64;
/// Keys removed immediately, by the command or at the end of the connection. The rest is removed in the
/// workers' turns.
const LEAVING_STRAIGHT: usize = 1000;

impl Watches {
    /// Begins to watch keys for a client.
    pub(crate) fn begin(&self) -> Watching {
        let watcher =
            Watcher { number: self.watchers.fetch_add(1, Relaxed), is_touched: AtomicBool::new(false) };
        Watching { watcher: Arc::new(watcher), keys: BTreeMap::new(), bytes: 0 }
    }

    /// Watches a key: from now on, a change of the key marks the client.
    pub(crate) fn watch(
        &self,
        watching: &mut Watching,
        database: Database,
        key: &[u8],
    ) -> Result<(), WatchedOverLimit> {
        if watching.has(database, key) {
            return Ok(());
        }
        let bytes = key.len() + WATCHED_OVERHEAD_BYTES;
        if watching.bytes + bytes > WATCHED_BYTES_MAX {
            return Err(WatchedOverLimit);
        }
        let mut databases = self.databases.write();
        let watched = databases.entry(database).or_default();
        let name = watched.get_key_value(key).map_or_else(|| Name::from(key), |(name, _)| Arc::clone(name));
        let watchers = watched.entry(Arc::clone(&name)).or_default();
        if let Err(at) = place(watchers, watching.watcher.number) {
            watchers.insert(at, Arc::clone(&watching.watcher));
        }
        drop(databases);
        watching.bytes += bytes;
        watching.keys.entry(database).or_default().insert(name);
        Ok(())
    }

    /// Unwatches the keys of a client, for UNWATCH, EXEC, DISCARD, or the end of a connection.
    pub(crate) fn unwatch(&self, watching: Watching) {
        let keys =
            watching.keys.into_iter().flat_map(|(of, keys)| keys.into_iter().map(move |key| (of, key)));
        let mut leaving = Leaving { watcher: watching.watcher.number, keys: keys.collect() };
        if leaving.keys.len() <= LEAVING_STRAIGHT {
            self.forget(&mut leaving, LEAVING_STRAIGHT);
        } else {
            self.leaving_count.fetch_add(1, SeqCst);
            self.leaving.lock().push(leaving);
        }
    }

    /// Returns whether there is work for [`Self::tidy`]. Costs a single load.
    pub(crate) fn is_untidy(&self) -> bool {
        self.leaving_count.load(Relaxed) > 0
    }

    /// Removes a part of the keys that are no longer watched. Returns whether this removed the last keys of a
    /// client.
    pub(crate) fn tidy(&self) -> bool {
        let Some(mut leaving) = self.leaving.lock().pop() else { return false };
        self.forget(&mut leaving, LEAVING_STRAIGHT);
        if leaving.keys.is_empty() {
            self.leaving_count.fetch_sub(1, SeqCst);
            return true;
        }
        self.leaving.lock().push(leaving);
        false
    }

    /// Removes up to `at_most` keys in small groups, so that concurrent commands wait for one group only.
    fn forget(&self, leaving: &mut Leaving, at_most: usize) {
        let mut keys = leaving.keys.split_off(leaving.keys.len().saturating_sub(at_most));
        while !keys.is_empty() {
            let mut databases = self.databases.write();
            let some = keys.drain(keys.len().saturating_sub(LEAVING_AT_ONCE)..);
            // Names are freed after the lock is released.
            let _gone: Vec<_> = some.inspect(|key| forget(&mut databases, key, leaving.watcher)).collect();
            drop(databases);
        }
    }

    /// Marks the watchers of a changed key.
    pub(crate) fn touch(&self, database: Database, key: &[u8]) {
        let databases = self.databases.read();
        let watchers = databases.get(&database).and_then(|watched| watched.get(key));
        watchers.into_iter().flatten().for_each(|watcher| watcher.is_touched.store(true, SeqCst));
    }

    /// The watched keys of a database, or of all databases, to find those that a flush or a swap changes.
    pub(crate) fn keys(&self, database: Option<Database>) -> Vec<(Database, Arc<[u8]>)> {
        let databases = self.databases.read();
        let wanted = databases.iter().filter(|(other, _)| database.is_none_or(|wanted| wanted == **other));
        wanted.flat_map(|(of, watched)| watched.keys().map(|key| (*of, Arc::clone(key)))).collect()
    }

    /// Returns whether no client watches any key.
    pub(crate) fn is_empty(&self) -> bool {
        self.databases.read().is_empty()
    }
}

fn forget(databases: &mut BTreeMap<Database, Watched>, (database, key): &(Database, Name), watcher: u64) {
    let Some(watched) = databases.get_mut(database) else { return };
    let Some(watchers) = watched.get_mut(key) else { return };
    if let Ok(at) = place(watchers, watcher) {
        watchers.remove(at);
    }
    if watchers.is_empty() {
        watched.remove(key);
    }
    if watched.is_empty() {
        databases.remove(database);
    }
}

fn place(watchers: &[Arc<Watcher>], number: u64) -> Result<usize, usize> {
    watchers.binary_search_by_key(&number, |watcher| watcher.number)
}

impl Watching {
    fn has(&self, database: Database, key: &[u8]) -> bool {
        self.keys.get(&database).is_some_and(|keys| keys.contains(key))
    }

    /// Memory of the tables for these keys.
    pub(crate) fn bytes_of<'a>(keys: impl Iterator<Item = &'a [u8]>) -> usize {
        keys.map(|key| key.len() + WATCHED_OVERHEAD_BYTES).sum()
    }

    /// Memory of the tables for this client.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether one of the keys has changed.
    pub(crate) fn is_touched(&self) -> bool {
        self.watcher.is_touched.load(Relaxed)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (Database, &[u8])> {
        self.keys.iter().flat_map(|(database, keys)| keys.iter().map(|key| (*database, &**key)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use resp::{Limits, RequestScanner};

    use super::*;

    fn database(number: usize) -> Database {
        Database::new(number).expect("a number below 16")
    }

    fn push(queue: &mut Queue, request: &[u8], bytes_max: usize) -> Result<(), QueueOverLimit> {
        let mut scanner = RequestScanner::new(Limits::default());
        let arguments = scanner.scan(request).expect("a request").expect("a whole one");
        queue.push(&arguments, bytes_max)
    }

    #[test]
    fn commands_wait_as_they_came() {
        let mut queue = Queue::default();
        push(&mut queue, b"SET a \"b c\"\r\n", 100).expect("little");
        push(&mut queue, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", 100).expect("little");
        let expected = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\nb c\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        assert_eq!(String::from_utf8_lossy(queue.requests()), expected);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_queue_has_a_limit_and_holds_nothing_when_it_is_of_no_use() {
        let mut queue = Queue::default();
        push(&mut queue, b"GET a\r\n", 100).expect("little");
        let long = format!("SET a {}\r\n", "x".repeat(100));
        assert_eq!(push(&mut queue, long.as_bytes(), 100), Err(QueueOverLimit { bytes_max: 100 }));
        assert_eq!((queue.state, queue.len(), queue.bytes()), (State::Aborted, 0, 0));
        assert_eq!(push(&mut queue, long.as_bytes(), 100), Ok(()), "it is told at EXEC");
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn too_many_watched_keys_are_refused() {
        let watches = Watches::default();
        let mut watching = watches.begin();
        let long = vec![b'k'; WATCHED_BYTES_MAX / 2];
        watches.watch(&mut watching, database(0), &long).expect("the first half");
        watches.watch(&mut watching, database(0), &long).expect("it is watched already");
        assert_eq!(watches.watch(&mut watching, database(1), &long), Err(WatchedOverLimit));
        watches.unwatch(watching);
        assert!(watches.is_empty());
    }

    #[test]
    fn many_keys_leave_one_part_after_the_other() {
        let watches = Watches::default();
        let (mut first, mut second) = (watches.begin(), watches.begin());
        for number in 0..LEAVING_STRAIGHT * 5 / 2 {
            let key = number.to_string();
            watches.watch(&mut first, database(0), key.as_bytes()).expect("few bytes");
            watches.watch(&mut second, database(number % 2), key.as_bytes()).expect("few bytes");
        }
        watches.unwatch(first);
        let parts = std::iter::repeat_with(|| watches.tidy()).take_while(|is_done| !is_done).count();
        assert_eq!((parts, watches.is_untidy(), watches.is_empty()), (2, false, false));
        watches.touch(database(1), b"1");
        assert!(second.is_touched());
        watches.unwatch(second);
        while watches.is_untidy() {
            watches.tidy();
        }
        assert!(watches.is_empty());
    }

    proptest! {
        /// A client is marked if and only if one of its keys changed after it began to watch and before it
        /// stopped.
        #[test]
        fn watchers_are_touched_by_their_keys_alone(
            steps in prop::collection::vec((0..3_u64, 0..2_usize, 0..4_u8, 0..4_u8), 1..100)
        ) {
            let watches = Watches::default();
            let mut clients: Vec<_> = (0..3).map(|_| (watches.begin(), Vec::new(), false)).collect();
            for (client, number, key, what) in steps {
                let (watching, keys, _) = &mut clients[client as usize];
                match what {
                    0 => {
                        watches.unwatch(std::mem::replace(watching, watches.begin()));
                        clients[client as usize].1.clear();
                        clients[client as usize].2 = false;
                    }
                    1 => {
                        watches.watch(watching, database(number), &[key]).expect("few");
                        keys.push((number, key));
                    }
                    _ => {
                        watches.touch(database(number), &[key]);
                        for (_, keys, is_touched) in &mut clients {
                            *is_touched |= keys.contains(&(number, key));
                        }
                    }
                }
                for (watching, _, is_touched) in &clients {
                    prop_assert_eq!(watching.is_touched(), *is_touched);
                }
            }
            clients.into_iter().for_each(|(watching, ..)| watches.unwatch(watching));
            prop_assert!(watches.is_empty() && watches.keys(None).is_empty());
        }
    }
}
