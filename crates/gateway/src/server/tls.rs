//! TLS towards clients: certificate selection by server name, protocol negotiation, session resumption.
//!
//! A [`ServerConfig`] is immutable. A reload builds a new one and swaps it with the rest of the configuration, so that a handshake uses
//! either the old or the new certificates. A new configuration invalidates the session tickets of the old one, so the old one is kept if
//! nothing changes.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use message::head::TlsSession;
use message::read_ahead::ReadAhead;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, ProtocolVersion, ServerConfig};
use telemetry::TlsFailure;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::wire::{Ending, Stream};
use crate::config::{Certificate, Http2, ListenerTls};

/// ALPN identifiers (RFC 7301 section 6, RFC 9113 section 3.1).
const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Maximum number of bytes that are encrypted but not sent: one record. The budget doesn't include this copy, which is held for clients
/// that don't read.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// Protocol negotiated by ALPN; HTTP/1.1 for clients without ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negotiated {
    Http1,
    Http2,
}

/// A client connection after its handshake.
pub(crate) struct Accepted<S> {
    /// Boxed: it has more than 1 KiB, and each future that it passes through would reserve room for it.
    pub(crate) stream: Box<TlsStream<ReadAhead<S>>>,
    pub(crate) protocol: Negotiated,
    pub(crate) session: TlsSession,
}

impl<S: Stream> Stream for ReadAhead<S> {
    const CLOSES_SILENTLY: bool = S::CLOSES_SILENTLY;

    fn end_by(&self, ending: Ending) {
        self.io().end_by(ending);
    }
}

impl<S: Stream> Stream for Box<TlsStream<ReadAhead<S>>> {
    fn end_by(&self, ending: Ending) {
        self.get_ref().0.end_by(ending);
    }
}

/// Builds the TLS configuration of a listener: TLS 1.2 and 1.3, certificates by SNI, resumption by stateless tickets.
///
/// # Errors
/// The random source fails, or the listener has no certificate.
pub(crate) fn server_config(tls: &ListenerTls, http2: Http2) -> Result<Arc<ServerConfig>, rustls::Error> {
    let certificates = Certificates::new(&tls.certificates)
        .ok_or_else(|| rustls::Error::General("a TLS listener needs a certificate".to_owned()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = match http2 {
        Http2::Off => vec![ALPN_HTTP1.to_vec()],
        Http2::On => vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()],
    };
    config.ticketer = ring::Ticketer::new()?;
    // One ticket is enough for a client with a persistent connection; each one costs a write per handshake.
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// Performs the handshake on a connection from which the bytes in `early` have already been read. The caller limits the time.
///
/// # Errors
/// The client left, or the negotiation failed.
pub(crate) async fn accept<S: Stream>(
    config: Arc<ServerConfig>,
    (early, io): (Vec<u8>, S),
) -> io::Result<Accepted<S>> {
    let io = ReadAhead::behind(early, io);
    let mut stream = Box::new(TlsAcceptor::from(config).accept(io).await?);
    stream.get_mut().1.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    let (_, session) = stream.get_ref();
    let agreed = TlsSession {
        version: match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        },
        server_name: session.server_name().map(Box::from),
    };
    let protocol = match session.alpn_protocol() {
        Some(ALPN_HTTP2) => Negotiated::Http2,
        _ => Negotiated::Http1,
    };
    Ok(Accepted { stream, protocol, session: agreed })
}

/// Returns the kind of a failed handshake, for the metric.
pub(crate) fn failure(error: &io::Error) -> TlsFailure {
    use rustls::Error;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::AlertReceived(alert)) if is_about_certificate(*alert) => TlsFailure::CertificateRefused,
        Some(Error::AlertReceived(_)) => TlsFailure::ClientAlert,
        Some(Error::InvalidMessage(_)) => TlsFailure::NotTls,
        Some(Error::NoApplicationProtocol) => TlsFailure::NoApplicationProtocol,
        Some(Error::PeerIncompatible(_)) => TlsFailure::Incompatible,
        Some(_) => TlsFailure::Protocol,
        None if error.kind() == io::ErrorKind::TimedOut => TlsFailure::Timeout,
        None => TlsFailure::ClientClosed,
    }
}

