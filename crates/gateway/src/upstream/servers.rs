//! The servers of a group, and the pick among them.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use caching::explain::Finding;
use parking_lot::Mutex;

use super::balance::{Lot, Seen, Turns, candidates, hash, mix, pick};
use super::endpoint::Endpoint;
use super::stats::ServerStats;
use crate::config::Balance;
use crate::trace::{Record, note};

/// The servers of a group.
pub(super) struct Servers {
    list: Vec<Server>,
    balance: Balance,
    turns: Mutex<Turns>,
    /// Counts picks; with the seed each makes another number of it.
    picks: AtomicU64,
    seed: u64,
}

/// A server as one group uses it.
pub(super) struct Server {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) weight: u32,
    identity: u64,
}

impl Servers {
    /// There is at least one.
    pub(super) fn new(list: Vec<Server>, balance: Balance) -> Self {
        Self {
            list,
            balance,
            turns: Mutex::default(),
            picks: AtomicU64::default(),
            seed: RandomState::new().hash_one(()),
        }
    }

    pub(super) fn list(&self) -> &[Server] {
        &self.list
    }

    /// The server that a request with this key goes to.
    pub(super) fn pick(&self, key: u64, tried: &[usize]) -> Option<usize> {
        // Most origins have one, and pay for no more.
        if let ([_], []) = (&self.list[..], tried) {
            return Some(0);
        }
        let candidates = candidates(self.list.iter().map(Server::seen), tried);
        let chance = mix(self.picks.fetch_add(1, Relaxed), self.seed);
        pick(self.balance, &candidates, &mut Lot { turns: &mut self.turns.lock(), chance, key })
    }

    /// Nothing is to be told where there is no choice.
    pub(super) fn note_pick(&self, server: usize, record: Option<&Arc<Record>>) {
        if self.list.len() == 1 {
            return;
        }
        note(record, || {
            let taking = self.list.iter().filter(|server| server.weight > 0).count();
            Finding::new("pick", format!("the request goes to {}", self.list[server].endpoint.label()), "")
                .with("balance", self.balance.name(), "")
                .with("servers that take requests", format!("{taking} of {}", self.list.len()), "")
        });
    }

    pub(super) fn stats(&self) -> Vec<ServerStats> {
        self.list.iter().map(Server::stats).collect()
    }
}

impl Server {
    pub(super) fn new(endpoint: Arc<Endpoint>, weight: u32) -> Self {
        Self { identity: hash(endpoint.label().as_bytes()), endpoint, weight }
    }

    fn seen(&self) -> Seen {
        Seen { identity: self.identity, weight: self.weight, in_flight: self.endpoint.work().in_flight() }
    }

    fn stats(&self) -> ServerStats {
        let work = self.endpoint.work();
        ServerStats {
            server: Arc::clone(self.endpoint.label()),
            requests: work.requests(),
            requests_in_flight: work.in_flight(),
        }
    }
}
