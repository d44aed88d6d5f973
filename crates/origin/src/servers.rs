//! The servers of a group, and the pick among them.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use caching::explain::Finding;
use message::explain_record::{Record, note};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::balance::{Candidates, Lot, Presence, Seen, Turns, candidates, hash, mix, pick};
use super::body::{Ending, Watch};
use super::ejection::{Leave, Verdict, leave, share_percent};
use super::endpoint::Endpoint;
use super::response::OriginResponse;
use super::stats::{ServerState, ServerStats};
use super::timing::Awaited;
use crate::settings::{Balance, EjectionConfig, OriginConfig, ServerConfig};

/// The servers of a group.
pub(super) struct Servers {
    list: Vec<Server>,
    balance: Balance,
    turns: Mutex<Turns>,
    /// Number of picks; mixed with the seed, each pick gives a different number.
    picks: AtomicU64,
    seed: u64,
    slow_start: Duration,
    ejection: Option<Ejection>,
}

/// Ejection rules of a group, and the lock for applying them.
struct Ejection {
    config: EjectionConfig,
    /// Held while deciding whether one more server can be spared, so that two servers aren't ejected at the same time.
    leaving: Mutex<()>,
    origin: String,
}

/// A server as one group uses it.
pub(super) struct Server {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) weight: u32,
    identity: u64,
}

impl Servers {
    /// Creates a group of at least one server.
    pub(super) fn new(list: Vec<Server>, config: &OriginConfig) -> Self {
        // The only server is never ejected.
        let ejection = config.ejection.clone().filter(|_| list.len() > 1);
        let of = |rules| Ejection { config: rules, leaving: Mutex::default(), origin: config.name.clone() };
        Self {
            list,
            balance: config.balance,
            slow_start: config.slow_start,
            ejection: ejection.map(of),
            turns: Mutex::default(),
            picks: AtomicU64::default(),
            seed: RandomState::new().hash_one(()),
        }
    }

    pub(super) fn list(&self) -> &[Server] {
        &self.list
    }

    /// Returns whether all of these servers are in the group, even with different settings for connections to them.
    pub(super) fn are_known(&self, servers: &[ServerConfig]) -> bool {
        let is_known = |server: &ServerConfig| {
            self.list.iter().any(|known| known.endpoint.known_of(&server.endpoint).is_some())
        };
        servers.iter().all(is_known)
    }

    /// Picks the server for a request with this key.
    pub(super) fn pick(&self, key: u64, tried: &[usize], now: Instant) -> Option<usize> {
        // Fast path: most origins have one server.
        if let ([_], []) = (&self.list[..], tried) {
            return Some(0);
        }
        let candidates = self.candidates(tried, now);
        let chance = mix(self.picks.fetch_add(1, Relaxed), self.seed);
        pick(self.balance, &candidates, &mut Lot { turns: &mut self.turns.lock(), chance, key })
    }

    fn candidates(&self, tried: &[usize], now: Instant) -> Candidates {
        candidates(self.list.iter().map(|server| server.seen(self.slow_start, now)), tried)
    }

    /// Records that a server answered. The answer counts as a success only once its whole body has arrived, or as much of it as
    /// is needed. A failure status is ignored if the request was waiting for the client's content: a server that gives up
    /// waiting may answer with any status.
    pub(super) fn note_answer(
        self: &Arc<Self>,
        (server, awaited): (usize, Awaited),
        response: &mut OriginResponse,
    ) {
        let Some(ejection) = &self.ejection else { return };
        let status = response.status.as_u16();
        if ejection.config.statuses.contains(status) {
            if awaited == Awaited::Client {
                return;
            }
            let why = format!("it answered {status}");
            self.note_verdict((server, Verdict::Failure), &why, Instant::now());
        } else if response.body.is_over() {
            self.note_verdict((server, Verdict::Success), &"", Instant::now());
        } else {
            let servers = Arc::clone(self);
            response.body.watch(Watch::new(move |ending| {
                let verdict = match ending {
                    Ending::Fine => Verdict::Success,
                    Ending::Broken => Verdict::Failure,
                    Ending::Late => Verdict::Silent,
                };
                servers.note_verdict((server, verdict), &"its response was cut short", Instant::now());
            }));
        }
    }

