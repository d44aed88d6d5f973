//! Clients that have not been let in: where a password is needed and they have not given it, and under TLS until the handshake is done.
//!
//! They may be anybody. What they take is bounded for all of them together, stands beside `maxmemory` so that no key goes for it, and when too
//! many come, the oldest makes way of those from the address that most of them come from: who has been let in is never kept out by them, and who
//! comes from elsewhere than a flood has time to say the password. One that makes way is forgotten at once, so that a flood of them costs no more
//! for each than the one before; until its worker has closed it, it counts as ending.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use resp::Limits;

use crate::clients::Client;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A request of theirs, as Redis has it: enough for HELLO with all of its options.
pub(crate) const ARGUMENTS_MAX: usize = 10;
pub(crate) const ARGUMENT_BYTES_MAX: usize = 16 << 10;
/// What a message of the 0x1F protocol may have until then.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// What is read from one of them at once.
pub(crate) const INPUT_BYTES_MAX: usize = 16 << 10;
/// Replies to one of them that are written at once.
pub(crate) const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// What the requests and replies of all of them may take: so much, or a part of `maxmemory` where that is less.
pub(crate) const BYTES_MAX: u64 = 8 << 20;
const SHARE: u64 = 32;
/// Room for one request of the largest kind that is permitted.
const BYTES_MIN: u64 = 512 << 10;
/// Those that were ended and are not closed yet: when there are so many, others wait at the door until their workers have come to them. They take
/// descriptors beside the limits, which is why there are few.
const ENDING_MAX: usize = 64;

/// Of all workers.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    clients: Mutex<Line>,
    /// Of `clients`, to be read without its lock.
    count: AtomicUsize,
    /// Those that were ended, and are not closed yet.
    ending: AtomicUsize,
    /// Of their requests and replies.
    bytes: AtomicUsize,
}

/// In the order in which they came, and for each address. Whatever is asked for is at an end of a tree: nothing is gone through for a connection.
#[derive(Debug, Default)]
struct Line {
    clients: BTreeMap<Place, Arc<Client>>,
    sources: HashMap<IpAddr, BTreeSet<Place>>,
    ranks: BTreeSet<Rank>,
}

/// When somebody came, and the number of the connection.
type Place = (u64, u64);
/// How many come from an address, and the first of them. The greatest goes first: from where most come, of two such the one with the older client.
type Rank = (usize, Reverse<Place>, IpAddr);

/// What a request of theirs may have.
pub(crate) fn limits() -> Limits {
    Limits { elements_max: ARGUMENTS_MAX, bulk_bytes_max: ARGUMENT_BYTES_MAX, ..Limits::default() }
}

/// What the buffers of all of them may take.
pub(crate) fn bytes_max(maxmemory: u64) -> usize {
    (maxmemory / SHARE).clamp(BYTES_MIN, BYTES_MAX) as usize
}

impl Strangers {
    pub(crate) fn add(&self, client: &Arc<Client>, since_ms: u64) {
        let is_new = self.clients.lock().add((since_ms, client.id), client);
        self.count.fetch_add(usize::from(is_new), Relaxed);
    }

