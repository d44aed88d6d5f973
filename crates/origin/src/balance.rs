//! The choice of a server: a function of the state of the servers and of a turn, a number or a key.

use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::settings::Balance;

/// State of a server at the moment of a pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Hash that identifies the server, the same in every process and after every reload.
    pub(super) identity: u64,
    /// Share of the requests; a server with 0 gets none.
    pub(super) weight: u32,
    pub(super) in_flight: u64,
    /// Whether it accepts requests, as far as is known.
    pub(super) presence: Presence,
}

/// Whether a server gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    In,
    /// Ejected, or unhealthy by its checks.
    Out,
}

/// A server that may be picked for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Index among the servers of the group.
    pub(super) server: usize,
    seen: Seen,
}

pub(super) type Candidates = SmallVec<[Candidate; 8]>;

/// Inputs of a pick other than the servers.
#[derive(Debug)]
pub(super) struct Lot<'a> {
    /// Credit of each server, for round robin.
    pub(super) turns: &'a mut Turns,
    /// A different number for each request.
    pub(super) chance: u64,
    /// A hash; equal keys get the same server.
    pub(super) key: u64,
}

/// State of smooth weighted round robin: the credit of each server towards its next turn.
#[derive(Debug, Default)]
pub(super) struct Turns(Vec<i64>);

/// Returns the servers that a request may go to: those that accept requests, without the ones already tried. If all are out,
/// all are candidates: their state may be wrong, and a request without a server certainly fails.
pub(super) fn candidates(seen: impl Iterator<Item = Seen>, tried: &[usize]) -> Candidates {
    let all = seen.enumerate().map(|(server, seen)| Candidate { server, seen });
    let mut candidates: Candidates = all.filter(|candidate| candidate.seen.weight > 0).collect();
    if candidates.iter().any(|candidate| candidate.seen.presence == Presence::In) {
        candidates.retain(|candidate| candidate.seen.presence == Presence::In);
    }
    candidates.retain(|candidate| !tried.contains(&candidate.server));
    candidates
}

/// Picks a server; `None` if there is no candidate.
pub(super) fn pick(balance: Balance, candidates: &[Candidate], lot: &mut Lot<'_>) -> Option<usize> {
    match balance {
        Balance::RoundRobin => lot.turns.next(candidates),
        Balance::LeastRequests => lot.turns.next(&least_busy(candidates)),
        Balance::PowerOfTwo => less_busy_of_two(candidates, lot.chance),
        Balance::ConsistentHash => owner(candidates, lot.key),
    }
}

/// Hashes a key, with the same result in every process.
pub fn hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

impl Turns {
    /// Adds its weight to the credit of each server; the server with the most credit is next, and pays the sum of all weights.
    /// This spreads the turns of a heavy server over the round.
    fn next(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let servers = candidates.iter().map(|candidate| candidate.server + 1).max()?;
        self.0.resize(self.0.len().max(servers), 0);
        let mut best: Option<usize> = None;
        let mut total = 0;
        for Candidate { server, seen } in candidates {
            self.0[*server] += i64::from(seen.weight);
            total += i64::from(seen.weight);
            if best.is_none_or(|best| self.0[*server] > self.0[best]) {
                best = Some(*server);
            }
        }
        self.0[best?] -= total;
        best
    }
}

/// Returns the servers with the fewest requests in flight per weight.
fn least_busy(candidates: &[Candidate]) -> Candidates {
    let is_least = |one: &&Candidate| !candidates.iter().any(|other| other.is_less_busy_than(one));
    candidates.iter().filter(is_least).copied().collect()
}

/// Draws two different servers at random by weight, and returns the one with fewer requests in flight per weight. If both are
/// equal, returns the first, so that weights count when nothing is in flight.
fn less_busy_of_two(candidates: &[Candidate], chance: u64) -> Option<usize> {
    let first = by_weight(candidates, mix(chance, 1))?;
    let others: Candidates =
        candidates.iter().filter(|candidate| candidate.server != first.server).copied().collect();
    match by_weight(&others, mix(chance, 2)) {
        Some(second) if second.is_less_busy_than(first) => Some(second.server),
        _ => Some(first.server),
    }
}

