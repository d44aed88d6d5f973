//! Subscriptions of clients to channels and patterns.
//!
//! This module decides which clients receive a message; `pubsub` encodes and sends it. Publishers share a
//! lock; subscribers take it exclusively.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use indexmap::IndexMap;
use thiserror::Error;

use crate::glob::{Matcher, TooLong};
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, RwLock};

/// The kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    Pattern,
    /// A shard channel, which belongs to a cluster slot and is separate from other channels.
    Shard,
}

/// A receiver of messages.
pub(crate) trait Receiver {
    /// Unique id; newer receivers have higher ids.
    fn id(&self) -> u64;
}

/// The name of a channel or a pattern, stored once for all subscribers.
pub(crate) type Name = Arc<[u8]>;

/// A limit of subscriptions is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TooMany {
    #[error("ERR a client can have at most {CHANNELS_MAX} subscriptions and {PATTERNS_MAX} patterns")]
    Names,
    #[error("ERR the names of a client's subscriptions can have at most {NAMES_BYTES_MAX} bytes together")]
    Bytes,
}

/// Subscriptions of all clients.
#[derive(Debug)]
pub(crate) struct Subscriptions<R> {
    channels: RwLock<Topics<R>>,
    patterns: RwLock<Topics<R>>,
    shards: RwLock<Topics<R>>,
    leaving: Mutex<Vec<Left>>,
    /// Number of entries in `leaving`, including those being removed at the moment; readable without the
    /// lock.
    leaving_count: AtomicUsize,
}

/// Remaining subscriptions of a client that is gone.
#[derive(Debug)]
struct Left {
    receiver: u64,
    own: Own,
}

/// Subscribers by name. Ordered, so that clients with several matching patterns receive a message in a
/// deterministic order.
type Topics<R> = IndexMap<Name, Vec<Arc<R>>>;

/// Subscriptions of one client, in the order in which it subscribed.
#[derive(Debug, Default)]
pub(crate) struct Own {
    channels: Names,
    patterns: Names,
    shards: Names,
    bytes: usize,
}

/// Names in order of insertion. Removal leaves gaps, because all names may be removed one by one.
#[derive(Debug, Default)]
struct Names {
    places: HashMap<Name, u64>,
    order: BTreeMap<u64, Name>,
    next: u64,
}

/// Limit per client, for channels and for shard channels.
pub(crate) const CHANNELS_MAX: usize = 100_000;
/// Limit per client. Each message is matched against the patterns of all clients.
pub(crate) const PATTERNS_MAX: usize = 1_000;
pub(crate) const NAMES_BYTES_MAX: usize = 16 << 20;
/// Memory of the tables per name.
const NAME_BYTES: usize = 200;
/// Names added or removed in one turn, which takes a few tenths of a millisecond. All names of a client would
/// block a worker for a few tenths of a second.
pub(crate) const NAMES_AT_ONCE: usize = 1000;

impl<R> Default for Subscriptions<R> {
    fn default() -> Self {
        Self {
            channels: RwLock::default(),
            patterns: RwLock::default(),
            shards: RwLock::default(),
            leaving: Mutex::default(),
            leaving_count: AtomicUsize::new(0),
        }
    }
}

impl<R: Receiver> Subscriptions<R> {
    /// Subscribes a client. Returns whether the subscription is new.
    pub(crate) fn add(&self, kind: Kind, name: &[u8], receiver: &Arc<R>, own: &mut Own) -> bool {
        if own.of(kind).places.contains_key(name) {
            return false;
        }
        let mut topics = self.topics(kind).write();
        let name = topics.get_key_value(name).map_or_else(|| Name::from(name), |(name, _)| Arc::clone(name));
        let receivers = topics.entry(Arc::clone(&name)).or_default();
        if let Err(at) = place(receivers, receiver.id()) {
            receivers.insert(at, Arc::clone(receiver));
        }
        drop(topics);
        own.bytes += name.len();
        own.of_mut(kind).insert(name);
        true
    }

    /// Unsubscribes a client. Returns whether the client was subscribed.
    pub(crate) fn remove(&self, kind: Kind, name: &[u8], receiver: u64, own: &mut Own) -> bool {
        let Some(name) = own.of_mut(kind).remove(name) else { return false };
        own.bytes -= name.len();
        self.leave(kind, &name, receiver);
        true
    }

