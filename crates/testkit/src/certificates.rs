//! Certificates that are valid for this run only.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// A certificate authority with its files.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, as PEM files that live as long as their authority.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Certificate file.
    pub certificate: PathBuf,
    /// Private key file.
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority.
    ///
    /// # Panics
    /// Panics if the system provides no random numbers or no temporary folder.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("an empty list of names is valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate authority");
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("a file in the folder");
        Self { issuer, folder }
    }

    /// Returns the file with the authority's own certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate for these host names and addresses.
    ///
    /// # Panics
    /// Panics if a name is invalid, or a file can't be written.
    pub fn identity(&self, names: &[&str]) -> Identity {
        self.issue(names, |_| {})
    }

    /// Issues a certificate that is valid from one time to another. It replaces the files of an earlier certificate with the same
    /// first name.
    ///
    /// # Panics
    /// Same as [`Authority::identity`].
    pub fn identity_for(&self, names: &[&str], valid: Range<SystemTime>) -> Identity {
        self.issue(names, |params| {
            params.not_before = valid.start.into();
            params.not_after = valid.end.into();
        })
    }

    fn issue(&self, names: &[&str], more: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let file_name = names.first().map_or("nobody", String::as_str).replace('*', "any");
        let mut params = CertificateParams::new(names).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, file_name.as_str());
        more(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            certificate: self.write(&format!("{file_name}.pem"), &certificate.pem()),
            key: self.write(&format!("{file_name}.key"), &key.serialize_pem()),
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(Path::new(name));
        fs::write(&path, text).expect("a file in the folder");
        path
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