    /// Records the verdict on a server, and its reason.
    pub(super) fn note_verdict(
        &self,
        (server, verdict): (usize, Verdict),
        why: &dyn fmt::Display,
        now: Instant,
    ) {
        let Some(ejection) = &self.ejection else { return };
        let (_leaving, leave) = match verdict {
            Verdict::Failure => (Some(ejection.leaving.lock()), self.leave(&ejection.config, now)),
            Verdict::Success | Verdict::Silent => (None, Leave::Refused),
        };
        let endpoint = &self.list[server].endpoint;
        let ejected = endpoint.known.standing.lock().note(verdict, &ejection.config, leave, now);
        if let Some(time) = ejected {
            endpoint.known.work.ejections.fetch_add(1, Relaxed);
            let (origin, server) = (&ejection.origin, &endpoint.label);
            tracing::warn!(%origin, %server, ?time, last_failure = %why, "a server is ejected");
        }
    }

    /// Returns whether one more server can be spared.
    fn leave(&self, config: &EjectionConfig, now: Instant) -> Leave {
        let taking = || self.list.iter().filter(|server| server.weight > 0);
        let out = taking().filter(|server| server.presence(now) == Presence::Out).count();
        leave(taking().count(), out, config.servers_percent_max)
    }

    /// Records the pick for `larder explain`, unless there is only one server.
    pub(super) fn note_pick(&self, server: usize, now: Instant, record: Option<&Arc<Record>>) {
        if self.list.len() == 1 {
            return;
        }
        note(record, || {
            let taking = self.candidates(&[], now).len();
            Finding::new("pick", format!("the request goes to {}", self.list[server].endpoint.label), "")
                .with("balance", self.balance.name(), "")
                .with("servers that accept requests", format!("{taking} of {}", self.list.len()), "")
        });
    }

    pub(super) fn stats(&self) -> Vec<ServerStats> {
        let now = Instant::now();
        self.list.iter().map(|server| server.stats(self.slow_start, now)).collect()
    }
}

impl Server {
    pub(super) fn new(endpoint: Arc<Endpoint>, weight: u32) -> Self {
        Self { identity: hash(endpoint.label.as_bytes()), endpoint, weight }
    }

    fn seen(&self, slow_start: Duration, now: Instant) -> Seen {
        Seen {
            identity: self.identity,
            weight: self.weight * self.share_percent(slow_start, now),
            in_flight: self.endpoint.known.work.in_flight(),
            presence: self.presence(now),
        }
    }

    fn presence(&self, now: Instant) -> Presence {
        let is_in = self.is_healthy() && self.endpoint.known.standing.lock().is_in(now);
        if is_in { Presence::In } else { Presence::Out }
    }

    fn is_healthy(&self) -> bool {
        self.endpoint.known.checked.lock().is_healthy()
    }

    fn share_percent(&self, slow_start: Duration, now: Instant) -> u32 {
        let ejected = self.endpoint.known.standing.lock().back_since(now);
        let unhealthy = self.endpoint.known.checked.lock().back_since();
        share_percent(ejected.max(unhealthy), slow_start, now)
    }

    fn state(&self, slow_start: Duration, now: Instant) -> ServerState {
        match self.presence(now) {
            _ if self.weight == 0 => ServerState::Drained,
            Presence::Out if !self.is_healthy() => ServerState::Unhealthy,
            Presence::Out => ServerState::Ejected,
            Presence::In if self.share_percent(slow_start, now) < 100 => ServerState::SlowStart,
            Presence::In => ServerState::Up,
        }
    }

    fn stats(&self, slow_start: Duration, now: Instant) -> ServerStats {
        let work = &self.endpoint.known.work;
        ServerStats {
            server: Arc::clone(&self.endpoint.label),
            requests: work.requests(),
            requests_in_flight: work.in_flight(),
            failures: work.failures(),
            ejections: work.ejections.load(Relaxed),
            checks_passed: work.checks_passed.load(Relaxed),
            checks_failed: work.checks_failed.load(Relaxed),
            state: self.state(slow_start, now),
        }
    }
}