/// Returns whether this alert means that the client doesn't accept the certificate.
fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
    )
}

/// A certificate that is presented to clients.
#[derive(Clone, Debug)]
pub struct ServedCertificate {
    /// First of its server names; `None` if it is only presented to clients that request no known name.
    pub host: Option<String>,
    /// Certificate with its chain and key.
    pub key: Arc<CertifiedKey>,
}

/// Returns the certificates of a listener that can be presented to clients, each once.
pub(crate) fn served(certificates: &[Certificate]) -> Vec<ServedCertificate> {
    let mut answered = HashSet::new();
    let mut served = Vec::new();
    for (index, certificate) in certificates.iter().enumerate() {
        let mut names = certificate.names.clone();
        names.retain(|name| answered.insert(index_name(name)));
        if index == 0 || !names.is_empty() {
            served.push(ServedCertificate {
                host: names.into_iter().next(),
                key: Arc::clone(&certificate.key),
            });
        }
    }
    served
}

/// Certificates by server name.
#[derive(Debug)]
struct Certificates {
    /// Names in lower case; wildcards under their suffix with the leading dot.
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// Certificate for clients that request no name or an unknown one.
    default: Arc<CertifiedKey>,
}

impl Certificates {
    /// Indexes the certificates by name. If two certificates have the same name, the first is used.
    fn new(certificates: &[Certificate]) -> Option<Self> {
        let default = Arc::clone(&certificates.first()?.key);
        let mut by_name = HashMap::new();
        for certificate in certificates {
            for name in &certificate.names {
                by_name.entry(index_name(name)).or_insert_with(|| Arc::clone(&certificate.key));
            }
        }
        Some(Self { by_name, default })
    }

    /// Selects by the exact name first, then by a matching wildcard.
    //= RFC 9525 section 6.3: a wildcard stands for exactly one label, the leftmost
    fn select(&self, server_name: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(name) = server_name.map(index_name) else { return &self.default };
        let wildcard =
            || name.find('.').filter(|cut| *cut > 0).and_then(|cut| self.by_name.get(&name[cut..]));
        self.by_name.get(&name).or_else(wildcard).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.select(hello.server_name())))
    }
}

