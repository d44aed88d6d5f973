//! Settings of the Redis-compatible server.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::{Lifetimes, Policy};
use kv::{
    Access, Cluster, ClusterError, ClusterNode, CrossSlot, Limits, Listen, OutputLimit, Passwords, SLOTS,
    SaveFile, Security, Sockets, TextProtocol, UnixListen,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{RootCertStore, ServerConfig};

use super::listener::{certified, chain};
use super::names::{host_and_port, name, number};
use super::save_file::save_file;
use super::scope::{Scope, Secret};
use super::server::workers;
use crate::config::tree::Table;
use crate::config::{Purpose, parse_address};

/// Settings of the Redis-compatible server.
#[derive(Clone, Debug)]
pub(crate) struct KvSettings {
    pub(crate) listen: Vec<Listen>,
    pub(crate) unix: Vec<UnixListen>,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) workers: usize,
    pub(crate) bytes_max: u64,
    pub(crate) policy: Policy,
    pub(crate) text: TextProtocol,
    pub(crate) sockets: Sockets,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) save_file: Option<PathBuf>,
    pub(crate) cluster: Option<Cluster>,
    /// Values at least this long are compressed.
    pub(crate) pack_from_bytes: usize,
}

pub(super) fn kv(scope: &mut Scope<'_>, table: &Table) -> KvSettings {
    let mut listen = listen(scope, table, Security::Plain);
    let tls = table.optional_table("tls").and_then(|table| {
        listen.extend(self::listen(scope, table, Security::Tls));
        tls(scope, table)
    });
    if let (true, Some(node)) = (is_unreachable(table), table.node("listen")) {
        scope.error(node, "expected at least one address, here or in `kv.tls`");
    }
    let save_file = save_file(scope, table);
    check_sockets(scope, table, save_file.as_deref());
    check_reach(scope, table, &listen);
    KvSettings {
        listen,
        unix: unix(scope, table),
        lifetimes: lifetimes(table),
        workers: workers(table),
        bytes_max: table.get("maxmemory"),
        policy: table.text("maxmemory_policy").and_then(|name| name.parse().ok()).unwrap_or_default(),
        text: table.get("text_protocol"),
        sockets: Sockets { backlog: table.get("backlog"), buffer_bytes: table.get("socket_buffer_bytes") },
        access: access(scope, table),
        limits: limits(table.table("limits")),
        tls,
        save_file,
        cluster: cluster(scope, table),
        pack_from_bytes: match table.text("compression") {
            Some("lz4") => table.get("compress_from"),
            _ => usize::MAX,
        },
    }
}

/// Warns of addresses reachable from other machines that refuse all of their clients.
fn check_reach(scope: &mut Scope<'_>, table: &Table, listen: &[Listen]) {
    let is_for_others = listen.iter().any(|listen| !listen.address.ip().is_loopback());
    let is_decided = table.given("protected_mode").is_some() || table.given("password_files").is_some();
    if let (true, false, Some(node)) = (is_for_others, is_decided, table.node("listen")) {
        scope.warning(
            node,
            "clients on other machines are refused without a password: set `password_files`, or `protected_mode = false`",
        );
    }
}

/// Returns whether neither `listen` nor `tls.listen` has an address, valid or not.
fn is_unreachable(table: &Table) -> bool {
    let has_none = |table: &Table| table.list("listen").is_empty() && !table.is_wrong("listen");
    has_none(table) && table.optional_table("tls").is_none_or(has_none)
}