fn by_weight(candidates: &[Candidate], chance: u64) -> Option<&Candidate> {
    let total: u64 = candidates.iter().map(|candidate| u64::from(candidate.seen.weight)).sum();
    let mut left = chance.checked_rem(total)?;
    candidates.iter().find(|candidate| {
        let weight = u64::from(candidate.seen.weight);
        let is_it = left < weight;
        left = left.saturating_sub(weight);
        is_it
    })
}

/// Rendezvous hashing with weights: each server draws a number for the key, and the highest wins. If a server is removed, its
/// keys move to their second choices, and all other keys stay.
fn owner(candidates: &[Candidate], key: u64) -> Option<usize> {
    let draws = candidates.iter().map(|candidate| (draw(candidate.seen, key), candidate.server));
    draws.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, server)| server)
}

/// Draws an exponentially distributed number by weight, so that a server's share of the keys equals its share of the total
/// weight.
fn draw(seen: Seen, key: u64) -> f64 {
    let uniform = u32::try_from(mix(key, seen.identity) >> 32).expect("half of 64 bits are 32");
    let uniform = (f64::from(uniform) + 0.5) / (f64::from(u32::MAX) + 1.0);
    f64::from(seen.weight) / -uniform.ln()
}

/// Mixes two numbers into one that depends on every bit of both (the finaliser of SplitMix64).
pub(super) fn mix(one: u64, other: u64) -> u64 {
    let mut mixed = one ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Candidate {
    /// Compares requests in flight per unit of weight, without rounding.
    fn is_less_busy_than(&self, other: &Self) -> bool {
        let load = |one: &Seen, other: &Seen| u128::from(one.in_flight) * u128::from(other.weight);
        load(&self.seen, &other.seen) < load(&other.seen, &self.seen)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn servers(weights: &[u32], in_flight: &[u64]) -> Vec<Seen> {
        let in_flight = in_flight.iter().copied().chain(std::iter::repeat(0));
        let of = |(server, (weight, in_flight)): (usize, (&u32, u64))| Seen {
            identity: hash(format!("http://server{server}:80").as_bytes()),
            weight: *weight,
            in_flight,
            presence: Presence::In,
        };
        weights.iter().zip(in_flight).enumerate().map(of).collect()
    }

    fn picks(balance: Balance, servers: &[Seen], count: u64) -> Vec<usize> {
        let mut turns = Turns::default();
        let mut one = |number| {
            let mut lot = Lot { turns: &mut turns, chance: mix(number, 7), key: hash(&number.to_le_bytes()) };
            let candidates = candidates(servers.iter().copied(), &[]);
            pick(balance, &candidates, &mut lot).expect("somebody takes requests")
        };
        (0..count).map(&mut one).collect()
    }

    fn counts(picks: &[usize], servers: usize) -> Vec<usize> {
        (0..servers).map(|server| picks.iter().filter(|picked| **picked == server).count()).collect()
    }

    #[test]
    fn turns_are_spread_over_the_round() {
        let check = |weights: &[u32], expected: &[usize]| {
            let count = expected.len() as u64;
            assert_eq!(picks(Balance::RoundRobin, &servers(weights, &[]), count), expected, "{weights:?}");
        };
        check(&[1], &[0, 0, 0]);
        check(&[1, 1, 1], &[0, 1, 2, 0, 1, 2]);
        check(&[5, 1, 1], &[0, 0, 1, 0, 2, 0, 0]);
        check(&[2, 1], &[0, 1, 0, 0, 1, 0]);
        check(&[1, 0, 1], &[0, 2, 0, 2]);
    }

    /// The shares are within a tenth of the weights.
    #[test]
    fn every_method_keeps_to_the_weights_when_nothing_is_in_flight() {
        let check = |balance, weights: &[u32]| {
            let total: u32 = weights.iter().sum();
            let picks = picks(balance, &servers(weights, &[]), 20_000);
            for (count, weight) in counts(&picks, weights.len()).into_iter().zip(weights) {
                let expected = 20_000 * *weight as usize / total as usize;
                assert!(
                    count.abs_diff(expected) <= expected / 10,
                    "{balance:?} {weights:?}: {count} {expected}"
                );
            }
        };
        for balance in
            [Balance::RoundRobin, Balance::LeastRequests, Balance::PowerOfTwo, Balance::ConsistentHash]
        {
            for weights in [&[1, 1][..], &[3, 2, 1], &[1, 0, 4], &[100, 100, 50]] {
                check(balance, weights);
            }
        }
    }

    #[test]
    fn busy_servers_are_spared() {
        let check = |balance, weights: &[u32], in_flight: &[u64], expected: &[usize]| {
            let picks = picks(balance, &servers(weights, in_flight), 300);
            let counts = counts(&picks, weights.len());
            let is_picked: Vec<_> = (0..weights.len()).filter(|server| counts[*server] > 0).collect();
            assert_eq!(is_picked, expected, "{balance:?} {weights:?} {in_flight:?}");
        };
        check(Balance::LeastRequests, &[1, 1, 1], &[2, 1, 1], &[1, 2]);
        check(Balance::LeastRequests, &[2, 1], &[3, 2], &[0]);
        check(Balance::LeastRequests, &[2, 1], &[4, 2], &[0, 1]);
        check(Balance::LeastRequests, &[1, 0], &[9, 0], &[0]);
        // The busiest server loses against every other one.
        check(Balance::PowerOfTwo, &[1, 1, 1], &[2, 1, 0], &[1, 2]);
        check(Balance::PowerOfTwo, &[1, 1], &[1, 0], &[1]);
        check(Balance::PowerOfTwo, &[1], &[5], &[0]);
    }

    #[test]
    fn where_a_request_was_it_does_not_go_again() {
        let servers = servers(&[1, 1, 0, 1], &[]);
        let check = |tried: &[usize], expected: &[usize]| {
            let candidates = candidates(servers.iter().copied(), tried);
            let found: Vec<_> = candidates.iter().map(|candidate| candidate.server).collect();
            assert_eq!(found, expected, "{tried:?}");
        };
        check(&[], &[0, 1, 3]);
        check(&[1], &[0, 3]);
        check(&[3, 0], &[1]);
        check(&[0, 1, 3], &[]);
        for balance in Balance::ALL {
            let mut lot = Lot { turns: &mut Turns::default(), chance: 0, key: 0 };
            assert_eq!(pick(balance, &[], &mut lot), None, "{balance:?}");
        }
    }

    #[test]
    fn servers_that_are_out_get_nothing_unless_all_are() {
        let check = |out: &[usize], tried: &[usize], expected: &[usize]| {
            let mut servers = servers(&[1, 1, 1, 0], &[]);
            out.iter().for_each(|server| servers[*server].presence = Presence::Out);
            let candidates = candidates(servers.iter().copied(), tried);
            let found: Vec<_> = candidates.iter().map(|candidate| candidate.server).collect();
            assert_eq!(found, expected, "{out:?} {tried:?}");
        };
        check(&[], &[], &[0, 1, 2]);
        check(&[1], &[], &[0, 2]);
        check(&[1], &[0], &[2]);
        check(&[1, 2], &[0], &[]);
        check(&[0, 1, 2], &[], &[0, 1, 2]);
        check(&[0, 1, 2], &[1], &[0, 2]);
    }

    proptest! {
        /// Removing any server moves only its own keys.
        #[test]
        fn a_server_that_goes_moves_its_own_keys_alone(
            weights in proptest::collection::vec(1_u32..20, 2..9),
            gone in 0_usize..9,
            keys in proptest::collection::vec(any::<u64>(), 1..50),
        ) {
            let gone = gone % weights.len();
            let servers = servers(&weights, &[]);
            let all = candidates(servers.iter().copied(), &[]);
            let rest = candidates(servers.iter().copied(), &[gone]);
            for key in keys {
                let (before, after) = (owner(&all, key), owner(&rest, key));
                prop_assert!(before == after || before == Some(gone));
                prop_assert_ne!(after, Some(gone));
            }
        }
    }
}