    /// Removes a part of the client's subscriptions. Returns whether none are left.
    pub(crate) fn remove_some(&self, receiver: u64, own: &mut Own) -> bool {
        self.leave_some(receiver, own, NAMES_AT_ONCE);
        own.is_empty()
    }

    /// Removes the subscriptions of a connection that ends. Many names are removed in parts by
    /// [`Self::tidy`]; no messages are delivered for them meanwhile.
    pub(crate) fn end(&self, receiver: u64, own: Own) {
        let mut left = Left { receiver, own };
        self.leave_some(receiver, &mut left.own, NAMES_AT_ONCE);
        if !left.own.is_empty() {
            self.leaving_count.fetch_add(1, SeqCst);
            self.leaving.lock().push(left);
        }
    }

    /// Returns whether there is work for [`Self::tidy`]. Costs a single load.
    pub(crate) fn is_untidy(&self) -> bool {
        self.leaving_count.load(SeqCst) > 0
    }

    /// Removes a part of the subscriptions of clients that are gone.
    pub(crate) fn tidy(&self) {
        let Some(mut left) = self.leaving.lock().pop() else { return };
        self.leave_some(left.receiver, &mut left.own, NAMES_AT_ONCE);
        if left.own.is_empty() {
            self.leaving_count.fetch_sub(1, SeqCst);
        } else {
            self.leaving.lock().push(left);
        }
    }

    fn leave_some(&self, receiver: u64, own: &mut Own, at_most: usize) {
        for _ in 0..at_most {
            let Some((kind, name)) = own.pop() else { return };
            own.bytes -= name.len();
            self.leave(kind, &name, receiver);
        }
    }

    /// Delivers a message to the subscribers of a channel and of matching patterns. Returns how many
    /// subscribers accepted it. `deliver` receives the pattern, and must not subscribe.
    pub(crate) fn publish(
        &self,
        channel: &[u8],
        mut deliver: impl FnMut(Option<&Name>, &R) -> bool,
    ) -> Result<usize, TooLong> {
        let mut matcher = Matcher::default();
        let mut count = each(&self.channels.read(), channel, |receiver| deliver(None, receiver));
        let patterns = self.patterns.read();
        for (pattern, receivers) in patterns.iter().filter(|(pattern, _)| matcher.matches(pattern, channel)) {
            count += receivers.iter().filter(|receiver| deliver(Some(pattern), receiver)).count();
        }
        matcher.check()?;
        Ok(count)
    }

    /// Like [`Subscriptions::publish`], for a shard channel.
    pub(crate) fn publish_to_shard(&self, channel: &[u8], deliver: impl FnMut(&R) -> bool) -> usize {
        each(&self.shards.read(), channel, deliver)
    }

    /// The names that match a pattern, or all names, in any order.
    pub(crate) fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Result<Vec<Name>, TooLong> {
        let mut matcher = Matcher::default();
        let topics = self.topics(kind).read();
        let is_wanted = |name: &&Name| pattern.is_none_or(|pattern| matcher.matches(pattern, name));
        let names = topics.keys().filter(is_wanted).cloned().collect();
        matcher.check()?;
        Ok(names)
    }

    /// Number of subscribers of a name.
    pub(crate) fn receivers(&self, kind: Kind, name: &[u8]) -> usize {
        self.topics(kind).read().get(name).map_or(0, Vec::len)
    }

    /// Number of names.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.topics(kind).read().len()
    }

    fn leave(&self, kind: Kind, name: &[u8], receiver: u64) {
        let mut topics = self.topics(kind).write();
        let Some(receivers) = topics.get_mut(name) else { return };
        if let Ok(at) = place(receivers, receiver) {
            receivers.remove(at);
        }
        if receivers.is_empty() {
            topics.swap_remove(name);
        }
    }

    fn topics(&self, kind: Kind) -> &RwLock<Topics<R>> {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }
}

