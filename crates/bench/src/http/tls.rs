//! TLS settings of a load: one client configuration per server, shared by all connections.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::LoadError;
use super::load::{Protocol, Session, TlsSettings, Trust};

#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    pub(super) fn new(settings: &TlsSettings, host: &str, protocol: Protocol) -> Result<Self, LoadError> {
        let name = settings.server_name.as_deref().unwrap_or(host);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| LoadError::Settings(format!("{name:?} isn't a valid TLS server name")))?;
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match &settings.trust {
            Trust::System => builder.with_root_certificates(system_roots()),
            Trust::File(path) => builder.with_root_certificates(roots_of(path)?),
            Trust::Anyone => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone { provider }))
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = match protocol {
            Protocol::Http1 { .. } => vec![b"http/1.1".to_vec()],
            Protocol::Http2 { .. } => vec![b"h2".to_vec()],
        };
        if settings.session == Session::AlwaysNew {
            config.resumption = Resumption::disabled();
        }
        Ok(Self { config: Arc::new(config), name })
    }

    pub(crate) fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(self.config.clone(), self.name.clone())
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn roots_of(path: &Path) -> Result<RootCertStore, LoadError> {
    let broken = |source| LoadError::Authorities { path: path.into(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| broken(io::Error::other(error)))? {
        let certificate = certificate.map_err(|error| broken(io::Error::other(error)))?;
        roots.add(certificate).map_err(|error| broken(io::Error::other(error)))?;
    }
    if roots.is_empty() {
        return Err(broken(io::Error::other("it has no certificate")));
    }
    Ok(roots)
}

/// Accepts every certificate, but checks that the server has its key, as `--insecure` does in other tools.
#[derive(Debug)]
struct Anyone {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