fn cluster(scope: &mut Scope<'_>, table: &Table) -> Option<Cluster> {
    let has_both = [Some(table), table.optional_table("tls")]
        .iter()
        .all(|table| table.is_some_and(|table| !table.list("listen").is_empty()));
    let (whole, table) = (table.node("cluster")?, table.optional_table("cluster")?);
    let tables: Vec<&Table> = table.node("nodes").map(|_| table.tables("nodes").collect())?;
    if has_both {
        tables.iter().for_each(|table| check_tls_port(scope, table));
    }
    let nodes: Vec<_> = tables.iter().map(|table| cluster_node(scope, table)).collect();
    let nodes = nodes.into_iter().collect::<Option<Vec<_>>>()?;
    // Often, only the node's own machine knows which node it is, so a check elsewhere accepts any node.
    let first = nodes.first().map(|node| node.name.clone()).filter(|_| scope.purpose == Purpose::Look);
    let Some(me) = table.text("node").or(first.as_deref()) else {
        scope.error(whole, "expected `node`, or `--cluster-node` of the command line");
        return None;
    };
    let cluster = Cluster::new(nodes, me).map_err(|error| {
        let (table, key) = match &error {
            ClusterError::NoSuchNode(_) => (Some(table), "node"),
            ClusterError::SameName { node, .. } => (tables.get(*node).copied(), "name"),
            ClusterError::SameAddress { node, .. } => (tables.get(*node).copied(), "address"),
            ClusterError::SameSlot { node, .. } => (tables.get(*node).copied(), "slots"),
            _ => (None, ""),
        };
        let place = table.and_then(|table| table.given(key)).unwrap_or(whole);
        scope.error(place, error.to_string());
    });
    let cross_slot = if table.get("cross_slot") { CrossSlot::Allowed } else { CrossSlot::Refused };
    cluster.ok().map(|cluster| cluster.with_cross_slot(cross_slot))
}

fn cluster_node(scope: &mut Scope<'_>, table: &Table) -> Option<ClusterNode> {
    let address = scope.parsed(table, "address", node_address);
    let slots = scope.parsed_list(table, "slots", slots);
    let name = scope.parsed(table, "name", name)?;
    let tls_port = table.get::<Option<u16>>("tls_port");
    address.map(|(host, port)| ClusterNode { name, host, port, tls_port, slots })
}

/// Reports a port that would serve clients both with and without TLS.
fn check_tls_port(scope: &mut Scope<'_>, table: &Table) {
    let node = table.given("address").filter(|_| table.get::<Option<u16>>("tls_port").is_none());
    if let Some(node) = node {
        scope.warning(node, "TLS clients are redirected to this port too: set their port in `tls_port`");
    }
}

/// Parses the address of a node. IP addresses are normalised, because redirections contain them, and two nodes can't have the same address.
fn node_address(text: &str) -> Result<(String, u16), String> {
    let (host, port) = host_and_port(text)?;
    let port = port.ok_or_else(|| format!("expected host and port, such as `{text}:6379`"))?;
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => {
            Err(format!("clients can't connect to {ip}: write the address at which they reach the node"))
        }
        Ok(ip) => Ok((ip.to_string(), port)),
        Err(_) => Ok((host, port)),
    }
}

fn slots(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let slot = |text: &str| number::<u16>(text).filter(|slot| *slot < SLOTS);
    let range = slot(first).zip(slot(last)).map(|(first, last)| first..=last);
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| format!("expected a slot, or two with `-` between them, from 0 to {}", SLOTS - 1))
}

fn listen(scope: &mut Scope<'_>, table: &Table, security: Security) -> Vec<Listen> {
    let parse = |text: &str| match text.strip_prefix(UNIX) {
        Some(_) if security == Security::Plain => Ok(None),
        _ => parse_address(text).map(Some),
    };
    let addresses = scope.parsed_list(table, "listen", parse);
    addresses.into_iter().flatten().map(|address| Listen { address, security }).collect()
}

/// Prefix of a Unix socket path.
const UNIX: &str = "unix:";

fn unix(scope: &mut Scope<'_>, table: &Table) -> Vec<UnixListen> {
    let mode = scope.parsed(table, "unix_socket_mode", |text| {
        let digits =
            Some(text).filter(|text| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit()));
        let mode = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok());
        mode.ok_or_else(|| format!("expected three octal digits, such as `660`; found {text:?}"))
    });
    let paths = scope.parsed_list(table, "listen", |text| {
        let path = text.strip_prefix(UNIX).map(Path::new);
        match path {
            Some(path) if !path.is_absolute() || !names_file(text) => Err(format!(
                "expected the absolute path of a file, such as `unix:/run/larder/kv.sock`; found {text:?}"
            )),
            Some(path) if path.as_os_str().len() > UnixListen::PATH_BYTES_MAX => {
                Err(format!("expected a path of at most {} bytes", UnixListen::PATH_BYTES_MAX))
            }
            path => Ok(path.map(Path::to_owned)),
        }
    });
    let Some(mode) = mode else { return Vec::new() };
    paths.into_iter().flatten().map(|path| UnixListen { path, mode }).collect()
}

