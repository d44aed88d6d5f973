//! Client-side caching: which clients cache which keys and need invalidation messages.
//!
//! This module decides which clients are notified of which keys; `invalidation` sends the messages. There are
//! two modes, as in Redis: a table records the keys that a client has read, until it is notified; or the
//! client asks for all keys with a prefix (broadcast mode), and nothing is recorded.
//!
//! A client is entered in the table before its command reads, and a writer looks into the table after it has
//! written. So either the reader sees the new value, or the writer finds the reader.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use indexmap::IndexMap;
use thiserror::Error;

use crate::repeated;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use crate::sync::{Mutex, RwLock};

/// The keys that are tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All keys that the client reads.
    #[default]
    Reads,
    /// Keys read by the command after CLIENT CACHING YES.
    OptIn,
    /// All keys except those read by the command after CLIENT CACHING NO.
    OptOut,
    /// All keys with certain prefixes.
    Broadcast,
}

/// Whether a client is notified of its own changes (NOLOOP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OwnChanges {
    #[default]
    Told,
    NotTold,
}

/// Options of CLIENT TRACKING ON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracker {
    pub(crate) mode: Mode,
    pub(crate) own_changes: OwnChanges,
    /// The client that receives the messages instead of the tracking client.
    pub(crate) redirect: Option<u64>,
    /// Whether the redirection target was gone when a message was due.
    pub(crate) is_broken: bool,
    pub(crate) prefixes: BTreeSet<Box<[u8]>>,
}

/// Reasons for refusing CLIENT TRACKING ON.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TrackingError {
    #[error("PREFIX option requires BCAST mode to be enabled")]
    PrefixAlone,
    #[error(
        "You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."
    )]
    BroadcastSwitched,
    #[error(
        "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode."
    )]
    OptionSwitched,
    #[error(
        "Prefix '{0}' overlaps with an existing prefix '{1}'. Prefixes for a single client must not overlap."
    )]
    Overlap(String, String),
    #[error(
        "Prefix '{0}' overlaps with another provided prefix '{1}'. Prefixes for a single client must not overlap."
    )]
    OverlapGiven(String, String),
    #[error("A client can have at most {PREFIXES_MAX} prefixes.")]
    Prefixes,
}

/// Changed keys with a prefix, and the clients to notify. Each key comes with the client that changed it, if
/// it was a single client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) keys: Vec<(Arc<[u8]>, Option<u64>)>,
    pub(crate) clients: Vec<u64>,
}

/// Keys dropped from the table, and the clients to notify.
pub(crate) type Forgotten = Vec<(Box<[u8]>, Vec<u64>)>;

/// Tracking state of all clients. Lock order: `trackers`, then one of `parts` or `broadcast`.
#[derive(Debug)]
pub(crate) struct Tracking {
    trackers: RwLock<HashMap<u64, Tracker>>,
    /// Number of trackers not in broadcast mode.
    readers: AtomicUsize,
    parts: [Mutex<Part>; PARTS],
    keys: AtomicUsize,
    /// Number of clients, summed over all keys.
    holders: AtomicUsize,
    /// Bytes of the key names.
    names_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    keys_max: AtomicUsize,
    hasher: RandomState,
    broadcast: Mutex<Broadcast>,
    is_changed: AtomicBool,
}

/// A part of the keys with their clients. Clients are sorted by id, so that newer ones come last.
#[derive(Debug, Default)]
struct Part {
    clients: IndexMap<Box<[u8]>, Vec<u64>>,
    /// Number of keys dropped, which determines the next one to drop.
    given_up: usize,
}

#[derive(Debug, Default)]
struct Broadcast {
    prefixes: BTreeMap<Box<[u8]>, Prefix>,
    /// Number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
    changed: BTreeSet<Box<[u8]>>,
    keys: usize,
}

#[derive(Debug, Default)]
struct Prefix {
    clients: BTreeSet<u64>,
    /// Names are shared, because a changed key may have several prefixes.
    changed: BTreeMap<Arc<[u8]>, Option<u64>>,
}

