//! Counts of requests by client, in a table of a fixed size that all workers share.
//!
//! A client occupies one entry of a set. A hash with a secret key selects the set, so an attacker can't choose addresses that share
//! one. If all entries of the set are in use, a new client replaces the client that is closest to having its whole burst again, *and
//! inherits that client's count of requests*. So the count of a client is never too low: flooding the table with other addresses
//! doesn't reset it. The disadvantage: if there are more addresses than entries, and all have recent requests, a new client may be
//! refused because of other clients' requests. Entries don't expire, because a client that has its whole burst again is equivalent to
//! one that isn't in the table.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::RateLimit;
use crate::protection::rate::{Nanoseconds, Verdict, nanoseconds};

/// Number of entries in a set. A search compares one after the other; with 16 bytes each, they take up two cache lines.
const PLACES: usize = 8;

/// Clients and their requests.
pub(crate) struct Clients {
    sets: Box<[Mutex<Set>]>,
    hasher: RandomState,
    begun: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Set([RateState; PLACES]);

/// A client, and the end of its requests so far: the time at which they would end if they were evenly spaced.
#[derive(Clone, Copy, Debug, Default)]
struct RateState {
    client: u64,
    expected: Nanoseconds,
}

impl Clients {
    pub(crate) fn new(clients_max: usize) -> Self {
        let sets = (0..clients_max.div_ceil(PLACES).max(1)).map(|_| Mutex::default()).collect();
        Self { sets, hasher: RandomState::new(), begun: Instant::now() }
    }

    /// Counts a request of a client, and returns whether it is within the limit.
    pub(crate) fn count(&self, limit: &RateLimit, client: IpAddr, now: Instant) -> Verdict {
        let client = self.hasher.hash_one(limit.clients.network(client));
        let now = nanoseconds(now.saturating_duration_since(self.begun));
        let mut set = self.sets[place_of(client, self.sets.len())].lock();
        let place = set.place(client);
        let (verdict, expected) = limit.rate.decide(place.expected, now);
        if matches!(verdict, Verdict::Admitted(_)) {
            *place = RateState { client, expected };
        }
        verdict
    }
}

impl Set {
    /// Returns the entry of the client, or the entry that it may replace.
    fn place(&mut self, client: u64) -> &mut RateState {
        let Self(places) = self;
        let own = places.iter().position(|place| place.client == client);
        let at = own.unwrap_or_else(|| {
            let least = places.iter().enumerate().min_by_key(|(_, place)| place.expected);
            least.map_or(0, |(at, _)| at)
        });
        &mut places[at]
    }
}

/// Returns an index below `count`, from the leading bits of a hash.
fn place_of(hash: u64, count: usize) -> usize {
    let place = (u128::from(hash) * count as u128) >> 64;
    usize::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::Ipv6Addr;
    use std::time::Duration;

    use super::*;
    use crate::config::{ClientPrefixes, CountedRequests, Enforcement, QuotaFields, Rate};

    fn limit(requests: u32, burst: u32) -> RateLimit {
        RateLimit {
            rate: Rate { requests, window: Duration::from_secs(1), burst },
            count: CountedRequests::All,
            clients: ClientPrefixes { ipv4_bits: 32, ipv6_bits: 64 },
            clients_max: 64,
            exempt: Vec::new(),
            enforcement: Enforcement::Refuse,
            fields: QuotaFields::Refused,
        }
    }

    fn client(number: u64) -> IpAddr {
        Ipv6Addr::from_bits(u128::from(number) << 64 | 1).into()
    }

    fn is_admitted(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Admitted(_))
    }

    #[test]
    fn each_client_has_a_limit_of_its_own() {
        let (limit, clients) = (limit(1, 2), Clients::new(4096));
        let now = Instant::now();
        for number in 0..100 {
            let admitted = (0..4).filter(|_| is_admitted(clients.count(&limit, client(number), now))).count();
            assert_eq!(admitted, 2, "client {number}");
        }
        let later = now + Duration::from_secs(1);
        assert!(is_admitted(clients.count(&limit, client(7), later)));
        assert!(!is_admitted(clients.count(&limit, client(7), later)));
    }

    /// A client that exceeds its limit stays over the limit, even if many other addresses send requests.
    #[test]
    fn a_crowd_of_addresses_resets_nobody() {
        let (limit, clients) = (limit(1, 5), Clients::new(64));
        let now = Instant::now();
        while is_admitted(clients.count(&limit, client(0), now)) {}
        for number in 1..100_000 {
            clients.count(&limit, client(number), now);
        }
        assert!(!is_admitted(clients.count(&limit, client(0), now)));
        // All entries of the table have used up their bursts, so it admits no further request.
        let admitted = (0..100_000).filter(|number| is_admitted(clients.count(&limit, client(*number), now)));
        assert_eq!(admitted.count(), 0, "all places are used up");
    }

    proptest::proptest! {
        /// A small table admits no more requests of a client than a table with room for all clients.
        #[test]
        fn a_small_table_is_never_more_generous(
            steps in proptest::collection::vec((0_u64..40, 0_u64..200), 1..400), burst in 1_u32..5,
        ) {
            let (limit, clients, mut all) = (limit(2, burst), Clients::new(16), HashMap::new());
            let mut now = clients.begun;
            for (number, pause_ms) in steps {
                now += Duration::from_millis(pause_ms);
                let expected: &mut u64 = all.entry(number).or_default();
                if is_admitted(clients.count(&limit, client(number), now)) {
                    let at = nanoseconds(now - clients.begun);
                    let (verdict, next) = limit.rate.decide(*expected, at);
                    proptest::prop_assert!(is_admitted(verdict));
                    *expected = next;
                }
            }
        }
    }
}
