//! Several addresses of one master, the nearest first.
//!
//! The next endpoint is tried after each failure. While another one than the first is used, the nearer ones are probed, and the connection
//! moves back to one of them that has worked for a while. Endpoints must lead to the same data: an endpoint other than the last one is used
//! only if the log there has the id that is known here, since two masters are never one store. Behind the last one, the log may be new: a
//! server that has lost its data is still the same store.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::cmd;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::heartbeat::{Beat, Role};
use super::log::LastSeen;
use super::log_bytes::{HEADER_BYTES, Header};
use super::names::Names;
use super::reply;
use super::settings::RemoteSettings;
use super::wire::{Connector, Redirections, Wire, with_causes};
use crate::backing::BackingError;

/// Endpoints of a store.
pub(super) struct Endpoints {
    connectors: Vec<Connector>,
    current: watch::Sender<usize>,
    names: Names,
    log_seen: Arc<LastSeen>,
    return_after: Duration,
    /// Last endpoint that was used.
    used: Mutex<Option<Connector>>,
    /// Last reason why a nearer endpoint isn't used, logged once.
    refusal: Mutex<Option<Arc<str>>>,
}

impl Endpoints {
    pub(super) fn new(
        settings: &RemoteSettings,
        connectors: Vec<Connector>,
        log_seen: Arc<LastSeen>,
    ) -> Self {
        Self {
            connectors,
            current: watch::channel(0).0,
            names: Names::new(&settings.prefix),
            log_seen,
            return_after: settings.return_after,
            used: Mutex::default(),
            refusal: Mutex::default(),
        }
    }

    pub(super) fn current(&self) -> &Connector {
        &self.connectors[*self.current.borrow()]
    }

    /// Returns the first endpoint to which a connection can be opened.
    pub(super) async fn find_once(&self) -> &Connector {
        for connector in &self.connectors {
            if open(connector).await.is_ok() {
                return connector;
            }
        }
        self.current()
    }

    /// Chooses the next endpoint after a failure of this one.
    pub(super) fn failed(&self, connector: &Connector) {
        self.current.send_if_modified(|current| {
            let is_current = self.connectors[*current].is_same(connector);
            if is_current {
                *current = (*current + 1) % self.connectors.len();
            }
            is_current
        });
    }

    /// Waits until another endpoint is to be used.
    pub(super) async fn moved(&self, from: &Connector) {
        let is_another = |current: &usize| !self.connectors[*current].is_same(from);
        // The sender lives as long as this value.
        let _ = self.current.subscribe().wait_for(is_another).await;
    }

    /// Returns to nearer endpoints, forever.
    pub(super) async fn run(&self) -> Infallible {
        let mut used = self.current.subscribe();
        loop {
            // The sender lives as long as this value.
            let _ = used.wait_for(|current| *current > 0).await;
            let nearer = *used.borrow_and_update();
            let wait = self.return_after + self.return_after.mul_f64(chance() / 10.0);
            tokio::select! {
                // Probing begins anew for another endpoint.
                _ = used.changed() => {}
                nearest = self.first_that_works(nearer, wait) => drop(self.current.send_replace(nearest)),
            }
        }
    }

    /// Probes endpoints until one has worked for this time.
    async fn first_that_works(&self, nearer: usize, wait: Duration) -> usize {
        let mut since: Vec<Option<Instant>> = vec![None; nearer];
        loop {
            for (index, since) in since.iter_mut().enumerate() {
                match self.probe(&self.connectors[index]).await {
                    Ok(()) => *since = since.or(Some(Instant::now())),
                    Err(why) => {
                        *since = None;
                        self.note_refusal(&self.connectors[index], why);
                    }
                }
                if since.is_some_and(|since| since.elapsed() >= wait) {
                    return index;
                }
            }
            sleep((wait / 10).clamp(Duration::from_millis(50), PROBED_EVERY_MAX)).await;
        }
    }

    fn note_refusal(&self, connector: &Connector, why: Arc<str>) {
        let mut refusal = self.refusal.lock();
        if refusal.as_ref() != Some(&why) {
            tracing::warn!(server = connector.host().map(tracing::field::display), %why, "a nearer endpoint of the store isn't used");
            *refusal = Some(why);
        }
    }

    async fn probe(&self, connector: &Connector) -> Result<(), Arc<str>> {
        let probing = async {
            let wire = open(connector).await?;
            let beat =
                Beat::of(&wire, Redirections::Unexpected).await.map_err(|error| with_causes(&error))?;
            if beat.role == Role::Other {
                return Err("the server is not a master".into());
            }
            self.check_data(&wire).await
        };
        timeout(connector.timeout(), probing).await.unwrap_or_else(|_| Err("no reply".into()))
    }

    /// Checks whether an endpoint may be used over this new connection, and notes that it is.
    pub(super) async fn check(&self, connector: &Connector, wire: &Wire) -> Result<(), Arc<str>> {
        let is_same = self.used.lock().as_ref().is_some_and(|used| used.is_same(connector));
        if !is_same {
            self.check_data(wire).await?;
            *self.used.lock() = Some(connector.clone());
        }
        Ok(())
    }

    /// Checks that a connection leads to the known data.
    async fn check_data(&self, wire: &Wire) -> Result<(), Arc<str>> {
        let Some(known) = self.log_seen.id() else { return Ok(()) };
        match self.log_id(wire).await.map_err(|error| with_causes(&error))? {
            Some(id) if id == known => Ok(()),
            _ => Err("the endpoint has other data: all endpoints of a store must be addresses of one server"
                .into()),
        }
    }

    async fn log_id(&self, wire: &Wire) -> Result<Option<crate::backing::LogId>, BackingError> {
        let mut question = cmd("GETRANGE");
        question.arg(self.names.log()).arg(0).arg(HEADER_BYTES - 1);
        let header = reply::part(wire.ask_one(&question).await?, HEADER_BYTES)?;
        Ok(header.and_then(|bytes| Header::decode(&bytes)).map(|header| header.id))
    }
}

async fn open(connector: &Connector) -> Result<Wire, Arc<str>> {
    let opened = connector.open(REPLY_BYTES_MAX, |_| Ok::<(), ()>(()), Arc::default()).await;
    opened.map(|(wire, _)| wire).map_err(|error| with_causes(&error))
}

/// Returns a number from 0 to 1.
fn chance() -> f64 {
    f64::from(RandomState::new().hash_one(()) as u32) / f64::from(u32::MAX)
}

/// Maximum pause between two probes.
const PROBED_EVERY_MAX: Duration = Duration::from_secs(1);
/// Maximum length of a reply to a probe.
const REPLY_BYTES_MAX: usize = 64 << 10;