const PARTS: usize = 16;
/// Redis' default of `tracking-table-max-keys`.
const KEYS_MAX: usize = 1_000_000;
/// Average number of clients per key beyond which keys are dropped to save memory.
const HOLDERS_PER_KEY: usize = 16;
const PREFIXES_MAX: usize = 1024;
/// Memory for the table, as a fraction of `maxmemory`, with a maximum.
const TABLE_SHARE: u64 = 8;
const TABLE_BYTES_MAX: usize = 1 << 30;
/// Memory of a key without its name, and of each client that has read it.
const KEY_BYTES: usize = 128;
const HOLDER_BYTES: usize = 8;
/// Memory of a prefix without its two copies.
const PREFIX_BYTES: usize = 200;
/// Maximum number of changed keys that wait for the end of a batch.
const CHANGED_MAX: usize = 1024;

impl Default for Tracking {
    fn default() -> Self {
        Self {
            trackers: RwLock::default(),
            readers: AtomicUsize::new(0),
            parts: Default::default(),
            keys: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            names_bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(usize::MAX),
            keys_max: AtomicUsize::new(KEYS_MAX),
            hasher: RandomState::new(),
            broadcast: Mutex::default(),
            is_changed: AtomicBool::new(false),
        }
    }
}

impl Tracking {
    /// Starts tracking, for CLIENT TRACKING ON. The requested prefixes are in `prefixes`, not in `asked`.
    pub(crate) fn start(
        &self,
        client: u64,
        mut asked: Tracker,
        mut prefixes: Vec<Box<[u8]>>,
    ) -> Result<(), TrackingError> {
        let mut trackers = self.trackers.write();
        let old = trackers.get(&client);
        check(&asked, &prefixes, old)?;
        if asked.mode == Mode::Broadcast && prefixes.is_empty() {
            prefixes.push(Box::default());
        }
        asked.prefixes = prefixes.iter().cloned().collect();
        match old {
            Some(old) => asked.prefixes.extend(old.prefixes.iter().cloned()),
            None if asked.mode != Mode::Broadcast => {
                self.readers.fetch_add(1, SeqCst);
            }
            None => {}
        }
        trackers.insert(client, asked);
        self.broadcast.lock().subscribe(client, prefixes);
        Ok(())
    }

    /// Stops tracking, for CLIENT TRACKING OFF or at the end of the connection.
    pub(crate) fn stop(&self, client: u64) {
        let mut trackers = self.trackers.write();
        let Some(tracker) = trackers.remove(&client) else { return };
        if tracker.mode == Mode::Broadcast {
            self.broadcast.lock().unsubscribe(client, &tracker.prefixes);
        } else if self.readers.fetch_sub(1, SeqCst) == 1 {
            // No client is left to notify. A client that starts tracking now waits for the lock.
            self.forget_all();
        }
    }

    pub(crate) fn tracker(&self, client: u64) -> Option<Tracker> {
        self.trackers.read().get(&client).cloned()
    }

    /// The target of a client's redirect, if any.
    pub(crate) fn redirect(&self, client: u64) -> Option<u64> {
        self.trackers.read().get(&client)?.redirect
    }

    /// Returns whether a client is notified of its own changes; `None` if it isn't tracking.
    pub(crate) fn own_changes(&self, client: u64) -> Option<OwnChanges> {
        Some(self.trackers.read().get(&client)?.own_changes)
    }

    /// Records that the target of a redirect is gone.
    pub(crate) fn break_redirect(&self, client: u64) {
        if let Some(tracker) = self.trackers.write().get_mut(&client) {
            tracker.is_broken = true;
        }
    }

    /// Number of tracking clients.
    pub(crate) fn clients(&self) -> usize {
        self.trackers.read().len()
    }

    pub(crate) fn has_trackers(&self) -> bool {
        !self.trackers.read().is_empty()
    }

    /// Empties the table, and returns all tracking clients, to be notified that all keys are invalid.
    pub(crate) fn flush(&self) -> Vec<u64> {
        self.forget_all();
        self.trackers.read().keys().copied().collect()
    }

    /// Records that a client is about to read a key. Returns keys dropped to make room.
    pub(crate) fn remember(&self, client: u64, key: &[u8]) -> Forgotten {
        let is_new = {
            let mut part = self.part(key).lock();
            match part.clients.get_mut(key) {
                Some(clients) => {
                    self.holders.fetch_add(insert_sorted(clients, client), Relaxed);
                    false
                }
                None => {
                    part.clients.insert(key.into(), vec![client]);
                    self.holders.fetch_add(1, Relaxed);
                    true
                }
            }
        };
        if is_new {
            self.keys.fetch_add(1, Relaxed);
            self.names_bytes.fetch_add(key.len(), Relaxed);
        }
        self.shrink(Some(key), usize::MAX)
    }

