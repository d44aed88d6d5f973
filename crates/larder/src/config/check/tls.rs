//! TLS to servers: the keys `ca_file`, `client_certificate` and `client_key`.

use std::sync::Arc;

use origin::settings::OriginProtocol;
use origin::tls::{TlsConfigError, TlsOptions, Verification, client_config};
use rustls::ClientConfig;

use super::scope::Scope;
use crate::config::tree::{Node, Table};

pub(super) const KEYS: [&str; 3] = ["ca_file", "client_certificate", "client_key"];

/// Builds the TLS configuration and its fingerprint. Errors that concern none of the keys are reported at the URL.
pub(super) fn client(
    scope: &mut Scope<'_>,
    (table, url): (&Table, &Node),
    verification: Verification,
    protocol: OriginProtocol,
) -> Option<(Arc<ClientConfig>, u64)> {
    let [ca_file, chain, key] = files(scope, table)?;
    let options = TlsOptions { ca_file, client_certificate: chain.zip(key), verification, protocol };
    let config = client_config(&options);
    let at = match config {
        Err(TlsConfigError::CaFile(_)) => table.node("ca_file"),
        Err(TlsConfigError::ClientCertificate(_)) => table.node("client_certificate"),
        Err(TlsConfigError::ClientKey(_)) => table.node("client_key"),
        Err(_) | Ok(_) => None,
    };
    scope.take(at.unwrap_or(url), config.map_err(|error| error.to_string()))
}

/// Reads the files. A certificate and its key must be given together. Returns `None` if a file can't be read:
/// continuing without it would change the meaning of the configuration.
fn files(scope: &mut Scope<'_>, table: &Table) -> Option<[Option<Vec<u8>>; 3]> {
    // Some tables lack some of the keys.
    let nodes = KEYS.map(|key| table.section.option(key).and_then(|option| table.node(option.key)));
    for (one, other) in [(1, 2), (2, 1)] {
        if let (Some(node), None) = (nodes[one], nodes[other]) {
            scope.error(node, format!("needs `{}` as well", KEYS[other]));
        }
    }
    let files = nodes.map(|node| scope.bytes(node?));
    let is_complete = nodes.iter().zip(&files).all(|(node, file)| node.is_some() == file.is_some());
    is_complete.then_some(files)
}
