//! TLS client configurations, from bytes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::settings::OriginProtocol;

/// Inputs of a TLS client configuration: file contents in PEM.
#[derive(Clone)]
pub struct TlsOptions {
    /// Certificates of the authorities to trust, in place of the system's.
    pub ca_file: Option<Vec<u8>>,
    /// Certificate chain and private key to present to the origin.
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether the origin's certificate is checked.
    pub verification: Verification,
    /// Protocols to offer.
    pub protocol: OriginProtocol,
}

/// Whether the origin's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verification {
    /// Checks chain, name and time.
    On,
    /// Accepts any certificate, from any peer.
    Off,
}

/// Failure to make a TLS client configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The CA file isn't PEM, or contains no usable certificate.
    #[error("no usable CA certificate: {0}")]
    CaFile(String),
    /// The system has no certificate authorities.
    #[error("the system has no CA certificates: set `ca_file`")]
    SystemRoots,
    /// The client certificate isn't PEM, or is empty.
    #[error("no usable client certificate: {0}")]
    ClientCertificate(String),
    /// The client key isn't PEM, or can't sign.
    #[error("no usable client key: {0}")]
    ClientKey(String),
    /// The chosen settings don't fit together.
    #[error("TLS settings: {0}")]
    Settings(String),
}

/// Makes a client configuration, and a fingerprint that changes with any of its inputs.
///
/// # Errors
/// If an input can't be read or contradicts another. The error never contains key material.
pub fn client_config(options: &TlsOptions) -> Result<(Arc<ClientConfig>, u64), TlsConfigError> {
    let mut fingerprint = DefaultHasher::new();
    (&options.client_certificate, options.verification, options.protocol as u8).hash(&mut fingerprint);
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(options, &provider, &mut fingerprint)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError::Settings(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &options.client_certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = certificates(chain).map_err(TlsConfigError::ClientCertificate)?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| TlsConfigError::ClientKey(error.to_string()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsConfigError::ClientKey(error.to_string()))?
        }
    };
    config.alpn_protocols = match options.protocol {
        OriginProtocol::Http1 => vec![b"http/1.1".to_vec()],
        OriginProtocol::Http2 => vec![b"h2".to_vec()],
        OriginProtocol::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok((Arc::new(config), fingerprint.finish()))
}

fn verifier(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
    fingerprint: &mut DefaultHasher,
) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
    if options.verification == Verification::Off {
        return Ok(Arc::new(Unverified { provider: Arc::clone(provider) }));
    }
    let roots = match &options.ca_file {
        Some(file) => custom_roots(file, fingerprint)?,
        None => system_roots(fingerprint)?,
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| TlsConfigError::CaFile(error.to_string()))?;
    Ok(verifier)
}

fn custom_roots(file: &[u8], fingerprint: &mut DefaultHasher) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file).map_err(TlsConfigError::CaFile)? {
        certificate.as_ref().hash(fingerprint);
        roots.add(certificate).map_err(|error| TlsConfigError::CaFile(error.to_string()))?;
    }
    Ok(roots)
}

/// Loads the system's certificate authorities. Unusable certificates are skipped, as in other programs. The store is read anew
/// each time, so that a reload sees renewed certificates.
fn system_roots(fingerprint: &mut DefaultHasher) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        certificate.as_ref().hash(fingerprint);
        let _ = roots.add(certificate);
    }
    if roots.is_empty() { Err(TlsConfigError::SystemRoots) } else { Ok(roots) }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("no certificate in the file".to_owned()) } else { Ok(certificates) }
}

/// Accepts any certificate, but still checks that the peer has its private key.
#[derive(Debug)]
struct Unverified {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Unverified {
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