    /// Handles a changed key, and returns the clients to notify now. Clients in broadcast mode are notified
    /// after the batch.
    pub(crate) fn changed(&self, key: &[u8], by: Option<u64>) -> Vec<u64> {
        self.note_broadcast(key, by);
        if self.readers.load(SeqCst) == 0 {
            return Vec::new();
        }
        let mut clients = self.forget(key);
        let trackers = self.trackers.read();
        clients.retain(|client| match trackers.get(client) {
            None => false,
            Some(tracker) if tracker.mode == Mode::Broadcast => false,
            Some(tracker) => tracker.own_changes == OwnChanges::Told || by != Some(*client),
        });
        clients
    }

    /// Takes the changes to broadcast, by prefix.
    pub(crate) fn take_changes(&self) -> Vec<Changes> {
        if !self.is_changed.swap(false, SeqCst) {
            return Vec::new();
        }
        self.broadcast.lock().take()
    }

    /// Returns whether there are changes to broadcast. Costs a single load.
    pub(crate) fn has_changes(&self) -> bool {
        self.is_changed.load(Relaxed)
    }

    /// Returns whether so many changes are waiting that they should be broadcast before the end of the batch.
    pub(crate) fn is_full(&self) -> bool {
        self.has_changes() && self.broadcast.lock().keys >= CHANGED_MAX
    }

    pub(crate) fn keys_max(&self) -> usize {
        self.keys_max.load(Relaxed)
    }

    /// Sets `tracking-table-max-keys`; zero means no limit. Excess keys are dropped in the next tick.
    pub(crate) fn set_keys_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Relaxed);
    }

    /// Memory of the table.
    pub(crate) fn bytes(&self) -> usize {
        let of = |count: &AtomicUsize, bytes: usize| count.load(Relaxed).saturating_mul(bytes);
        of(&self.names_bytes, 1) + of(&self.keys, KEY_BYTES) + of(&self.holders, HOLDER_BYTES)
    }

    /// Sets the memory limit to the table's share of `maxmemory`.
    pub(crate) fn set_bytes_max(&self, maxmemory: u64) {
        let bytes_max = usize::try_from(maxmemory / TABLE_SHARE).unwrap_or(usize::MAX).min(TABLE_BYTES_MAX);
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Drops at most `at_most` keys beyond a lowered limit.
    pub(crate) fn give_up(&self, at_most: usize) -> Forgotten {
        self.shrink(None, at_most)
    }

    /// Number of keys in the table, of clients summed over the keys, and of prefixes.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let prefixes = self.broadcast.lock().prefixes.len();
        (self.keys.load(Relaxed), self.holders.load(Relaxed), prefixes)
    }

    fn part(&self, key: &[u8]) -> &Mutex<Part> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    fn forget(&self, key: &[u8]) -> Vec<u64> {
        let clients = self.part(key).lock().clients.swap_remove(key);
        if let Some(clients) = &clients {
            self.uncount(1, clients.len(), key.len());
        }
        clients.unwrap_or_default()
    }

    fn forget_all(&self) {
        for part in &self.parts {
            let part = std::mem::take(&mut *part.lock());
            let names_bytes = part.clients.keys().map(|key| key.len()).sum();
            self.uncount(part.clients.len(), part.clients.values().map(Vec::len).sum(), names_bytes);
        }
    }

    fn uncount(&self, keys: usize, holders: usize, names_bytes: usize) {
        self.names_bytes.fetch_sub(names_bytes, Relaxed);
        self.keys.fetch_sub(keys, Relaxed);
        self.holders.fetch_sub(holders, Relaxed);
    }

    /// Drops keys while there are too many or they take too much memory. `kept`, which was just entered, is
    /// dropped last.
    fn shrink(&self, kept: Option<&[u8]>, at_most: usize) -> Forgotten {
        let mut forgotten = Vec::new();
        let keys_max = self.keys_max();
        while forgotten.len() < at_most && self.is_over(keys_max) {
            let own = kept.map_or(forgotten.len(), |kept| self.hasher.hash_one(kept) as usize) % PARTS;
            let others = (0..PARTS).map(|step| &self.parts[(own + step) % PARTS]);
            let other = others.into_iter().find_map(|part| part.lock().give_up(kept));
            if let Some(one) = other {
                self.uncount(1, one.1.len(), one.0.len());
                forgotten.push(one);
                continue;
            }
            // The key alone exceeds the limit. Its client is notified after the reply.
            let Some(kept) = kept.filter(|_| self.bytes() > self.bytes_max.load(Relaxed)) else { break };
            forgotten.push((kept.into(), self.forget(kept)));
            break;
        }
        forgotten
    }

    fn is_over(&self, keys_max: usize) -> bool {
        let keys_max = if keys_max == 0 { usize::MAX } else { keys_max };
        self.keys.load(Relaxed) > keys_max
            || self.holders.load(Relaxed) > keys_max.saturating_mul(HOLDERS_PER_KEY)
            || self.bytes() > self.bytes_max.load(Relaxed)
    }

    fn note_broadcast(&self, key: &[u8], by: Option<u64>) {
        let mut broadcast = self.broadcast.lock();
        if broadcast.note(key, by) {
            self.is_changed.store(true, SeqCst);
        }
    }
}

