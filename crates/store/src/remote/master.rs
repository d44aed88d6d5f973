//! The server that a link connects to: a fixed one, or the master that sentinels name.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

use super::dial::{Target, Transport};
use super::sentinel::{Found, MasterFinder};
use super::settings::{Address, RemoteSettings, Seeds};
use super::wire::Connector;

/// The master of a store.
pub(super) enum Master {
    Fixed(Connector),
    OfService(ServiceMaster),
}

/// The master of a service with sentinels.
pub(super) struct ServiceMaster {
    finder: MasterFinder,
    found: watch::Receiver<Found>,
    transport: Transport,
    /// The login, with an unused target.
    connector: Connector,
}

impl Master {
    pub(super) fn new(settings: &RemoteSettings) -> Self {
        let transport = Transport::of(settings);
        match &settings.address {
            Address::Tcp(host) | Address::Tls(host) => {
                Self::Fixed(Connector::to_server(settings, transport.to(host)))
            }
            Address::Unix(path) => Self::Fixed(Connector::to_server(settings, Target::Unix(path.clone()))),
            Address::Cluster(Seeds { hosts, .. }) => {
                Self::Fixed(Connector::to_node(settings, transport.to(&hosts[0])))
            }
            Address::Sentinels(sentinels) => {
                let finder = MasterFinder::new(settings, &transport, sentinels);
                let connector = Connector::to_server(settings, transport.to(&sentinels.hosts[0]));
                Self::OfService(ServiceMaster { found: finder.found(), finder, transport, connector })
            }
        }
    }

    /// Returns the current master, or the reason why none is known.
    pub(super) fn connector(&self) -> Result<Connector, Arc<str>> {
        match self {
            Self::Fixed(connector) => Ok(connector.clone()),
            Self::OfService(service) => service.connector(&service.found.borrow()),
        }
    }

    /// Asks the sentinels once, if there are any, and returns the current master.
    pub(super) async fn find_once(&self) -> Result<Connector, Arc<str>> {
        match self {
            Self::Fixed(connector) => Ok(connector.clone()),
            Self::OfService(service) => service.connector(&service.finder.find_once().await),
        }
    }

    /// Follows the sentinels, if there are any.
    pub(super) async fn follow(&self) -> Infallible {
        match self {
            Self::Fixed(_) => pending().await,
            Self::OfService(service) => service.finder.run().await,
        }
    }

    /// Waits until another server is the master, or any if none was known.
    pub(super) async fn moved(&self, from: Option<&Connector>) {
        let Self::OfService(service) = self else { return pending().await };
        let from = from.and_then(Connector::host);
        let is_another = |found: &Found| found.as_ref().is_ok_and(|master| Some(&master.host) != from);
        if service.found.clone().wait_for(is_another).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Returns the number of replicas that the sentinels know, whether connected or not; 0 without sentinels.
    pub(super) fn known_replicas(&self) -> u32 {
        match self {
            Self::Fixed(_) => 0,
            Self::OfService(service) => service.found.borrow().as_ref().map_or(0, |master| master.replicas),
        }
    }
}

impl ServiceMaster {
    fn connector(&self, found: &Found) -> Result<Connector, Arc<str>> {
        let master = found.as_ref().map_err(Arc::clone)?;
        Ok(self.connector.with_target(self.transport.to(&master.host)))
    }
}
