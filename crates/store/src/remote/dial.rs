//! Sockets to a server, with or without TLS.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::settings::{Address, Host, RemoteSettings};

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

impl Target {
    /// Resolves settings to a target. Reads the root certificates of the system if needed.
    pub(super) fn of(settings: &RemoteSettings) -> Self {
        match &settings.address {
            Address::Tcp(host) => Self::Tcp(host.clone()),
            Address::Unix(path) => Self::Unix(path.clone()),
            Address::Tls(host) => {
                let config = settings.tls.clone().unwrap_or_else(system_roots_config);
                Self::Tls(host.clone(), TlsConnector::from(config))
            }
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