impl Part {
    /// Removes any key except `kept`. Clients can't predict which key, because removals change the positions
    /// of other keys.
    fn give_up(&mut self, kept: Option<&[u8]>) -> Option<(Box<[u8]>, Vec<u64>)> {
        let length = self.clients.len();
        if length == 0 {
            return None;
        }
        self.given_up = self.given_up.wrapping_add(STEP);
        let index = self.given_up % length;
        let is_kept = |index| self.clients.get_index(index).is_some_and(|(key, _)| kept == Some(&**key));
        let index = if is_kept(index) { (index + 1) % length } else { index };
        if is_kept(index) { None } else { self.clients.swap_remove_index(index) }
    }
}

/// Distance between the positions of dropped keys: a prime, so that every position is reached.
const STEP: usize = 7919;

impl Broadcast {
    fn subscribe(&mut self, client: u64, prefixes: Vec<Box<[u8]>>) {
        for prefix in prefixes {
            let length = prefix.len();
            let known = self.prefixes.entry(prefix).or_default();
            if known.clients.is_empty() {
                *self.lengths.entry(length).or_default() += 1;
            }
            known.clients.insert(client);
        }
    }

    fn unsubscribe(&mut self, client: u64, prefixes: &BTreeSet<Box<[u8]>>) {
        for prefix in prefixes {
            let Some(known) = self.prefixes.get_mut(prefix) else { continue };
            known.clients.remove(&client);
            if !known.clients.is_empty() {
                continue;
            }
            self.keys -= known.changed.len();
            self.prefixes.remove(prefix);
            self.changed.remove(prefix);
            if let Some(count) = self.lengths.get_mut(&prefix.len()) {
                *count -= 1;
            }
            self.lengths.retain(|_, count| *count > 0);
        }
    }

    /// Records a change, and returns whether any client has to be notified.
    fn note(&mut self, key: &[u8], by: Option<u64>) -> bool {
        let mut is_told = false;
        let mut shared = None;
        for length in self.lengths.keys().take_while(|length| **length <= key.len()) {
            let Some(prefix) = self.prefixes.get_mut(&key[..*length]) else { continue };
            is_told = true;
            if prefix.changed.is_empty() {
                self.changed.insert(key[..*length].into());
            }
            match prefix.changed.get_mut(key) {
                // Two clients changed the key, and each has to be notified of the other's change.
                Some(first) if *first != by => *first = None,
                Some(_) => {}
                None => {
                    self.keys += 1;
                    let key = shared.get_or_insert_with(|| Arc::from(key));
                    prefix.changed.insert(Arc::clone(key), by);
                }
            }
        }
        is_told
    }

    fn take(&mut self) -> Vec<Changes> {
        self.keys = 0;
        let changed = std::mem::take(&mut self.changed);
        let prefixes = &mut self.prefixes;
        let take = |prefix: Box<[u8]>| {
            let known = prefixes.get_mut(&prefix)?;
            let keys = std::mem::take(&mut known.changed).into_iter().collect();
            Some(Changes { keys, clients: known.clients.iter().copied().collect() })
        };
        changed.into_iter().filter_map(take).collect()
    }
}

/// Memory of these prefixes.
pub(crate) fn prefixes_bytes(prefixes: &[Box<[u8]>]) -> usize {
    prefixes.iter().map(|prefix| prefix.len() * 2 + PREFIX_BYTES).sum()
}