    /// It was let in, or is gone.
    pub(crate) fn remove(&self, client: &Client, since_ms: u64) {
        let removed = self.clients.lock().remove((since_ms, client.id));
        // Who was ended was forgotten then.
        let counter = if removed.is_some() { &self.count } else { &self.ending };
        counter.fetch_sub(1, Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Those that were ended, and whose sockets are open nevertheless.
    pub(crate) fn ending(&self) -> usize {
        self.ending.load(Relaxed)
    }

    /// Whether so many are about to be closed that no more are to be ended for others.
    pub(crate) fn are_many_ending(&self) -> bool {
        self.ending() >= ENDING_MAX
    }

    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        self.bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Ends some, until there are no more than so many; how many it has ended.
    pub(crate) fn end_beyond(&self, count_max: usize) -> usize {
        let mut line = self.clients.lock();
        let too_many = line.clients.len().saturating_sub(count_max);
        (0..too_many).filter_map(|_| line.take_one()).filter(|client| self.end(client)).count()
    }

    /// Ends one; whether there was one.
    pub(crate) fn end_one(&self) -> bool {
        let mut line = self.clients.lock();
        while let Some(client) = line.take_one() {
            if self.end(&client) {
                return true;
            }
        }
        false
    }

    /// Ends those that came before then; how many.
    pub(crate) fn end_since(&self, before_ms: u64) -> usize {
        let mut line = self.clients.lock();
        let mut ended = 0;
        while let Some((&place, _)) = line.clients.first_key_value()
            && place.0 <= before_ms
        {
            let overdue = line.remove(place);
            ended += usize::from(overdue.is_some_and(|client| self.end(&client)));
        }
        ended
    }

    /// Ends the one whose buffers take most, if those of all take more than so much; whether it has.
    pub(crate) fn end_largest(&self, bytes_max: usize) -> bool {
        let mut line = self.clients.lock();
        let clients = &line.clients;
        let is_over = clients.values().map(|client| client.buffers_bytes()).sum::<usize>() > bytes_max;
        let largest = clients.iter().max_by_key(|(_, client)| client.buffers_bytes()).filter(|_| is_over);
        let largest = largest.map(|(place, _)| *place).and_then(|place| line.remove(place));
        largest.is_some_and(|client| self.end(&client))
    }

    /// It was taken from those that are known; whether nobody else has ended it. While they are locked, so that it is counted before its worker
    /// asks.
    fn end(&self, client: &Client) -> bool {
        self.count.fetch_sub(1, Relaxed);
        self.ending.fetch_add(1, Relaxed);
        client.kill()
    }
}

impl Line {
    /// Whether it was not there before.
    fn add(&mut self, place: Place, client: &Arc<Client>) -> bool {
        let is_new = self.clients.insert(place, Arc::clone(client)).is_none();
        self.change(source(client), |places| {
            places.insert(place);
        });
        is_new
    }

    fn remove(&mut self, place: Place) -> Option<Arc<Client>> {
        let client = self.clients.remove(&place)?;
        self.change(source(&client), |places| {
            places.remove(&place);
        });
        Some(client)
    }

    /// The one that came first from where most come from.
    fn take_one(&mut self) -> Option<Arc<Client>> {
        let (_, Reverse(place), _) = self.ranks.last()?;
        self.remove(*place)
    }

    fn change(&mut self, source: IpAddr, act: impl FnOnce(&mut BTreeSet<Place>)) {
        let places = self.sources.entry(source).or_default();
        if let Some(before) = rank(source, places) {
            self.ranks.remove(&before);
        }
        act(places);
        match rank(source, places) {
            Some(now) => _ = self.ranks.insert(now),
            None => _ = self.sources.remove(&source),
        }
    }
}

fn rank(source: IpAddr, places: &BTreeSet<Place>) -> Option<Rank> {
    Some((places.len(), Reverse(*places.first()?), source))
}

/// Where it comes from: an address, of IPv6 a network of 64 bits, all of which one host may have.
fn source(client: &Client) -> IpAddr {
    match client.ends.client.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        ip @ IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::clients::{Calls, Clients, Ends, Place as Seat};
    use crate::pins::Buffered;
    use crate::server::Security;
    use crate::sync::Waker;

    fn strangers(clients: &Clients, addresses: &[&str]) -> (Strangers, Vec<Arc<Client>>) {
        let strangers = Strangers::default();
        let poll = mio::Poll::new().expect("a poll");
        let calls = Arc::new(Calls::new(Waker::new(poll.registry(), mio::Token(0)).expect("a waker")));
        let come = |(since_ms, address): (u64, &&str)| {
            let client: SocketAddr = address.parse().expect("an address");
            let ends = Ends { client, server: client, security: Security::Plain };
            let client = clients.add(ends, Seat { worker: Arc::clone(&calls), number: 0 }, since_ms);
            strangers.add(&client, since_ms);
            client
        };
        let come = (0..).zip(addresses).map(come).collect();
        (strangers, come)
    }

    #[test]
    fn the_oldest_of_those_from_where_most_come_makes_way() {
        let check = |addresses: &[&str], order: &[usize]| {
            let (strangers, clients) = strangers(&Clients::new(&Arc::new(Buffered::of_nothing())), addresses);
            for (left, place) in order.iter().enumerate() {
                assert_eq!(strangers.end_beyond(addresses.len() - left - 1), 1);
                assert!(clients[*place].is_killed(), "{addresses:?}: {left}");
            }
            assert_eq!((strangers.count(), strangers.ending()), (addresses.len() - order.len(), order.len()));
            (0..).zip(&clients).for_each(|(since_ms, client)| strangers.remove(client, since_ms));
            let line = strangers.clients.lock();
            assert!(line.clients.is_empty() && line.sources.is_empty() && line.ranks.is_empty());
            assert_eq!((strangers.count(), strangers.ending()), (0, 0));
        };
        check(&["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"], &[0, 1, 2]);
        check(&["192.0.2.1:1", "192.0.2.2:1", "192.0.2.2:2", "192.0.2.2:3"], &[1, 2, 0, 3]);
        check(&["192.0.2.2:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:2"], &[1, 0, 2]);
        // A host may have a whole network of IPv6.
        check(&["192.0.2.1:1", "[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8:0:1::1]:1"], &[1, 0, 2, 3]);
    }

    #[test]
    fn those_that_came_before_a_time_end() {
        let (strangers, clients) =
            strangers(&Clients::new(&Arc::new(Buffered::of_nothing())), &["192.0.2.1:1"; 5]);
        assert_eq!((strangers.end_since(2), strangers.count()), (3, 2));
        assert_eq!(
            clients.iter().map(|client| client.is_killed()).collect::<Vec<_>>(),
            [true, true, true, false, false]
        );
        assert!(strangers.end_one() && clients[3].is_killed());
    }

    #[test]
    fn what_all_may_take_goes_with_the_memory_of_the_server() {
        let check = |maxmemory: u64, expected: usize| assert_eq!(bytes_max(maxmemory), expected);
        check(2 << 20, 512 << 10);
        check(64 << 20, 2 << 20);
        check(1 << 30, 8 << 20);
        check(u64::MAX, 8 << 20);
    }
}