impl Own {
    /// Checks that new names are within the limits, and returns the memory that the tables need for them.
    pub(crate) fn check_more<'a>(
        &self,
        kind: Kind,
        names: impl Iterator<Item = &'a [u8]>,
    ) -> Result<usize, TooMany> {
        let known = self.of(kind);
        let (mut count, mut bytes) = (known.len(), self.bytes);
        for name in names.filter(|name| !known.places.contains_key(*name)) {
            count += 1;
            bytes += name.len();
        }
        match () {
            () if count > if kind == Kind::Pattern { PATTERNS_MAX } else { CHANNELS_MAX } => {
                Err(TooMany::Names)
            }
            () if bytes > NAMES_BYTES_MAX => Err(TooMany::Bytes),
            () => Ok(bytes - self.bytes + (count - known.len()) * NAME_BYTES),
        }
    }

    /// Number of subscriptions of a kind.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.of(kind).len()
    }

    /// The count in replies to SUBSCRIBE, PSUBSCRIBE, UNSUBSCRIBE and PUNSUBSCRIBE; shard channels are
    /// counted separately.
    pub(crate) fn count_told(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.shards.len(),
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
        }
    }

    /// Memory of the tables for this client.
    pub(crate) fn bytes(&self) -> usize {
        let count: usize =
            [&self.channels, &self.patterns, &self.shards].iter().map(|names| names.len()).sum();
        self.bytes + count * NAME_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        [&self.channels, &self.patterns, &self.shards].iter().all(|names| names.len() == 0)
    }

    /// Names in the order of subscription.
    pub(crate) fn names(&self, kind: Kind) -> impl Iterator<Item = Name> {
        self.of(kind).order.values().cloned()
    }

    /// Removes any subscription.
    fn pop(&mut self) -> Option<(Kind, Name)> {
        let popped = |names: &mut Names, kind| Some((kind, names.pop()?));
        popped(&mut self.channels, Kind::Channel)
            .or_else(|| popped(&mut self.patterns, Kind::Pattern))
            .or_else(|| popped(&mut self.shards, Kind::Shard))
    }

    fn of(&self, kind: Kind) -> &Names {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }
}

impl Names {
    fn insert(&mut self, name: Name) {
        self.places.insert(Arc::clone(&name), self.next);
        self.order.insert(self.next, name);
        self.next += 1;
    }

    fn remove(&mut self, name: &[u8]) -> Option<Name> {
        let place = self.places.remove(name)?;
        self.order.remove(&place)
    }

