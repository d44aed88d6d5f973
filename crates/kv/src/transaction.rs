//! Transactions: commands that wait for EXEC, and keys that must not change before it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engine::Database;
use resp::{Arguments, encode_command};
use thiserror::Error;

use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

/// What follows MULTI, as a client would send it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    requests: Vec<u8>,
    commands: usize,
    has_writes: bool,
    need: Need,
    slots: Slots,
    pub(crate) state: State,
}

/// What the commands of a transaction may take of memory, by their arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) writes: usize,
    pub(crate) bytes: usize,
    /// A value becomes longer than what a command is given.
    pub(crate) is_growing: bool,
}

/// Which slots of a cluster the keys of a transaction have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Slots {
    #[default]
    None,
    One(u16),
    Several,
}

/// What EXEC will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Ready,
    /// A command could not be queued.
    Aborted,
}

/// More is queued than a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("ERR the commands of a transaction can have at most {bytes_max} bytes together")]
pub(crate) struct QueueOverLimit {
    bytes_max: usize,
}

impl Queue {
    /// Keeps a command for EXEC. When EXEC will refuse all, nothing is kept.
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

    /// EXEC is to refuse: what is queued is of no use.
    pub(crate) fn abort(&mut self) {
        *self = Self { state: State::Aborted, slots: self.slots, ..Self::default() };
    }

    /// One of the commands writes.
    pub(crate) fn note_write(&mut self) {
        self.has_writes = true;
    }

    pub(crate) fn has_writes(&self) -> bool {
        self.has_writes
    }

    /// One of the commands stores what it is given; what all of them need then.
    pub(crate) fn note_need(&mut self, arguments: &Arguments<'_>) -> Need {
        self.need.writes += arguments.len() - 1;
        self.need.bytes = self.need.bytes.saturating_add(arguments.bytes_everywhere());
        self.need
    }

    /// One of the commands makes a value longer than what it is given.
    pub(crate) fn note_growth(&mut self) {
        self.need.is_growing = true;
    }

    /// Zero writes: none of the commands needs memory.
    pub(crate) fn need(&self) -> Need {
        self.need
    }

    /// A key of one of the commands has this slot.
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

    /// How many commands wait.
    pub(crate) fn len(&self) -> usize {
        self.commands
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.requests.capacity()
    }

    /// One after the other, to be scanned.
    pub(crate) fn requests(&self) -> &[u8] {
        &self.requests
    }
}

/// Length and line ends of an argument.
const ARGUMENT_BYTES: usize = 16;

/// Watched keys of all clients.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    databases: RwLock<BTreeMap<Database, Watched>>,
}

type Name = Arc<[u8]>;
type Watched = HashMap<Name, Vec<Arc<Watcher>>>;

/// One client that watches keys.
#[derive(Debug)]
struct Watcher {
    client: u64,
    is_touched: AtomicBool,
}

/// What one client watches.
#[derive(Debug)]
pub(crate) struct Watching {
    watcher: Arc<Watcher>,
    keys: Vec<(Database, Name)>,
    bytes: usize,
}

/// A client wants to watch too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("ERR the keys that a client watches can have at most {WATCHED_BYTES_MAX} bytes together")]
pub(crate) struct WatchedOverLimit;

/// With what the tables need for each.
const WATCHED_BYTES_MAX: usize = 16 << 20;
const WATCHED_OVERHEAD_BYTES: usize = 100;

