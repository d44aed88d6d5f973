//! The server that a link connects to: a fixed one, the master that sentinels name, or one behind several addresses.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

use super::dial::{Target, Transport};
use super::endpoints::Endpoints;
use super::log::LastSeen;
use super::sentinel::{Found, MasterFinder};
use super::settings::{Address, Host, RemoteSettings, Seeds};
use super::wire::{Connector, Wire};

/// The master of a store.
pub(super) enum Master {
    Fixed(Connector),
    OfService(ServiceMaster),
    /// Behind several addresses.
    OfEndpoints(Endpoints),
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
    pub(super) fn new(settings: &RemoteSettings, log_seen: &Arc<LastSeen>) -> Self {
        let transport = Transport::of(settings);
        match &settings.address {
            Address::Server(server) => {
                Self::Fixed(Connector::to_server(settings, Target::of(server, &transport)))
            }
            Address::Endpoints(servers) => {
                let connector = |server| Connector::to_server(settings, Target::of(server, &transport));
                let connectors = servers.iter().map(connector).collect();
                Self::OfEndpoints(Endpoints::new(settings, connectors, Arc::clone(log_seen)))
            }
            // Only for an examination: the masters of a cluster have links of their own.
            Address::Cluster(Seeds { hosts, .. }) => {
                let connector = |host| Connector::to_node(settings, transport.to(host));
                let connectors = hosts.iter().map(connector).collect();
                Self::OfEndpoints(Endpoints::new(settings, connectors, Arc::clone(log_seen)))
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
            Self::OfEndpoints(endpoints) => Ok(endpoints.current().clone()),
        }
    }

    /// Asks the sentinels, or tries the addresses, once, and returns the server to examine.
    pub(super) async fn find_once(&self) -> Result<Connector, Arc<str>> {
        match self {
            Self::Fixed(connector) => Ok(connector.clone()),
            Self::OfService(service) => service.connector(&service.finder.find_once().await),
            Self::OfEndpoints(endpoints) => Ok(endpoints.find_once().await.clone()),
        }
    }

    /// Follows the sentinels, if there are any.
    pub(super) async fn follow(&self) -> Infallible {
        match self {
            Self::Fixed(_) => pending().await,
            Self::OfService(service) => service.finder.run().await,
            Self::OfEndpoints(endpoints) => endpoints.run().await,
        }
    }

    /// Waits until another server is the master, or any if none was known.
    pub(super) async fn moved(&self, from: Option<&Connector>) {
        match (self, from) {
            (Self::OfService(service), _) => service.moved(from.and_then(Connector::host)).await,
            (Self::OfEndpoints(endpoints), Some(from)) => endpoints.moved(from).await,
            (Self::Fixed(_) | Self::OfEndpoints(_), _) => pending().await,
        }
    }

    /// Notes that the connection to a server has failed or ended.
    pub(super) fn failed(&self, connector: &Connector) {
        if let Self::OfEndpoints(endpoints) = self {
            endpoints.failed(connector);
        }
    }

    /// Checks that a new connection leads to the data of the earlier ones.
    pub(super) async fn check(&self, connector: &Connector, wire: &Wire) -> Result<(), Arc<str>> {
        match self {
            Self::Fixed(_) | Self::OfService(_) => Ok(()),
            Self::OfEndpoints(endpoints) => endpoints.check(connector, wire).await,
        }
    }

    /// Returns the number of replicas that the sentinels know, whether connected or not; 0 without sentinels.
    pub(super) fn known_replicas(&self) -> u32 {
        match self {
            Self::Fixed(_) | Self::OfEndpoints(_) => 0,
            Self::OfService(service) => service.found.borrow().as_ref().map_or(0, |master| master.replicas),
        }
    }
}

impl ServiceMaster {
    async fn moved(&self, from: Option<&Host>) {
        let is_another = |found: &Found| found.as_ref().is_ok_and(|master| Some(&master.host) != from);
        // The finder lives as long as this value.
        let _ = self.found.clone().wait_for(is_another).await;
    }

    fn connector(&self, found: &Found) -> Result<Connector, Arc<str>> {
        let master = found.as_ref().map_err(Arc::clone)?;
        Ok(self.connector.with_target(self.transport.to(&master.host)))
    }
}
