//! A server of an upstream: its connections and its state.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderValue;
use http::uri::Scheme;
use parking_lot::Mutex;
use store::Budget;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::checks::Checked;
use super::connect::{Connector, Negotiated, Offer, Opened};
use super::ejection::Standing;
use super::error::OriginError;
use super::http1::Http1Connection;
use super::http2::{Http2Connection, StreamSlot};
use super::pool::Pool;
use super::request::{Binding, RequestHead};
use super::resolve::{Lead, Resolver};
use super::response::Kept;
use super::stats::{Counters, Work};
use super::timing::Limits;
use crate::settings::{EndpointConfig, OriginAddress, OriginConfig};

/// A server with its connections. It lives as long as anything uses it, even across reloads.
pub(super) struct Endpoint {
    config: EndpointConfig,
    /// URL of the server.
    pub(super) label: Arc<str>,
    pub(super) known: Arc<Known>,
    /// Protocols to offer for requests without an upgrade.
    usual_offer: Offer,
    connector: Connector,
    pub(super) pool: Arc<Pool>,
    /// Whether ALPN last chose HTTP/1. If so, each request of a burst opens its own connection.
    chose_http1: AtomicBool,
    memory: Option<Arc<Budget>>,
    counters: Arc<Counters>,
}

/// State of a server that a reload keeps even if it changes the settings of its connections.
#[derive(Default)]
pub(super) struct Known {
    pub(super) work: Arc<Work>,
    pub(super) standing: Mutex<Standing>,
    pub(super) checked: Mutex<Checked>,
    pub(super) checker: Mutex<Option<Checker>>,
}

/// A task that checks a server; aborted on drop.
pub(super) struct Checker {
    /// Configuration of the origin that defines the checks.
    pub(super) config: Arc<OriginConfig>,
    pub(super) task: AbortHandle,
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connections that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eligible {
    /// Any connection, kept ones first, as of this time.
    Any(Instant),
    /// Only connections opened since the first attempt began: a kept connection turned out to be dead, so others may be too.
    OpenedSince(Instant),
}

/// Exchanges that may use a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    /// Only the exchange that opens it.
    One,
    /// Other exchanges too, concurrently or later.
    Many,
}

/// A connection ready for a request.
pub(super) enum Connection {
    Http1(Http1Connection),
    Http2(StreamSlot),
}

impl Endpoint {
    pub(super) fn new(
        config: EndpointConfig,
        known: Arc<Known>,
        resolver: Arc<Resolver>,
        memory: Option<Arc<Budget>>,
        counters: Arc<Counters>,
    ) -> Self {
        let connector = Connector::new(&config, resolver);
        Self {
            label: config.to_string().into(),
            known,
            usual_offer: connector.offer(config.protocol),
            connector,
            pool: Arc::new(Pool::new(config.pool, Arc::clone(&counters))),
            chose_http1: AtomicBool::new(false),
            memory,
            counters,
            config,
        }
    }

    /// Returns whether the connections of this endpoint can be used with this configuration.
    pub(super) fn is_for(&self, config: &EndpointConfig) -> bool {
        self.config == *config
    }

    /// Returns the state of the server if this configuration names the same server, even with different settings for
    /// connections.
    pub(super) fn known_of(&self, config: &EndpointConfig) -> Option<&Arc<Known>> {
        let identity =
            |config: &EndpointConfig| (config.address.clone(), config.protocol, config.tls.clone());
        (identity(&self.config) == identity(config)).then_some(&self.known)
    }

    /// Returns the authority of the server, used if nothing else names it.
    pub(super) fn authority(&self) -> HeaderValue {
        match (&self.config.address, self.label.split_once("//")) {
            (OriginAddress::Tcp { .. }, Some((_, authority))) => {
                HeaderValue::from_str(authority).expect("it was part of a URL")
            }
            _ => HeaderValue::from_static("localhost"),
        }
    }

