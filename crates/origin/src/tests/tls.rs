//! TLS towards origins: certificate verification and ALPN.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;

use super::scripted::*;
use crate::settings::{OriginConfig, OriginProtocol, OriginTls};
use crate::tls::{TlsConfigError, TlsOptions, Verification, client_config};
use crate::{OriginError, Upstreams};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// Returns a certificate chain and key in PEM.
    fn issue(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }
}

/// Whether the server requests a client certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientCertificate {
    NotAsked,
    Required,
}

async fn serve(
    authority: &Authority,
    name: &str,
    alpn: &'static [&'static [u8]],
    client: ClientCertificate,
) -> SocketAddr {
    let provider = Arc::new(ring::default_provider());
    let (chain, key) = authority.issue(name);
    let chain = CertificateDer::pem_slice_iter(&chain).map(Result::unwrap).collect();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match client {
        ClientCertificate::NotAsked => builder.with_no_client_auth(),
        ClientCertificate::Required => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(&key).unwrap()).unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            tokio::spawn(async move {
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        respond.send_response(http::Response::new(()), true).unwrap();
                    }
                    return;
                }
                while !read_until(&mut stream, b"\r\n\r\n").await.is_empty() {
                    let _ = stream.write_all(OK.as_bytes()).await;
                }
            });
        }
    });
    address
}

fn options(authority: &Authority) -> TlsOptions {
    TlsOptions {
        ca_file: Some(authority.pem()),
        client_certificate: None,
        verification: Verification::On,
        protocol: OriginProtocol::Auto,
    }
}

fn tls_origin(address: SocketAddr, options: &TlsOptions, server_name: Option<&str>) -> OriginConfig {
    let (client, fingerprint) = client_config(options).unwrap();
    let mut config = config(address);
    config.servers[0].endpoint.protocol = options.protocol;
    config.servers[0].endpoint.tls =
        Some(OriginTls { server_name: server_name.map(str::to_owned), client, fingerprint });
    config
}

#[tokio::test]
async fn certificates_are_checked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let by_name = serve(&authority, "origin.test", &[], ClientCertificate::NotAsked).await;
    let by_address = serve(&authority, "127.0.0.1", &[], ClientCertificate::NotAsked).await;
    let off = TlsOptions { verification: Verification::Off, ..options(&other) };
    let cases = [
        (by_name, options(&authority), Some("origin.test"), Ok(200)),
        (by_address, options(&authority), None, Ok(200)),
        (by_name, options(&authority), Some("wrong.test"), Err("tls-certificate-error")),
        (by_name, options(&authority), None, Err("tls-certificate-error")),
        (by_name, options(&other), Some("origin.test"), Err("tls-certificate-error")),
        (by_name, off, Some("wrong.test"), Ok(200)),
        (by_name, options(&authority), Some("no name"), Err("tls-protocol-error")),
    ];
    for (address, options, server_name, expected) in cases {
        let got = fetch(&origin(&tls_origin(address, &options, server_name)), get()).await;
        let got = got.as_ref().map(|whole| whole.status).map_err(OriginError::reason);
        assert_eq!(got, expected, "{server_name:?}");
    }
}

#[tokio::test]
async fn client_certificates_are_shown() {
    let authority = Authority::new();
    let address = serve(&authority, "origin.test", &[], ClientCertificate::Required).await;
    let with =
        TlsOptions { client_certificate: Some(authority.issue("gateway.test")), ..options(&authority) };
    let config = tls_origin(address, &with, Some("origin.test"));
    assert_eq!(fetch(&origin(&config), get()).await.unwrap().body, "ok");
    let without = tls_origin(address, &options(&authority), Some("origin.test"));
    assert!(fetch(&origin(&without), get()).await.unwrap_err().is_unreachable());
}

#[tokio::test]
async fn alpn_chooses_the_protocol() {
    let authority = Authority::new();
    let both: &[&[u8]] = &[b"h2", b"http/1.1"];
    type Case = (OriginProtocol, &'static [&'static [u8]], Result<http::Version, &'static str>);
    let cases: [Case; 5] = [
        (OriginProtocol::Auto, both, Ok(http::Version::HTTP_2)),
        (OriginProtocol::Auto, &[], Ok(http::Version::HTTP_11)),
        (OriginProtocol::Http1, both, Ok(http::Version::HTTP_11)),
        (OriginProtocol::Http2, both, Ok(http::Version::HTTP_2)),
        (OriginProtocol::Http2, &[], Err("tls-protocol-error")),
    ];
    for (protocol, alpn, expected) in cases {
        let address = serve(&authority, "origin.test", alpn, ClientCertificate::NotAsked).await;
        let options = TlsOptions { protocol, ..options(&authority) };
        let got = send(&origin(&tls_origin(address, &options, Some("origin.test"))), get()).await;
        let got = got.as_ref().map(|response| response.version).map_err(OriginError::reason);
        assert_eq!(got, expected, "{protocol:?} {alpn:?}");
    }
}

#[tokio::test]
async fn connections_stay_while_their_tls_settings_do() {
    let authority = Authority::new();
    let address = serve(&authority, "origin.test", &[], ClientCertificate::NotAsked).await;
    let base = options(&authority);
    let cases = [
        (base.clone(), "origin.test", 1),
        (TlsOptions { verification: Verification::Off, ..base.clone() }, "origin.test", 2),
        (TlsOptions { verification: Verification::Off, ..base.clone() }, "other.test", 2),
        (
            TlsOptions { client_certificate: Some(authority.issue("a.test")), ..base.clone() },
            "origin.test",
            2,
        ),
    ];
    for (index, (options, server_name, opened)) in cases.into_iter().enumerate() {
        let upstreams = Upstreams::new(Handle::current());
        let before = upstreams.upstream(&tls_origin(address, &base, Some("origin.test")));
        fetch(&before, get()).await.unwrap();
        let mut changed = tls_origin(address, &options, Some(server_name));
        changed.base_path = "/other".to_owned();
        fetch(&upstreams.upstream(&changed), get()).await.unwrap();
        assert_eq!(before.stats().connections_opened, opened, "case {index}");
    }
}

#[test]
fn fingerprints_change_with_their_inputs() {
    let authority = Authority::new();
    let fingerprint = |options: &TlsOptions| client_config(options).unwrap().1;
    let base = options(&authority);
    assert_eq!(fingerprint(&base), fingerprint(&base.clone()));
    let others = [
        options(&Authority::new()),
        TlsOptions { verification: Verification::Off, ..base.clone() },
        TlsOptions { protocol: OriginProtocol::Http1, ..base.clone() },
        TlsOptions { client_certificate: Some(authority.issue("gateway.test")), ..base.clone() },
    ];
    for other in others {
        assert_ne!(fingerprint(&base), fingerprint(&other));
    }
}

#[test]
fn unusable_files_are_told_apart() {
    let authority = Authority::new();
    let (chain, key) = authority.issue("gateway.test");
    let with = |client| TlsOptions { client_certificate: Some(client), ..options(&authority) };
    let junk = b"junk".to_vec();
    let no_ca = TlsOptions { ca_file: Some(junk.clone()), ..options(&authority) };
    assert!(matches!(client_config(&no_ca), Err(TlsConfigError::CaFile(_))));
    assert!(matches!(client_config(&with((junk.clone(), key))), Err(TlsConfigError::ClientCertificate(_))));
    assert!(matches!(client_config(&with((chain.clone(), junk))), Err(TlsConfigError::ClientKey(_))));
    let other_key = authority.issue("other.test").1;
    assert!(matches!(client_config(&with((chain, other_key))), Err(TlsConfigError::ClientKey(_))));
}
