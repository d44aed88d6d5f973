//! Limits on concurrent exchanges with an origin, and the bounded queues in front of them. All workers share them.
//!
//! | line | members |
//! |---|---|
//! | places | requests in flight: the origin has to act next |
//! | uploads | exchanges whose request content arrives at the pace of a client |
//! | deliveries | exchanges whose response content leaves at the pace of a client |
//! | tunnels | connections after a 101 response |
//!
//! An exchange starts in `places` or `uploads`, and moves to `deliveries` if its client does not keep up. So slow clients don't
//! occupy permits that requests to the origin need.
//!
//! Each line has a lock, and so does each [`Permit`]; neither lock is held while the other is acquired.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use message::client::Client;
use message::timeline::{Stage, Timeline, measure};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::error::OriginError;
use super::fair_queue::{FairQueue, Obstacle, Rules};
use super::stats::{Counters, Gauged};
use crate::settings::AdmissionConfig;

#[derive(Debug)]
pub(super) struct Admission {
    places: Arc<Gate>,
    uploads: Arc<Gate>,
    deliveries: Arc<Gate>,
    tunnels: Arc<Gate>,
    config: AdmissionConfig,
}

/// The line that a request joins first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// The whole request has arrived.
    Permit,
    /// The rest of the content has not arrived from the client.
    Upload,
    /// The whole request has arrived, and it requests an upgrade.
    Tunnel,
}

/// Admission of an exchange; released on drop.
#[derive(Debug)]
pub(super) struct Permit {
    held: Mutex<Held>,
    deliveries: Arc<Gate>,
    /// A second entry, for a request that may become a tunnel.
    tunnel: Mutex<Option<Held>>,
}

/// A line with its gauge.
#[derive(Debug)]
struct Gate {
    line: Mutex<FairQueue<oneshot::Sender<Held>>>,
    /// Notified when a request starts to wait: an exchange that only waits for its client may have to end.
    wanted: Notify,
    counters: Arc<Counters>,
    gauge: fn(&Counters) -> &AtomicU64,
    limit: Limit,
}

/// Limit that a gate enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Places,
    Uploads,
    Deliveries,
    Tunnels,
}

/// One entry in a line; released on drop.
#[derive(Debug)]
pub(super) struct Held {
    gate: Arc<Gate>,
    client: Option<Client>,
    _gauged: Gauged,
}

impl Admission {
    pub(super) fn new(config: AdmissionConfig, counters: &Arc<Counters>) -> Self {
        let gate = |limit: Limit, gauge| {
            let line = Mutex::new(FairQueue::new(limit.rules(&config)));
            let counters = Arc::clone(counters);
            Arc::new(Gate { line, wanted: Notify::new(), counters, gauge, limit })
        };
        Self {
            places: gate(Limit::Places, |counters| &counters.requests_in_flight),
            uploads: gate(Limit::Uploads, |counters| &counters.uploads_in_flight),
            deliveries: gate(Limit::Deliveries, |counters| &counters.deliveries_in_flight),
            tunnels: gate(Limit::Tunnels, |counters| &counters.tunnels_open),
            config,
        }
    }

    /// Returns an admission with other limits, which apply once they are [in force](Self::take_effect). Exchanges in flight still
    /// count, and waiting requests keep their turn.
    pub(super) fn under(&self, config: AdmissionConfig) -> Self {
        let [places, uploads, deliveries, tunnels] = self.gates().map(Arc::clone);
        Self { places, uploads, deliveries, tunnels, config }
    }

    /// Applies the limits of this configuration.
    pub(super) fn take_effect(&self) {
        self.gates().into_iter().for_each(|gate| gate.change_rules(gate.limit.rules(&self.config)));
    }

    fn gates(&self) -> [&Arc<Gate>; 4] {
        [&self.places, &self.uploads, &self.deliveries, &self.tunnels]
    }

    /// Enters, or waits in the queue and records the wait in the timeline.
    pub(super) async fn enter(
        &self,
        entrance: Entrance,
        client: Option<Client>,
        timeline: Option<&Arc<Timeline>>,
        total_at: Option<Instant>,
    ) -> Result<Arc<Permit>, OriginError> {
        let tunnel = match entrance {
            Entrance::Tunnel => {
                let tunnel = self.tunnels.enter(client);
                Some(tunnel.ok_or_else(|| self.tunnels.refusal(client))?)
            }
            Entrance::Permit | Entrance::Upload => None,
        };
        let gate = match entrance {
            Entrance::Permit | Entrance::Tunnel => &self.places,
            Entrance::Upload => &self.uploads,
        };
        let held = match gate.enter(client) {
            Some(held) => held,
            // On the heap, so that the future stays small: most exchanges don't have to wait.
            None => {
                let _queueing = measure(timeline, Stage::Queue);
                Box::pin(self.queue(gate, client, total_at)).await?
            }
        };
        let deliveries = Arc::clone(&self.deliveries);
        Ok(Arc::new(Permit { held: Mutex::new(held), deliveries, tunnel: Mutex::new(tunnel) }))
    }

    async fn queue(
        &self,
        gate: &Arc<Gate>,
        client: Option<Client>,
        total_at: Option<Instant>,
    ) -> Result<Held, OriginError> {
        let queue_at = Instant::now() + self.config.queue_timeout;
        let mut ticket = gate.queue(client)?;
        match total_at {
            Some(total_at) if total_at < queue_at => {
                timeout_at(total_at, ticket.called()).await.map_err(|_| OriginError::TotalTimeout)
            }
            _ => timeout_at(queue_at, ticket.called()).await.map_err(|_| ticket.late()),
        }
    }

