//! Listeners and their certificates.

use std::sync::Arc;

use gateway::config::{Certificate, ListenerConfig, ListenerTls};
use rustls::CertificateError;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::names::host_pattern;
use super::scope::Scope;
use super::server::networks;
use crate::certificate::{Standing, Validity};
use crate::config::parse_address;
use crate::config::tree::{Node, Table};

pub(super) fn listeners(scope: &mut Scope<'_>, tree: &Table) -> Vec<ListenerConfig> {
    if let (true, Some(node)) = (tree.list("listen").is_empty(), tree.node("listen")) {
        scope.error(node, "expected at least one address");
    }
    tree.tables("listen").filter_map(|table| listener(scope, table)).collect()
}

fn listener(scope: &mut Scope<'_>, table: &Table) -> Option<ListenerConfig> {
    let certificates: Vec<_> =
        table.tables("certificates").filter_map(|table| certificate(scope, table)).collect();
    let mut names: Vec<&str> = Vec::new();
    for (certificate, table) in certificates.iter().zip(table.tables("certificates")) {
        for name in &certificate.names {
            if names.contains(&name.as_str()) {
                let message = format!("`{name}` is answered by an earlier certificate of this listener");
                scope.warning_in(table, message);
            }
            names.push(name);
        }
    }
    check_proxies(scope, table);
    Some(ListenerConfig {
        address: scope.parsed(table, "address", parse_address)?,
        tls: (!certificates.is_empty()).then_some(ListenerTls { certificates }),
        proxy_protocol: table.get("proxy_protocol"),
        proxy_protocol_from: networks(scope, table, "proxy_protocol_from"),
        http2: table.get("http2"),
    })
}

/// Warns if `proxy_protocol_from` is missing: only load balancers on this machine can then connect, which is seldom intended.
fn check_proxies(scope: &mut Scope<'_>, table: &Table) {
    let is_local = table
        .text("address")
        .is_some_and(|text| parse_address(text).is_ok_and(|address| address.ip().is_loopback()));
    match (table.flag("proxy_protocol"), table.given("proxy_protocol"), table.given("proxy_protocol_from")) {
        (true, Some(node), None) if !is_local => scope.warning(node, UNLISTED_PROXIES),
        (false, _, Some(node)) => scope.warning(node, "has no effect without `proxy_protocol = true`"),
        _ => {}
    }
}

const UNLISTED_PROXIES: &str = "connections of peers on other machines are closed: list your balancers, such as \
                                `proxy_protocol_from = [\"10.0.0.0/8\"]`";

fn certificate(scope: &mut Scope<'_>, table: &Table) -> Option<Certificate> {
    let names = scope.parsed_list(table, "names", host_pattern);
    let certified = certified(scope, table)?;
    let subject_names = subject_names(&certified.cert[0]);
    let subject_names = scope.take(table.node("cert")?, subject_names)?;
    let names = if table.node("names").is_some() { names } else { subject_names };
    Some(Certificate { names, key: Arc::new(certified) })
}

/// Reads the chain in `cert` and the private key in `key`.
pub(super) fn certified(scope: &mut Scope<'_>, table: &Table) -> Option<CertifiedKey> {
    let chain = table.node("cert").and_then(|node| chain(scope, node));
    let key = table.node("key").and_then(|node| private_key(scope, node));
    if let (Some(node), Some(first)) = (table.node("cert"), chain.as_ref().and_then(|chain| chain.first())) {
        check_validity(scope, node, first);
    }
    let (chain, key) = (chain?, key?);
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider);
    let at = if matches!(certified, Err(rustls::Error::InvalidCertificate(_))) { "cert" } else { "key" };
    let certified = certified.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            "isn't the private key of the first certificate in `cert`".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => {
            "the first certificate is damaged".to_owned()
        }
        rustls::Error::InvalidCertificate(_) => {
            "the first certificate can't be used: TLS needs one of X.509 version 3".to_owned()
        }
        error => format!("can't be used as a private key: {error}"),
    });
    scope.take(table.node(at)?, certified)
}

/// Warns of a certificate that clients refuse because of its dates. The certificate is used nevertheless, because other listeners and sites
/// still work.
fn check_validity(scope: &mut Scope<'_>, node: &Node, certificate: &[u8]) {
    let file = scope.path(node);
    let file = file.display();
    let Some(validity) = Validity::of(certificate) else {
        return scope.warning(node, format!("can't read the validity period of the certificate in {file}"));
    };
    let date = httpdate::fmt_http_date;
    let why = match validity.at(scope.now) {
        Standing::Valid => return,
        Standing::Early => format!("it is not valid before {}", date(validity.begin)),
        Standing::Expired => format!("it expired on {}; renew it", date(validity.end)),
    };
    scope.warning(node, format!("clients refuse the certificate in {file}: {why}"));
}

/// Reads the certificates in a PEM file; at least one.
pub(super) fn chain(scope: &mut Scope<'_>, node: &Node) -> Option<Vec<CertificateDer<'static>>> {
    let pem = scope.bytes(node)?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let chain = match chain {
        Ok(chain) if chain.is_empty() => Err("no certificate in the file".to_owned()),
        chain => chain.map_err(|error| format!("not a PEM file: {error}")),
    };
    scope.take(node, chain)
}

/// Reads the private key in a PEM file.
fn private_key(scope: &mut Scope<'_>, node: &Node) -> Option<PrivateKeyDer<'static>> {
    let pem = scope.bytes(node)?;
    scope.check_mode(node);
    let private_key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        rustls_pki_types::pem::Error::NoItemsFound => "no private key in the file".to_owned(),
        error => format!("not a PEM file: {error}"),
    });
    scope.take(node, private_key)
}

/// Returns the DNS names among the subject alternative names.
fn subject_names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let certificate = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| format!("the first certificate isn't a server's certificate: {error}"))?;
    Ok(certificate.valid_dns_names().map(str::to_ascii_lowercase).collect())
}
