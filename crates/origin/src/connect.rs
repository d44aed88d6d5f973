//! Opening connections: addresses, sockets, TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use message::read_ahead::ReadAhead;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::OriginError;
use super::resolve::{Resolver, literal};
use crate::settings::{AddressFamily, EndpointConfig, OriginAddress, OriginProtocol};

/// Head start of one address before the next is tried in parallel (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Any byte stream: TCP or Unix socket, with TLS or without.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    /// Returns the descriptor of the underlying socket.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

impl Socket for TcpStream {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Socket for UnixStream {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Socket for TlsStream<ReadAhead<Stream>> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.get_ref().0.io().descriptor()
    }
}

pub(super) type Stream = Box<dyn Socket>;

/// Protocols offered on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    Http1,
    Http2,
    Either,
}

/// Protocol of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Negotiated {
    Http1,
    Http2,
}

/// A byte stream, and its remote address if that came from a host name.
pub(super) struct Opened {
    pub(super) stream: Stream,
    pub(super) address: Option<IpAddr>,
}

pub(super) struct Connector {
    address: OriginAddress,
    /// Host name, if its addresses may change.
    pub(super) name: Option<String>,
    tls: Option<Tls>,
    local_address: Option<IpAddr>,
    family: AddressFamily,
    pub(super) resolver: Arc<Resolver>,
}

struct Tls {
    client: Arc<rustls::ClientConfig>,
    name: String,
}

impl Connector {
    pub(super) fn new(config: &EndpointConfig, resolver: Arc<Resolver>) -> Self {
        let tls = config.tls.as_ref().map(|tls| Tls {
            client: Arc::clone(&tls.client),
            name: tls.server_name.clone().unwrap_or_else(|| match &config.address {
                OriginAddress::Tcp { host, .. } => host.clone(),
                OriginAddress::Unix(_) => String::new(),
            }),
        });
        Self {
            name: match &config.address {
                OriginAddress::Tcp { host, .. } if literal(host).is_none() => Some(host.clone()),
                OriginAddress::Tcp { .. } | OriginAddress::Unix(_) => None,
            },
            address: config.address.clone(),
            tls,
            local_address: config.local_address,
            family: config.address_family,
            resolver,
        }
    }

    /// Returns the offer for a protocol setting: without TLS nothing is negotiated.
    pub(super) fn offer(&self, protocol: OriginProtocol) -> Offer {
        match protocol {
            OriginProtocol::Http1 => Offer::Http1,
            OriginProtocol::Http2 => Offer::Http2,
            OriginProtocol::Auto if self.tls.is_some() => Offer::Either,
            OriginProtocol::Auto => Offer::Http1,
        }
    }

    /// Connects. The caller limits the time.
    pub(super) async fn connect(&self, offer: Offer) -> Result<(Opened, Negotiated), OriginError> {
        let opened = match &self.address {
            OriginAddress::Tcp { host, port } => {
                let stream = self.connect_tcp(host, *port).await?;
                let address = stream.peer_addr().ok().map(|peer| peer.ip());
                Opened { stream: Box::new(stream), address }
            }
            OriginAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| OriginError::Connect(error.kind()))?;
                Opened { stream: Box::new(stream), address: None }
            }
        };
        match &self.tls {
            Some(tls) => {
                let (stream, negotiated) = tls.handshake(opened.stream, offer).await?;
                Ok((Opened { stream, ..opened }, negotiated))
            }
            None if offer == Offer::Http2 => Ok((opened, Negotiated::Http2)),
            None => Ok((opened, Negotiated::Http1)),
        }
    }

    async fn connect_tcp(&self, host: &str, port: u16) -> Result<TcpStream, OriginError> {
        let resolved = self.resolver.resolve(host).await?;
        let addresses: Vec<IpAddr> =
            resolved.iter().copied().filter(|address| self.is_tried(*address)).collect();
        if addresses.is_empty() {
            return Err(OriginError::Resolve("no address of the chosen family".into()));
        }
        self.first_connected(addresses, port).await
    }

    fn is_tried(&self, address: IpAddr) -> bool {
        let family = match self.family {
            AddressFamily::Any => true,
            AddressFamily::Ipv4 => address.is_ipv4(),
            AddressFamily::Ipv6 => address.is_ipv6(),
        };
        family && self.local_address.is_none_or(|local| local.is_ipv4() == address.is_ipv4())
    }

    /// Tries the addresses in order. The next attempt begins when the previous one has failed or is slow. The first connection
    /// wins, and the other attempts are dropped.
    async fn first_connected(&self, addresses: Vec<IpAddr>, port: u16) -> Result<TcpStream, OriginError> {
        let mut attempts = JoinSet::new();
        let mut failure = io::ErrorKind::AddrNotAvailable;
        let mut addresses = addresses.into_iter().peekable();
        loop {
            if let Some(address) = addresses.next() {
                attempts.spawn(connect_address(SocketAddr::new(address, port), self.local_address));
            }
            let joined = if addresses.peek().is_some() {
                tokio::time::timeout(ATTEMPT_DELAY, attempts.join_next()).await
            } else {
                Ok(attempts.join_next().await)
            };
            match joined {
                Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
                Ok(Some(Ok(Err(error)))) => failure = error.kind(),
                Ok(Some(Err(_))) | Err(_) => {}
                Ok(None) if addresses.peek().is_none() => return Err(OriginError::Connect(failure)),
                Ok(None) => {}
            }
        }
    }
}

async fn connect_address(address: SocketAddr, local_address: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(local) = local_address {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    if is_self_connected(&stream) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Returns whether a connection to a free local port in the ephemeral range has connected to itself.
fn is_self_connected(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

impl Tls {
    async fn handshake(&self, socket: Stream, offer: Offer) -> Result<(Stream, Negotiated), OriginError> {
        let name = ServerName::try_from(self.name.trim_end_matches('.').to_owned())
            .map_err(|_| OriginError::Tls("the server name is invalid".into()))?;
        let mut client = rustls::ClientConfig::clone(&self.client);
        client.alpn_protocols = alpn(offer);
        let stream = TlsConnector::from(Arc::new(client))
            .connect(name, ReadAhead::new(socket))
            .await
            .map_err(|error| tls_error(&error))?;
        let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        match (offer, agreed) {
            (Offer::Http2, false) => Err(OriginError::Tls("the origin did not negotiate HTTP/2".into())),
            (Offer::Http2 | Offer::Either, true) => Ok((Box::new(stream), Negotiated::Http2)),
            (Offer::Http1 | Offer::Either, _) => Ok((Box::new(stream), Negotiated::Http1)),
        }
    }
}

fn alpn(offer: Offer) -> Vec<Vec<u8>> {
    match offer {
        Offer::Http1 => vec![b"http/1.1".to_vec()],
        Offer::Http2 => vec![b"h2".to_vec()],
        Offer::Either => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    }
}

fn tls_error(error: &io::Error) -> OriginError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            OriginError::TlsCertificate("its issuer isn't trusted: set `ca_file`".into())
        }
        Some(rustls::Error::InvalidCertificate(cause)) => {
            OriginError::TlsCertificate(cause.to_string().into())
        }
        Some(error) => OriginError::Tls(error.to_string().into()),
        None => OriginError::Tls(error.kind().to_string().into()),
    }
}
