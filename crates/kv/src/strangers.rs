//! Clients that are not admitted yet: before the required password, and under TLS before the end of the
//! handshake.
//!
//! Such clients are untrusted. Their memory is limited in total and not part of `maxmemory`, so that no keys
//! are evicted for them. If there are too many, the oldest client of the address with the most clients is
//! closed. So unauthenticated clients can't keep out admitted ones, and clients that don't share an address
//! with a flood have time to authenticate. A closed client is removed immediately, so that a flood has a
//! constant cost per client; until its worker has closed the socket, it counts as ending.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use resp::Limits;

use crate::clients::Client;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Limits of unauthenticated clients' requests, as in Redis; enough for HELLO with all options.
pub(crate) const ARGUMENTS_MAX: usize = 10;
pub(crate) const ARGUMENT_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a message of the 0x1F protocol.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of bytes per read from such a client.
pub(crate) const INPUT_BYTES_MAX: usize = 16 << 10;
/// Maximum number of bytes of replies per write to such a client.
pub(crate) const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Limit of all requests and replies of such clients, or this fraction of `maxmemory` if that is less.
pub(crate) const BYTES_MAX: u64 = 8 << 20;
const SHARE: u64 = 32;
/// Room for one request of the largest permitted size.
const BYTES_MIN: u64 = 512 << 10;
/// Maximum number of clients that were ended but whose sockets are still open. Above it, new connections wait
/// until workers have closed sockets. These sockets take file descriptors in addition to the limits, so the
/// number is small.
const ENDING_MAX: usize = 64;

/// The unauthenticated clients of all workers.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    clients: Mutex<Line>,
    /// Number of `clients`, readable without its lock.
    count: AtomicUsize,
    /// Clients that were ended but whose sockets are still open.
    ending: AtomicUsize,
    /// Memory of these clients' requests and replies.
    bytes: AtomicUsize,
}

/// Clients by age and by address. Every query takes the first or last element of a tree, so its cost per
/// connection is logarithmic.
#[derive(Debug, Default)]
struct Line {
    clients: BTreeMap<Place, Arc<Client>>,
    sources: HashMap<IpAddr, BTreeSet<Place>>,
    ranks: BTreeSet<Rank>,
}

/// Time of arrival, and number of the connection.
type Place = (u64, u64);
/// Number of clients from an address, and the oldest of them. The address with the greatest rank loses a
/// client first: the address with the most clients, or among equals, the address with the oldest client.
type Rank = (usize, Reverse<Place>, IpAddr);

/// Limits of unauthenticated clients' requests.
pub(crate) fn limits() -> Limits {
    Limits { elements_max: ARGUMENTS_MAX, bulk_bytes_max: ARGUMENT_BYTES_MAX, ..Limits::default() }
}

/// Limit of unauthenticated clients' buffers in total.
pub(crate) fn bytes_max(maxmemory: u64) -> usize {
    (maxmemory / SHARE).clamp(BYTES_MIN, BYTES_MAX) as usize
}

impl Strangers {
    pub(crate) fn add(&self, client: &Arc<Client>, since_ms: u64) {
        let is_new = self.clients.lock().add((since_ms, client.id), client);
        self.count.fetch_add(usize::from(is_new), Relaxed);
    }

    /// Removes a client that was admitted or is gone.
    pub(crate) fn remove(&self, client: &Client, since_ms: u64) {
        let removed = self.clients.lock().remove((since_ms, client.id));
        // A client that was ended is no longer listed.
        let counter = if removed.is_some() { &self.count } else { &self.ending };
        counter.fetch_sub(1, Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Number of clients that were ended but whose sockets are still open.
    pub(crate) fn ending(&self) -> usize {
        self.ending.load(Relaxed)
    }

    /// Returns whether so many sockets are about to be closed that no more clients should be ended.
    pub(crate) fn are_many_ending(&self) -> bool {
        self.ending() >= ENDING_MAX
    }

    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        self.bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Ends clients until at most `count_max` are left. Returns how many it ended.
    pub(crate) fn end_beyond(&self, count_max: usize) -> usize {
        let mut line = self.clients.lock();
        let too_many = line.clients.len().saturating_sub(count_max);
        (0..too_many).filter_map(|_| line.take_one()).filter(|client| self.end(client)).count()
    }

    /// Ends one client. Returns whether a client was ended.
    pub(crate) fn end_one(&self) -> bool {
        let mut line = self.clients.lock();
        while let Some(client) = line.take_one() {
            if self.end(&client) {
                return true;
            }
        }
        false
    }

    /// Ends clients that arrived before a time. Returns how many.
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

    /// Ends the client with the largest buffers, if the total exceeds `bytes_max`. Returns whether a client
    /// was ended.
    pub(crate) fn end_largest(&self, bytes_max: usize) -> bool {
        let mut line = self.clients.lock();
        let clients = &line.clients;
        let is_over = clients.values().map(|client| client.buffers_bytes()).sum::<usize>() > bytes_max;
        let largest = clients.iter().max_by_key(|(_, client)| client.buffers_bytes()).filter(|_| is_over);
        let largest = largest.map(|(place, _)| *place).and_then(|place| line.remove(place));
        largest.is_some_and(|client| self.end(&client))
    }

    /// Ends a client that was just removed from the list, and returns whether the client hadn't been ended
    /// before. Called with the list locked, so that the client is counted before its worker closes it.
    fn end(&self, client: &Client) -> bool {
        self.count.fetch_sub(1, Relaxed);
        self.ending.fetch_add(1, Relaxed);
        client.kill()
    }
}

impl Line {
    /// Adds a client, and returns whether it is new.
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

    /// Removes the oldest client of the address with the most clients.
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

/// The source of a client: its IPv4 address, or its IPv6 network of 64 bits, which a single host may own.
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
        // A host may own a whole IPv6 network.
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