/// Returns the index key of a name. `*.example.org` becomes `.example.org`, which isn't a valid host name. A trailing dot is ignored.
fn index_name(name: &str) -> String {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.strip_prefix('*').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use rustls::ClientConfig;
    use rustls::client::Resumption;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::TlsConnector;

    use super::*;

    fn certificate(names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names.clone()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let key = ring::sign::any_supported_type(&key).unwrap();
        Certificate { names, key: Arc::new(CertifiedKey::new(vec![made.cert.der().clone()], key)) }
    }

    #[test]
    fn names_choose_certificates() {
        let certificates = [
            certificate(&["default.example"]),
            certificate(&["a.example.org", "Upper.Example.org"]),
            certificate(&["*.example.org"]),
            certificate(&["a.example.org", "*.deep.example.org"]),
        ];
        let resolver = Certificates::new(&certificates).unwrap();
        let cases = [
            (None, 0),
            (Some("default.example"), 0),
            (Some("unknown.example"), 0),
            (Some("a.example.org"), 1),
            (Some("A.EXAMPLE.ORG"), 1),
            (Some("a.example.org."), 1),
            (Some("upper.example.org"), 1),
            (Some("b.example.org"), 2),
            (Some("x.deep.example.org"), 3),
            // A wildcard matches exactly one label, not zero or two.
            (Some("example.org"), 0),
            (Some(".example.org"), 2),
            (Some("x.y.example.org"), 0),
        ];
        for (name, expected) in cases {
            let selected = resolver.select(name);
            let found = certificates.iter().position(|certificate| Arc::ptr_eq(&certificate.key, selected));
            assert_eq!(found, Some(expected), "{name:?}");
        }
        assert!(Certificates::new(&[]).is_none());
    }

    #[test]
    fn certificates_that_answer_nobody_are_not_served() {
        let certificates = [
            certificate(&["a.example"]),
            certificate(&["A.example", "b.example", "*.example"]),
            certificate(&["b.example.", "*.example"]),
            certificate(&["c.example"]),
        ];
        let served: Vec<_> = served(&certificates).into_iter().map(|served| served.host).collect();
        let hosts = ["a.example", "b.example", "c.example"].map(|host| Some(host.to_owned()));
        assert_eq!(served, hosts);
        let nameless = Certificate { names: Vec::new(), ..certificates[0].clone() };
        let served = super::served(&[nameless.clone(), nameless]);
        assert_eq!((served.len(), &served[0].host), (1, &None));
    }

    fn client(alpn: &[&[u8]], trusted: &Certificate) -> ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.key.cert[0].clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.resumption = Resumption::in_memory_sessions(8);
        config
    }

    async fn shake_hands(
        server: &Arc<ServerConfig>,
        client: &Arc<ClientConfig>,
    ) -> (Negotiated, rustls::HandshakeKind) {
        let (near, far) = tokio::io::duplex(16 * 1024);
        let server = accept(Arc::clone(server), (Vec::new(), near));
        let client =
            TlsConnector::from(Arc::clone(client)).connect(ServerName::try_from("a.example").unwrap(), far);
        let (server, client) = tokio::join!(server, client);
        let (mut server, mut client) = (server.unwrap(), client.unwrap());
        let kind = server.stream.get_ref().1.handshake_kind().unwrap();
        // The client processes its ticket only when it reads.
        tokio::io::AsyncWriteExt::write_all(&mut server.stream, b"x").await.unwrap();
        tokio::io::AsyncWriteExt::flush(&mut server.stream).await.unwrap();
        tokio::io::AsyncReadExt::read_u8(&mut client).await.unwrap();
        (server.protocol, kind)
    }

    #[tokio::test]
    async fn alpn_follows_the_configuration() {
        let certificate = certificate(&["a.example"]);
        let tls = ListenerTls { certificates: vec![certificate.clone()] };
        let cases: [(Http2, &[&[u8]], Negotiated); 4] = [
            (Http2::On, &[b"h2", b"http/1.1"], Negotiated::Http2),
            (Http2::On, &[b"http/1.1"], Negotiated::Http1),
            (Http2::On, &[], Negotiated::Http1),
            (Http2::Off, &[b"h2", b"http/1.1"], Negotiated::Http1),
        ];
        for (http2, alpn, expected) in cases {
            let server = server_config(&tls, http2).unwrap();
            let (protocol, _) = shake_hands(&server, &Arc::new(client(alpn, &certificate))).await;
            assert_eq!(protocol, expected, "{http2:?} {alpn:?}");
        }
    }

    #[tokio::test]
    async fn sessions_resume_until_the_certificates_are_swapped() {
        let certificate = certificate(&["a.example"]);
        let tls = ListenerTls { certificates: vec![certificate.clone()] };
        let client = Arc::new(client(&[b"h2"], &certificate));
        let server = server_config(&tls, Http2::On).unwrap();
        let swapped = server_config(&tls, Http2::On).unwrap();
        let kinds = [
            shake_hands(&server, &client).await.1,
            shake_hands(&server, &client).await.1,
            shake_hands(&swapped, &client).await.1,
        ];
        use rustls::HandshakeKind::{Full, Resumed};
        assert_eq!(kinds, [Full, Resumed, Full]);
    }
}
