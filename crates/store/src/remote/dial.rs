//! Sockets to a server, with or without TLS.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::settings::{Address, Host, RemoteSettings, Seeds, Sentinels, Server};

/// A stream of bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Address of a server, with the verifier of its certificates.
#[derive(Clone)]
pub(super) enum Target {
    Tcp(Host),
    Tls(Host, TlsConnector),
    Unix(Box<std::path::Path>),
}

/// How to reach the hosts of a service.
#[derive(Clone)]
pub(super) enum Transport {
    Tcp,
    Tls(TlsConnector),
}

impl Transport {
    /// Returns the transport of a store. Reads the root certificates of the system if needed.
    pub(super) fn of(settings: &RemoteSettings) -> Self {
        match &settings.address {
            Address::Server(Server::Tls(_))
            | Address::Sentinels(Sentinels { tls: true, .. })
            | Address::Cluster(Seeds { tls: true, .. }) => {
                let config = settings.tls.clone().unwrap_or_else(system_roots_config);
                Self::Tls(TlsConnector::from(config))
            }
            Address::Endpoints(servers) if servers.iter().any(|server| matches!(server, Server::Tls(_))) => {
                let config = settings.tls.clone().unwrap_or_else(system_roots_config);
                Self::Tls(TlsConnector::from(config))
            }
            Address::Server(_) | Address::Endpoints(_) | Address::Sentinels(_) | Address::Cluster(_) => {
                Self::Tcp
            }
        }
    }

    pub(super) fn to(&self, host: &Host) -> Target {
        match self {
            Self::Tcp => Target::Tcp(host.clone()),
            Self::Tls(connector) => Target::Tls(host.clone(), connector.clone()),
        }
    }
}

impl Target {
    /// Returns the target for a server. `transport` is that of its store.
    pub(super) fn of(server: &Server, transport: &Transport) -> Self {
        match server {
            Server::Tcp(host) => Self::Tcp(host.clone()),
            Server::Tls(host) => transport.to(host),
            Server::Unix(path) => Self::Unix(path.clone()),
        }
    }

    /// Returns whether two targets have the same address.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix(path), Self::Unix(other)) => path == other,
            _ => self.host().is_some() && self.host() == other.host(),
        }
    }

    /// Returns the host; `None` for a socket.
    pub(super) fn host(&self) -> Option<&Host> {
        match self {
            Self::Tcp(host) | Self::Tls(host, _) => Some(host),
            Self::Unix(_) => None,
        }
    }

    pub(super) async fn dial(&self) -> io::Result<Box<dyn Duplex>> {
        match self {
            Self::Tcp(host) => Ok(Box::new(tcp(host).await?)),
            Self::Tls(host, connector) => {
                let name = ServerName::try_from(host.name.to_string()).map_err(io::Error::other)?;
                Ok(Box::new(connector.connect(name, tcp(host).await?).await?))
            }
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}

async fn tcp(host: &Host) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((&*host.name, host.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns a TLS configuration with the system's root certificates. If the system has none, every handshake fails with an error about it.
fn system_roots_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the suites of the default versions");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}