    /// Resolves when a queued request needs a permit that this client holds.
    pub(super) async fn permit_wanted(&self, client: Option<Client>) {
        loop {
            let wanted = self.places.wanted.notified();
            tokio::pin!(wanted);
            wanted.as_mut().enable();
            if self.places.line.lock().wants_from(client) {
                return;
            }
            wanted.await;
        }
    }

    /// Wakes the next holder that may give up its permit, if a request is still queued.
    pub(super) fn pass_on(&self, client: Option<Client>) {
        if self.places.line.lock().wants_from(client) {
            self.places.wanted.notify_one();
        }
    }
}

impl Permit {
    /// Takes the tunnel entry, which replaces the entry of the exchange.
    pub(super) fn take_tunnel(&self) -> Option<Held> {
        self.tunnel.lock().take()
    }

    /// Moves the exchange to the deliveries, because its client does not keep up. Returns whether it may continue at that pace.
    /// If not, it still occupies a permit that others need.
    pub(super) fn wait_for_client(&self) -> Pacing {
        let mut held = self.held.lock();
        if Arc::ptr_eq(&held.gate, &self.deliveries) {
            return Pacing::Allowed;
        }
        let client = held.client;
        let Some(delivery) = self.deliveries.enter(client) else { return Pacing::Exceeded };
        let before = std::mem::replace(&mut *held, delivery);
        drop(held);
        drop(before);
        Pacing::Allowed
    }
}

/// Whether a response may be sent at the pace of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The exchange counts as a delivery.
    Allowed,
    /// The deliveries are full, or the client has used up its share of them.
    Exceeded,
}

impl Limit {
    fn rules(self, config: &AdmissionConfig) -> Rules {
        let (places_max, queue_max) = match self {
            Self::Places => (config.requests_in_flight_max, config.queue_max),
            Self::Uploads => (config.transfers_max, config.queue_max),
            Self::Deliveries => (config.transfers_max, 0),
            Self::Tunnels => (config.tunnels_max, 0),
        };
        Rules { places_max, queue_max, client_share_percent: config.client_share_percent }
    }
}

impl Gate {
    fn change_rules(self: &Arc<Self>, rules: Rules) {
        let called = self.line.lock().change_rules(rules);
        called.into_iter().for_each(|(client, call)| self.call(client, call));
    }

    /// Hands a permit that the line already counts to the request that waited for it.
    fn call(self: &Arc<Self>, client: Option<Client>, call: oneshot::Sender<Held>) {
        // If the receiver has just been dropped, the permit is dropped too, which releases it.
        drop(call.send(self.held(client)));
    }

    fn enter(self: &Arc<Self>, client: Option<Client>) -> Option<Held> {
        self.line.lock().enter(client).ok()?;
        Some(self.held(client))
    }

    /// Wraps an entry that the line already counts.
    fn held(self: &Arc<Self>, client: Option<Client>) -> Held {
        Held { gate: Arc::clone(self), client, _gauged: Gauged::new(&self.counters, self.gauge) }
    }

    fn queue(self: &Arc<Self>, client: Option<Client>) -> Result<Ticket, OriginError> {
        let (call, called) = oneshot::channel();
        let queued = {
            let mut line = self.line.lock();
            // A permit may have become free meanwhile.
            match line.enter(client) {
                Ok(()) => Err(call),
                Err(_) => Ok(line.queue(client, call)),
            }
        };
        let number = match queued {
            Ok(Ok(number)) => Some(number),
            Ok(Err(Obstacle::Full)) => return Err(OriginError::QueueFull),
            Ok(Err(Obstacle::ClientShare)) => return Err(OriginError::ClientShare),
            Err(call) => {
                self.call(client, call);
                None
            }
        };
        self.wanted.notify_one();
        let gauged = Gauged::new(&self.counters, |counters| &counters.requests_queued);
        Ok(Ticket { gate: Arc::clone(self), client, number, called, _gauged: gauged })
    }

    /// Returns the error for a client that gets no permit.
    fn refusal(&self, client: Option<Client>) -> OriginError {
        match (self.line.lock().obstacle(client), self.limit) {
            (Some(Obstacle::ClientShare), _) => OriginError::ClientShare,
            (_, Limit::Places) => OriginError::QueueTimeout,
            (_, Limit::Uploads | Limit::Deliveries) => OriginError::TransfersFull,
            (_, Limit::Tunnels) => OriginError::TunnelsFull,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let next = self.gate.line.lock().leave(self.client);
        if let Some((client, call)) = next {
            self.gate.call(client, call);
        }
    }
}

/// A position in a queue; released on drop, even if the waiting request is cancelled.
struct Ticket {
    gate: Arc<Gate>,
    client: Option<Client>,
    number: Option<u64>,
    called: oneshot::Receiver<Held>,
    _gauged: Gauged,
}

impl Ticket {
    async fn called(&mut self) -> Held {
        (&mut self.called).await.expect("a line keeps each waiter until it calls")
    }

    fn late(&self) -> OriginError {
        self.gate.refusal(self.client)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let given_up = self.gate.line.lock().give_up(number);
            drop(given_up);
        }
    }
}