/// Checks the options in Redis' order, with Redis' error texts.
fn check(asked: &Tracker, prefixes: &[Box<[u8]>], old: Option<&Tracker>) -> Result<(), TrackingError> {
    let is_broadcast = asked.mode == Mode::Broadcast;
    if !is_broadcast && !prefixes.is_empty() {
        return Err(TrackingError::PrefixAlone);
    }
    if old.is_some_and(|old| (old.mode == Mode::Broadcast) != is_broadcast) {
        return Err(TrackingError::BroadcastSwitched);
    }
    let modes = (old.map(|old| old.mode), asked.mode);
    if matches!(modes, (Some(Mode::OptIn), Mode::OptOut) | (Some(Mode::OptOut), Mode::OptIn)) {
        return Err(TrackingError::OptionSwitched);
    }
    if prefixes.len() + old.map_or(0, |old| old.prefixes.len()) > PREFIXES_MAX {
        return Err(TrackingError::Prefixes);
    }
    let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    let text = |bytes: &[u8]| repeated::text(bytes);
    for (index, prefix) in prefixes.iter().enumerate() {
        let mut known = old.into_iter().flat_map(|old| &old.prefixes);
        if let Some(other) = known.find(|other| overlap(prefix, other)) {
            return Err(TrackingError::Overlap(text(prefix), text(other)));
        }
        if let Some(other) = prefixes[index + 1..].iter().find(|other| overlap(prefix, other)) {
            return Err(TrackingError::OverlapGiven(text(prefix), text(other)));
        }
    }
    Ok(())
}

