//! The certificate and the TLS settings of the listeners.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer,
        pem::{self, PemObject},
    },
};

use super::OriginOptions;

/// Error that prevents TLS from being set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file is missing, or contains no PEM of the required kind.
    #[error("cannot read {path}: {cause}")]
    UnreadablePem { path: PathBuf, cause: pem::Error },
    /// The chain has no certificate.
    #[error("{path} contains no certificate")]
    EmptyChain { path: PathBuf },
    /// The system's random source probably failed.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(#[from] rcgen::Error),
    /// The key does not belong to the certificate, or its kind is not supported.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Returns the settings for every TLS listener: HTTP/2 and HTTP/1.1 by ALPN.
///
/// # Errors
/// Returns an error if the files can't be read, or certificate and key don't match.
pub(crate) fn server_config(options: &OriginOptions) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => read(cert, key)?,
        _ => self_signed()?,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(cert: &Path, key: &Path) -> Result<Identity, TlsError> {
    let unreadable = |path: &Path, cause| TlsError::UnreadablePem { path: path.to_owned(), cause };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|cause| unreadable(cert, cause))?;
    if chain.is_empty() {
        return Err(TlsError::EmptyChain { path: cert.to_owned() });
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|cause| unreadable(key, cause))?;
    Ok((chain, key))
}

fn self_signed() -> Result<Identity, TlsError> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], key.into()))
}
