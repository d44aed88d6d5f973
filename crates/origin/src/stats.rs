//! Counts of one origin and its servers, kept in atomics and read as a plain snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::error::OriginError;

/// Counts of an origin at one moment. Totals only grow, and survive reloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// Connections opened.
    pub connections_opened: u64,
    /// Requests sent on a connection that had already carried another one.
    pub connections_reused: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// HTTP/1 connections kept idle now, including those that the origin has closed since.
    pub connections_idle: u64,
    /// Requests sent to the origin, without retries.
    pub requests: u64,
    /// Requests in flight now that wait for the origin.
    pub requests_in_flight: u64,
    /// Requests in flight whose content arrives at the pace of a client.
    pub uploads_in_flight: u64,
    /// Requests in flight whose response leaves at the pace of a client.
    pub deliveries_in_flight: u64,
    /// Tunnels open now.
    pub tunnels_open: u64,
    /// Requests in the queue now.
    pub requests_queued: u64,
    /// Retries, on another server or on a new connection.
    pub retries: u64,
    /// Requests not sent again because there were too many retries.
    pub retries_over_budget: u64,
    /// Failures by [`OriginError::reason`].
    pub errors: BTreeMap<&'static str, u64>,
    /// Circuit breaker, if there is one.
    pub breaker: Option<BreakerStats>,
    /// Counts of each server, in the order of the configuration.
    pub servers: Vec<ServerStats>,
}

/// A circuit breaker at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerStats {
    /// Present state.
    pub state: breaker::State,
    /// Number of times it has opened.
    pub opened: u64,
}

/// Counts of a server at one moment. They survive reloads that keep the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStats {
    /// URL of the server.
    pub server: Arc<str>,
    /// Requests sent to it, retries included.
    pub requests: u64,
    /// Requests whose response has not ended.
    pub requests_in_flight: u64,
    /// Requests without a response from it, by [`OriginError::reason`], even if another server answered them later.
    pub failures: BTreeMap<&'static str, u64>,
    /// Number of ejections.
    pub ejections: u64,
    /// Successful health checks.
    pub checks_passed: u64,
    /// Failed health checks.
    pub checks_failed: u64,
    /// Whether the server gets requests.
    pub state: ServerState,
}

/// Whether a server gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Gets its whole share.
    Up,
    /// Gets a part of its share, because it returned a short while ago.
    SlowStart,
    /// Gets no requests for a time, because of failures.
    Ejected,
    /// Gets no requests, because it fails its checks.
    Unhealthy,
    /// Gets no requests, because its weight is 0.
    Drained,
}

impl ServerState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Up, Self::SlowStart, Self::Ejected, Self::Unhealthy, Self::Drained];

    /// Returns the name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::SlowStart => "slow_start",
            Self::Ejected => "ejected",
            Self::Unhealthy => "unhealthy",
            Self::Drained => "drained",
        }
    }
}

/// Current and past work of a server.
#[derive(Debug, Default)]
pub(super) struct Work {
    requests: AtomicU64,
    pub(super) in_flight: AtomicU64,
    failures: Mutex<BTreeMap<&'static str, u64>>,
    pub(super) ejections: AtomicU64,
    pub(super) checks_passed: AtomicU64,
    pub(super) checks_failed: AtomicU64,
}

/// A request at a server, counted until it is dropped.
#[derive(Debug)]
pub(super) struct Working(Arc<Work>);

impl Work {
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn count_failure(&self, error: &OriginError) {
        *self.failures.lock().entry(error.reason()).or_default() += 1;
    }

    pub(super) fn failures(&self) -> BTreeMap<&'static str, u64> {
        self.failures.lock().clone()
    }
}

impl Working {
    pub(super) fn begin(work: &Arc<Work>) -> Self {
        work.requests.fetch_add(1, Relaxed);
        work.in_flight.fetch_add(1, Relaxed);
        Self(Arc::clone(work))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) connections_opened: AtomicU64,
    pub(super) connections_reused: AtomicU64,
    pub(super) connections_open: AtomicU64,
    pub(super) connections_idle: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) requests_in_flight: AtomicU64,
    pub(super) uploads_in_flight: AtomicU64,
    pub(super) deliveries_in_flight: AtomicU64,
    pub(super) tunnels_open: AtomicU64,
    pub(super) requests_queued: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) retries_over_budget: AtomicU64,
    pub(super) breaker_opened: AtomicU64,
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    /// Counts an opened connection, and keeps it counted as open while the value lives.
    pub(super) fn opened(self: &Arc<Self>) -> Gauged {
        self.connections_opened.fetch_add(1, Relaxed);
        Gauged::new(self, |counters| &counters.connections_open)
    }

    pub(super) fn count_error(&self, error: &OriginError) {
        *self.errors.lock().entry(error.reason()).or_default() += 1;
    }

    pub(super) fn snapshot(&self) -> OriginStats {
        OriginStats {
            connections_opened: self.connections_opened.load(Relaxed),
            connections_reused: self.connections_reused.load(Relaxed),
            connections_open: self.connections_open.load(Relaxed),
            connections_idle: self.connections_idle.load(Relaxed),
            requests: self.requests.load(Relaxed),
            requests_in_flight: self.requests_in_flight.load(Relaxed),
            uploads_in_flight: self.uploads_in_flight.load(Relaxed),
            deliveries_in_flight: self.deliveries_in_flight.load(Relaxed),
            tunnels_open: self.tunnels_open.load(Relaxed),
            requests_queued: self.requests_queued.load(Relaxed),
            retries: self.retries.load(Relaxed),
            retries_over_budget: self.retries_over_budget.load(Relaxed),
            errors: self.errors.lock().clone(),
            breaker: None,
            servers: Vec::new(),
        }
    }
}

/// Increments a gauge, and decrements it on drop.
#[derive(Debug)]
pub(super) struct Gauged {
    counters: Arc<Counters>,
    gauge: fn(&Counters) -> &AtomicU64,
}

impl Gauged {
    pub(super) fn new(counters: &Arc<Counters>, gauge: fn(&Counters) -> &AtomicU64) -> Self {
        gauge(counters).fetch_add(1, Relaxed);
        Self { counters: Arc::clone(counters), gauge }
    }
}

impl Drop for Gauged {
    fn drop(&mut self) {
        (self.gauge)(&self.counters).fetch_sub(1, Relaxed);
    }
}