    pub(super) fn scheme(&self) -> Scheme {
        if self.config.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// Returns a connection for this request.
    pub(super) async fn acquire(
        &self,
        eligible: Eligible,
        head: &RequestHead<'_>,
        limits: Limits,
    ) -> Result<(Connection, Kept), OriginError> {
        let offer = self.offer(head);
        if head.binding == Binding::Exchange {
            let alone = async { self.open(offer, Users::One).await };
            return Box::pin(limits.connected(alone)).await;
        }
        if let Some(connection) = self.kept(eligible, offer) {
            return Ok((connection, Kept::Yes));
        }
        // On the heap, so that the future stays small: most exchanges find a kept connection.
        Box::pin(limits.connected(self.opened(eligible, offer))).await
    }

    /// Opens a connection, or uses one that another request opens in the meantime.
    async fn opened(&self, eligible: Eligible, offer: Offer) -> Result<(Connection, Kept), OriginError> {
        if offer == Offer::Http1 || offer == Offer::Either && self.chose_http1.load(Relaxed) {
            return self.open(offer, Users::Many).await;
        }
        let _opening = self.pool.opening.lock().await;
        match self.kept(eligible, offer) {
            Some(connection) => Ok((connection, Kept::Yes)),
            None => self.open(offer, Users::Many).await,
        }
    }

    /// Returns the protocols to offer; an upgrade uses HTTP/1.1, because HTTP/2 has no upgrades.
    //= RFC 9113 section 8.6: HTTP/2 has no 101 (Switching Protocols)
    fn offer(&self, head: &RequestHead<'_>) -> Offer {
        match &head.request.upgrade {
            None => self.usual_offer,
            Some(_) => Offer::Http1,
        }
    }

    /// Converts the error into [`OriginError::UpgradeFailed`] if an upgrade failed that needs a different protocol from other
    /// requests. Servers that speak only HTTP/2 end the connection, each in its own way. Such a failure doesn't show that the
    /// server is unhealthy, and any client can cause it.
    pub(super) fn failure_of(&self, head: &RequestHead<'_>, error: OriginError) -> OriginError {
        let is_unusual = head.request.upgrade.is_some() && self.usual_offer != Offer::Http1;
        match error {
            OriginError::Tls(_) | OriginError::Protocol(_) | OriginError::ClosedBeforeResponse
                if is_unusual =>
            {
                OriginError::UpgradeFailed(error.to_string().into())
            }
            error => error,
        }
    }

    fn kept(&self, eligible: Eligible, offer: Offer) -> Option<Connection> {
        let (opened_since, now) = match eligible {
            Eligible::Any(now) => (None, now),
            Eligible::OpenedSince(since) => (Some(since), Instant::now()),
        };
        // The name is resolved on each use, because it must be looked up again even if its connections are never idle.
        let Connector { name, resolver, .. } = &self.connector;
        let lead = name.as_deref().map_or(Lead::Anywhere, |name| resolver.lead(name, now));
        let shared = match offer {
            Offer::Http1 => None,
            Offer::Http2 | Offer::Either => self.pool.reserve_stream(opened_since, &lead),
        };
        let kept = match (shared, eligible) {
            (Some(slot), _) => Connection::Http2(slot),
            (None, Eligible::Any(now)) if offer != Offer::Http2 => {
                Connection::Http1(self.pool.checkout(now, &lead)?)
            }
            (None, _) => return None,
        };
        self.counters.connections_reused.fetch_add(1, Relaxed);
        Some(kept)
    }

    async fn open(&self, offer: Offer, users: Users) -> Result<(Connection, Kept), OriginError> {
        let (Opened { stream, address }, negotiated) = self.connector.connect(offer).await?;
        if offer == Offer::Either {
            self.chose_http1.store(negotiated == Negotiated::Http1, Relaxed);
        }
        let connection = match negotiated {
            Negotiated::Http1 => {
                let memory = self.memory.clone();
                Connection::Http1(Http1Connection::open(stream, address, memory, &self.counters))
            }
            Negotiated::Http2 => {
                let connection = Http2Connection::open(stream, address, &self.counters).await?;
                let slot = connection.reserve_first();
                if users == Users::Many {
                    self.pool.share(&connection);
                }
                Connection::Http2(slot)
            }
        };
        Ok((connection, Kept::No))
    }
}