fn names_file(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or_default();
    !matches!(name, "" | "." | "..") && !text.contains('\0')
}

/// Checks that each socket has a path of its own, in an existing folder.
fn check_sockets(scope: &mut Scope<'_>, table: &Table, save_file: Option<&Path>) {
    let save_file = save_file.map(|path| SaveFile::behind_links(path).unwrap_or_else(|_| path.to_owned()));
    let saved = save_file.as_deref().map(SaveFile::paths).into_iter().flatten();
    let mut taken: Vec<_> = saved.map(|path| (path, "kv.save_file")).collect();
    for node in table.list("listen") {
        let Some(path) = node.as_text().strip_prefix(UNIX).map(Path::new) else { continue };
        let paths = UnixListen::paths(path).map(|path| in_real_folder(&path));
        if let Some((path, owner)) = taken.iter().find(|(path, _)| paths.contains(path)) {
            scope.error(node, format!("{} is already used by `{owner}`", path.display()));
        }
        taken.extend(paths.map(|path| (path, node.path.as_str())));
        if let Err(error) = UnixListen::check_place(path) {
            scope.error(node, format!("can't create a socket at {}: {error}", path.display()));
        }
        if let Some(folder) = path.parent().filter(|folder| path.is_absolute() && !folder.is_dir()) {
            let folder = folder.display();
            // The service manager may create the folder.
            scope.warning(
                node,
                format!("the directory {folder} doesn't exist: create it before the server starts"),
            );
        }
    }
}

/// Resolves `..` and links in the folder of a path.
fn in_real_folder(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

fn lifetimes(table: &Table) -> Lifetimes {
    let ms = |key| table.get::<Option<Duration>>(key).map(|lifetime| lifetime.as_millis() as u64);
    Lifetimes { default_ms: ms("ttl_default"), max_ms: ms("ttl_max") }
}

fn access(scope: &mut Scope<'_>, table: &Table) -> Access {
    let files = table.list("password_files");
    let secrets: Vec<Secret> = files.iter().filter_map(|node| scope.secret(node)).collect();
    Access {
        passwords: Passwords::new(secrets.iter().map(|secret| secret.reveal().as_bytes().to_vec())),
        debug_commands: table.get("enable_debug_command"),
        protected_mode: table.get("protected_mode"),
    }
}

fn limits(table: &Table) -> Limits {
    Limits {
        clients_max: table.get("clients_max"),
        idle: table.get("idle_timeout"),
        keepalive: table.get("keepalive"),
        query_bytes_max: table.get("request_bytes_max"),
        messages: OutputLimit { bytes_max: table.get("messages_bytes_max"), ..Limits::default().messages },
        replies: OutputLimit { bytes_max: table.get("replies_bytes_max"), ..Limits::default().replies },
        buffers_max: kv::BuffersLimit::Bytes(table.get("buffers_bytes_max")),
        auth: table.get("auth_timeout"),
        strangers_max: table.get("unauthenticated_max"),
    }
}

fn tls(scope: &mut Scope<'_>, table: &Table) -> Option<Arc<ServerConfig>> {
    let verifier = client_verifier(scope, table);
    let certified = certified(scope, table)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the cipher suites of TLS 1.2 and 1.3")
        .with_client_cert_verifier(verifier?)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    Some(Arc::new(config))
}

fn client_verifier(scope: &mut Scope<'_>, table: &Table) -> Option<Arc<dyn ClientCertVerifier>> {
    let Some(node) = table.node("client_ca_file") else { return Some(Arc::new(NoClientAuth)) };
    let mut roots = RootCertStore::empty();
    for certificate in chain(scope, node)? {
        let added = roots.add(certificate).map_err(|error| format!("not a certificate authority: {error}"));
        scope.take(node, added)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match table.text("client_certificates") {
        Some("optional") => builder.allow_unauthenticated(),
        _ => builder,
    };
    let verifier = builder.build().map_err(|error| format!("can't verify client certificates: {error}"));
    scope.take(node, verifier)
}