/// Inserts a client into a sorted list, and returns how many were added: one or zero.
fn insert_sorted(clients: &mut Vec<u64>, client: u64) -> usize {
    match clients.binary_search(&client) {
        Ok(_) => 0,
        Err(at) => {
            clients.insert(at, client);
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tracker(mode: Mode) -> Tracker {
        Tracker { mode, ..Tracker::default() }
    }

    fn boxed(prefixes: &[&str]) -> Vec<Box<[u8]>> {
        prefixes.iter().map(|prefix| prefix.as_bytes().into()).collect()
    }

    #[test]
    fn who_has_a_key_is_told_once() {
        let tracking = Tracking::default();
        let quiet = Tracker { own_changes: OwnChanges::NotTold, ..Tracker::default() };
        for (client, asked) in [(1, tracker(Mode::Reads)), (2, quiet), (3, tracker(Mode::OptIn))] {
            tracking.start(client, asked, Vec::new()).expect("nothing to refuse");
            assert!(tracking.remember(client, b"key").is_empty());
            assert!(tracking.remember(client, b"key").is_empty());
        }
        assert_eq!(tracking.counts(), (1, 3, 0));
        tracking.stop(3);
        assert_eq!(tracking.changed(b"other", None), [0; 0]);
        assert_eq!(tracking.changed(b"key", Some(2)), [1]);
        assert_eq!(tracking.changed(b"key", None), [0; 0]);
        assert_eq!(tracking.counts(), (0, 0, 0));
    }

    #[test]
    fn nothing_is_kept_when_nobody_tracks() {
        let tracking = Tracking::default();
        tracking.start(1, tracker(Mode::Reads), Vec::new()).expect("nothing to refuse");
        tracking.remember(1, b"key");
        tracking.stop(1);
        assert_eq!(tracking.counts(), (0, 0, 0));
        assert!(!tracking.has_trackers());
    }

    #[test]
    fn changes_are_broadcast_by_prefix_in_order() {
        let tracking = Tracking::default();
        tracking.start(1, tracker(Mode::Broadcast), boxed(&["a", "b"])).expect("no overlap");
        tracking.start(2, tracker(Mode::Broadcast), boxed(&["ab"])).expect("no overlap");
        let changes = [("ab", Some(1)), ("ac", Some(1)), ("ab", Some(2)), ("c", None), ("b", None)];
        for (key, by) in changes {
            assert_eq!(tracking.changed(key.as_bytes(), by), [0; 0]);
        }
        let told: Vec<_> = tracking.take_changes();
        let keys = |keys: &[(&str, Option<u64>)]| {
            keys.iter().map(|(key, by)| (key.as_bytes().into(), *by)).collect::<Vec<(Arc<[u8]>, _)>>()
        };
        let expected = [
            Changes { keys: keys(&[("ab", None), ("ac", Some(1))]), clients: vec![1] },
            Changes { keys: keys(&[("ab", None)]), clients: vec![2] },
            Changes { keys: keys(&[("b", None)]), clients: vec![1] },
        ];
        assert_eq!(told, expected);
        assert!(tracking.take_changes().is_empty() && !tracking.has_changes());
        tracking.stop(1);
        tracking.changed(b"b", None);
        assert!(!tracking.has_changes());
        assert_eq!(tracking.counts(), (0, 0, 1));
    }

    #[test]
    fn refusals_are_those_of_redis() {
        let check = |begin: Option<(Mode, &[&str])>, mode, prefixes: &[&str], expected: &str| {
            let tracking = Tracking::default();
            if let Some((mode, prefixes)) = begin {
                tracking.start(1, tracker(mode), boxed(prefixes)).expect("nothing to refuse");
            }
            let refused = tracking.start(1, tracker(mode), boxed(prefixes));
            let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.starts_with(expected) && text.is_empty() == expected.is_empty(), "{text}");
        };
        check(None, Mode::Reads, &["a"], "PREFIX option requires BCAST mode to be enabled");
        check(Some((Mode::Reads, &[])), Mode::Broadcast, &[], "You can't switch BCAST mode on/off");
        check(Some((Mode::Broadcast, &[])), Mode::OptIn, &[], "You can't switch BCAST mode on/off");
        check(Some((Mode::OptIn, &[])), Mode::OptOut, &[], "You can't switch OPTIN/OPTOUT mode");
        check(
            Some((Mode::Broadcast, &["b"])),
            Mode::Broadcast,
            &["bc"],
            "Prefix 'bc' overlaps with an existing prefix 'b'.",
        );
        check(
            None,
            Mode::Broadcast,
            &["b", "a", "ab"],
            "Prefix 'a' overlaps with another provided prefix 'ab'.",
        );
        check(None, Mode::Broadcast, &["b", "b"], "Prefix 'b' overlaps with another provided prefix 'b'.");
        check(Some((Mode::Broadcast, &["a"])), Mode::Broadcast, &["b", "c"], "");
        check(Some((Mode::Broadcast, &[])), Mode::Broadcast, &[], "");
        check(Some((Mode::Reads, &[])), Mode::OptIn, &[], "");
        let many: Vec<String> = (0..=PREFIXES_MAX).map(|number| format!("{number:05}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(None, Mode::Broadcast, &many, "A client can have at most 1024 prefixes.");
    }

    #[test]
    fn a_key_with_too_many_clients_is_given_up() {
        let tracking = Tracking::default();
        tracking.set_keys_max(2);
        tracking.start(1, tracker(Mode::Reads), Vec::new()).expect("nothing to refuse");
        tracking.remember(1, b"other");
        let told: usize = (1..=100).map(|client| tracking.remember(client, b"key").len()).sum();
        assert_eq!(told, 1, "the other key is given up, the one that is read is not");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read { client: u64, key: u8 },
        Change { key: u8 },
        Stop { client: u64 },
        Start { client: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..4_u64, 0..20_u8).prop_map(|(client, key)| Step::Read { client, key }),
            3 => (0..20_u8).prop_map(|key| Step::Change { key }),
            1 => (0..4_u64).prop_map(|client| Step::Stop { client }),
            2 => (0..4_u64).prop_map(|client| Step::Start { client }),
        ]
    }

    proptest! {
        /// A tracking client that has read a key is notified of its change, or was notified when the key was
        /// dropped.
        #[test]
        fn no_change_is_missed(steps in prop::collection::vec(step(), 1..200), keys_max in 1..12_usize) {
            let tracking = Tracking::default();
            tracking.set_keys_max(keys_max);
            let mut on = BTreeSet::new();
            let mut cached: BTreeSet<(u64, u8)> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Start { client } => {
                        tracking.start(client, Tracker::default(), Vec::new()).expect("nothing to refuse");
                        on.insert(client);
                    }
                    Step::Stop { client } => {
                        tracking.stop(client);
                        on.remove(&client);
                        cached.retain(|(other, _)| *other != client);
                    }
                    Step::Read { client, key } if on.contains(&client) => {
                        for (key, clients) in tracking.remember(client, &[key]) {
                            cached.retain(|(client, other)| [*other] != *key || !clients.contains(client));
                        }
                        cached.insert((client, key));
                    }
                    Step::Read { .. } => {}
                    Step::Change { key } => {
                        let told = tracking.changed(&[key], None);
                        let had = cached.iter().filter(|(_, other)| *other == key).map(|(client, _)| *client);
                        prop_assert!(had.into_iter().all(|client| told.contains(&client)));
                        cached.retain(|(_, other)| *other != key);
                    }
                }
                prop_assert!(tracking.counts().0 <= keys_max);
            }
        }
    }
}