    fn pop(&mut self) -> Option<Name> {
        let (_, name) = self.order.pop_last()?;
        self.places.remove(&name);
        Some(name)
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}

fn each<R>(topics: &Topics<R>, channel: &[u8], mut deliver: impl FnMut(&R) -> bool) -> usize {
    let Some(receivers) = topics.get(channel) else { return 0 };
    receivers.iter().filter(|receiver| deliver(receiver)).count()
}

/// Finds a receiver in a list sorted by id.
fn place<R: Receiver>(receivers: &[Arc<R>], id: u64) -> Result<usize, usize> {
    receivers.binary_search_by_key(&id, |receiver| receiver.id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Client(u64);

    impl Receiver for Client {
        fn id(&self) -> u64 {
            self.0
        }
    }

    fn received(all: &Subscriptions<Client>, channel: &str) -> Vec<(String, u64)> {
        let mut received = Vec::new();
        let count = all.publish(channel.as_bytes(), |pattern, client| {
            let pattern = String::from_utf8_lossy(pattern.map_or(b"", |pattern| pattern)).into_owned();
            received.push((pattern, client.0));
            true
        });
        assert_eq!(count, Ok(received.len()));
        received
    }

    #[test]
    fn channels_come_before_patterns_and_nobody_twice() {
        let all = Subscriptions::default();
        let (one, two) = (Arc::new(Client(1)), Arc::new(Client(2)));
        let (mut own, mut others) = (Own::default(), Own::default());
        assert!(all.add(Kind::Channel, b"news", &two, &mut others));
        assert!(all.add(Kind::Channel, b"news", &one, &mut own));
        assert!(!all.add(Kind::Channel, b"news", &one, &mut own));
        assert!(all.add(Kind::Pattern, b"n*", &one, &mut own));
        assert!(all.add(Kind::Shard, b"news", &one, &mut own));
        let names = |text: &[(&str, u64)]| {
            text.iter().map(|(pattern, id)| ((*pattern).to_owned(), *id)).collect::<Vec<_>>()
        };
        assert_eq!(received(&all, "news"), names(&[("", 1), ("", 2), ("n*", 1)]));
        assert_eq!(received(&all, "other"), names(&[]));
        assert_eq!(all.publish_to_shard(b"news", |client| client.0 == 1), 1);
        assert_eq!((own.count_told(Kind::Channel), own.count_told(Kind::Shard)), (2, 1));
        assert!(all.remove(Kind::Channel, b"news", 1, &mut own));
        assert!(!all.remove(Kind::Channel, b"news", 1, &mut own));
        assert_eq!(received(&all, "news"), names(&[("", 2), ("n*", 1)]));
        assert!(all.remove_some(1, &mut own), "they are few");
        all.end(2, others);
        assert!(!all.is_untidy(), "they are few");
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            assert_eq!(all.count(kind), 0);
        }
    }

    /// Removing many names at once would block the other clients of the worker.
    #[test]
    fn what_was_subscribed_to_goes_in_parts() {
        let (all, one, two) = (Subscriptions::default(), Arc::new(Client(1)), Arc::new(Client(2)));
        let (mut own, mut others) = (Own::default(), Own::default());
        for number in 0..2 * NAMES_AT_ONCE {
            for kind in [Kind::Channel, Kind::Shard] {
                all.add(kind, number.to_string().as_bytes(), &one, &mut own);
            }
        }
        all.add(Kind::Channel, b"other", &two, &mut others);
        let left = || all.count(Kind::Channel) + all.count(Kind::Shard);
        all.end(1, own);
        for parts in (1..4).rev() {
            assert_eq!((left(), all.is_untidy()), (parts * NAMES_AT_ONCE + 1, true));
            all.tidy();
        }
        assert!(!all.is_untidy());
        assert_eq!((left(), received(&all, "other")), (1, vec![(String::new(), 2)]));
    }

    #[test]
    fn patterns_come_in_the_order_in_which_they_were_subscribed_to() {
        let (all, client, mut own) = (Subscriptions::default(), Arc::new(Client(1)), Own::default());
        let patterns: Vec<_> = (0..20).map(|stars| format!("n{}", "*".repeat(20 - stars))).collect();
        for pattern in &patterns {
            assert!(all.add(Kind::Pattern, pattern.as_bytes(), &client, &mut own));
        }
        let received = received(&all, "news");
        assert!(received.iter().map(|(pattern, _)| pattern).eq(&patterns), "{received:?}");
    }

    #[test]
    fn names_are_listed_by_pattern_and_in_order() {
        let (all, client, mut own) = (Subscriptions::default(), Arc::new(Client(1)), Own::default());
        for name in ["c", "a1", "b", "a2"] {
            all.add(Kind::Channel, name.as_bytes(), &client, &mut own);
        }
        let text = |names: Vec<Name>| {
            names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(text(own.names(Kind::Channel).take(3).collect()), ["c", "a1", "b"]);
        let mut listed = text(all.names(Kind::Channel, Some(b"a*")).expect("it is short"));
        listed.sort();
        assert_eq!(listed, ["a1", "a2"]);
        assert_eq!(all.names(Kind::Channel, None).expect("all").len(), 4);
        assert_eq!([all.receivers(Kind::Channel, b"a1"), all.receivers(Kind::Shard, b"a1")], [1, 0]);
    }

    #[test]
    fn a_client_has_limits() {
        let (all, client, mut own) = (Subscriptions::default(), Arc::new(Client(1)), Own::default());
        let names: Vec<String> = (0..=CHANNELS_MAX).map(|number| number.to_string()).collect();
        let names = |count: usize| names.iter().take(count).map(|name| name.as_bytes());
        assert!(own.check_more(Kind::Channel, names(CHANNELS_MAX)).is_ok_and(|bytes| bytes > CHANNELS_MAX));
        assert_eq!(own.check_more(Kind::Channel, names(CHANNELS_MAX + 1)), Err(TooMany::Names));
        assert_eq!(own.check_more(Kind::Pattern, names(PATTERNS_MAX + 1)), Err(TooMany::Names));
        let long = vec![b'x'; NAMES_BYTES_MAX];
        assert_eq!(
            own.check_more(Kind::Channel, [long.as_slice()].into_iter()),
            Ok(NAMES_BYTES_MAX + NAME_BYTES)
        );
        all.add(Kind::Channel, &long, &client, &mut own);
        assert_eq!(own.check_more(Kind::Pattern, [long.as_slice()].into_iter()), Err(TooMany::Bytes));
        assert_eq!(own.check_more(Kind::Channel, [long.as_slice()].into_iter()), Ok(0), "it has it");
    }
}