impl Watches {
    /// From now on a change of the key touches the client.
    pub(crate) fn watch(
        &self,
        watching: &mut Watching,
        database: Database,
        key: &[u8],
    ) -> Result<(), WatchedOverLimit> {
        let mut databases = self.databases.write();
        let watched = databases.entry(database).or_default();
        let name = watched.get_key_value(key).map_or_else(|| Name::from(key), |(name, _)| Arc::clone(name));
        let watchers = watched.entry(Arc::clone(&name)).or_default();
        if watchers.iter().any(|watcher| watcher.client == watching.watcher.client) {
            return Ok(());
        }
        let bytes = key.len() + WATCHED_OVERHEAD_BYTES;
        if watching.bytes + bytes > WATCHED_BYTES_MAX {
            if watchers.is_empty() {
                watched.remove(key);
            }
            return Err(WatchedOverLimit);
        }
        watchers.push(Arc::clone(&watching.watcher));
        watching.bytes += bytes;
        watching.keys.push((database, name));
        Ok(())
    }

    /// UNWATCH, EXEC, DISCARD, or the end of a connection.
    pub(crate) fn unwatch(&self, watching: &Watching) {
        if watching.keys.is_empty() {
            return;
        }
        let mut databases = self.databases.write();
        for (database, key) in &watching.keys {
            let Some(watched) = databases.get_mut(database) else { continue };
            let Some(watchers) = watched.get_mut(key) else { continue };
            watchers.retain(|watcher| watcher.client != watching.watcher.client);
            if watchers.is_empty() {
                watched.remove(key);
            }
        }
        databases.retain(|_, watched| !watched.is_empty());
    }

    /// A key has changed.
    pub(crate) fn touch(&self, database: Database, key: &[u8]) {
        let databases = self.databases.read();
        let watchers = databases.get(&database).and_then(|watched| watched.get(key));
        watchers.into_iter().flatten().for_each(|watcher| watcher.is_touched.store(true, SeqCst));
    }

    /// The watched keys of a database, or of all: to find out which of them a flush or a swap changes.
    pub(crate) fn keys(&self, database: Option<Database>) -> Vec<(Database, Arc<[u8]>)> {
        let databases = self.databases.read();
        let wanted = databases.iter().filter(|(other, _)| database.is_none_or(|wanted| wanted == **other));
        wanted.flat_map(|(of, watched)| watched.keys().map(|key| (*of, Arc::clone(key)))).collect()
    }

    /// Whether nobody watches anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.databases.read().is_empty()
    }
}

impl Watching {
    pub(crate) fn new(client: u64) -> Self {
        let watcher = Watcher { client, is_touched: AtomicBool::new(false) };
        Self { watcher: Arc::new(watcher), keys: Vec::new(), bytes: 0 }
    }

    /// Whether one of the keys has changed.
    pub(crate) fn is_touched(&self) -> bool {
        self.watcher.is_touched.load(Relaxed)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (Database, &[u8])> {
        self.keys.iter().map(|(database, key)| (*database, &**key))
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
        let (watches, mut watching) = (Watches::default(), Watching::new(1));
        let long = vec![b'k'; WATCHED_BYTES_MAX / 2];
        watches.watch(&mut watching, database(0), &long).expect("the first half");
        watches.watch(&mut watching, database(0), &long).expect("it is watched already");
        assert_eq!(watches.watch(&mut watching, database(1), &long), Err(WatchedOverLimit));
        watches.unwatch(&watching);
        assert!(watches.is_empty());
    }

    proptest! {
        /// A client is touched if and only if one of its keys was, after it began to watch and before it stopped.
        #[test]
        fn watchers_are_touched_by_their_keys_alone(
            steps in prop::collection::vec((0..3_u64, 0..2_usize, 0..4_u8, 0..4_u8), 1..100)
        ) {
            let watches = Watches::default();
            let mut clients: Vec<_> = (0..3).map(|client| (Watching::new(client), Vec::new(), false)).collect();
            for (client, number, key, what) in steps {
                let (watching, keys, _) = &mut clients[client as usize];
                match what {
                    0 => {
                        watches.unwatch(watching);
                        clients[client as usize] = (Watching::new(client), Vec::new(), false);
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
            clients.iter().for_each(|(watching, ..)| watches.unwatch(watching));
            prop_assert!(watches.is_empty() && watches.keys(None).is_empty());
        }
    }
}
