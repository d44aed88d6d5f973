//! Settings of the tier behind memory.

use std::sync::Arc;
use std::time::Duration;

use fleet::Coherence;
use fleet::leases::LeaseLimits;
use origin::settings::OriginProtocol;
use origin::tls::Verification;
use rustls::ClientConfig;
use store::backing::{BreakerOptions, BreakerSettings, Deadlines};
use store::fleet::NAME_BYTES_MAX;
use store::remote::{Access, Address, RemoteSettings, Secret, Seeds, Sentinels, Server, Word};

use super::scope::Scope;
use super::server::millis;
use super::{breaker, tls};
use crate::config::tree::{Node, Table};

/// A Redis-compatible server behind memory, and its time limits.
#[derive(Clone, Debug)]
pub(crate) struct RemoteTier {
    pub(crate) server: RemoteSettings,
    pub(crate) deadlines: Deadlines,
    pub(crate) breaker: BreakerSettings,
    /// Use of copies while the server is unreachable.
    pub(crate) coherence: Coherence,
    /// Name of this instance among those that share the server.
    pub(crate) instance: Option<String>,
    /// Time limits of leases.
    pub(crate) leases: LeaseLimits,
}

/// Settings of the connections to a server that are not in its table.
struct Common {
    client_name: Word,
    verification: Duration,
    followed_bytes_max: usize,
    access: Access,
}

pub(super) fn remote(scope: &mut Scope<'_>, store: &Table) -> Option<RemoteTier> {
    let table = store.optional_table("remote")?;
    let breaker = breaker(scope, table);
    let client_name = scope.parsed(table, "client_name", word);
    let common = client_name.map(|client_name| Common {
        client_name,
        verification: table.get("verification_time"),
        followed_bytes_max: table.get("tracked_bytes_max"),
        access: Access::Shared,
    });
    let server = server(scope, table, common);
    let leases = LeaseLimits { time: table.get("lease_time"), wait_max: table.duration("lease_wait_max") };
    let record = table.duration("record_timeout");
    let deadlines = Deadlines {
        record,
        segment: table.get("segment_timeout"),
        log: table.get("log_timeout"),
        // Time limit for giving a lease back: it is at least the interval at which the lease is renewed.
        release: record.max(leases.time / 3),
    };
    let instance = scope.parsed(table, "instance", instance_name);
    let coherence = table.get("coherence");
    Some(RemoteTier { server: server?, deadlines, breaker: breaker?, coherence, instance, leases })
}

/// Returns the server of another region, with the settings of this region's server.
pub(super) fn peer(scope: &mut Scope<'_>, table: &Table, near: &RemoteTier) -> Option<RemoteTier> {
    let common = Common {
        client_name: near.server.client_name.clone(),
        verification: near.server.verification,
        followed_bytes_max: FOLLOWED_BYTES_OF_PEER,
        access: Access::Reading,
    };
    let limit = table.get("timeout");
    let deadlines = Deadlines { record: limit, segment: limit, log: limit, release: limit };
    let server = server(scope, table, Some(common))?;
    Some(RemoteTier { server, deadlines, ..near.clone() })
}

/// Memory for the keys of a peer that are followed: its log and the record of its region.
const FOLLOWED_BYTES_OF_PEER: usize = 64 << 10;

fn server(scope: &mut Scope<'_>, table: &Table, common: Option<Common>) -> Option<RemoteSettings> {
    let named = address(scope, table);
    let prefix = scope.parsed(table, "prefix", word);
    let password = password_of(scope, table, "password_file")?;
    let sentinel_password = password_of(scope, table, "sentinel_password_file")?;
    let named = named?;
    if !matches!(named.address, Address::Sentinels(_)) {
        scope.refuse(
            table,
            &["sentinel_username", "sentinel_password_file"],
            "only applies to a URL with sentinels",
        );
    }
    let tls = client_config(scope, table, &named.address)?;
    let Common { client_name, verification, followed_bytes_max, access } = common?;
    Some(RemoteSettings {
        username: table.text("username").map(Into::into).or(named.username),
        password: password.or(named.password),
        sentinel_username: table.text("sentinel_username").map(Into::into),
        sentinel_password,
        prefix: prefix?,
        client_name,
        verification,
        connect_timeout: table.get("connect_timeout"),
        return_after: table.get("return_after"),
        followed_bytes_max,
        access,
        tls,
        address: named.address,
        database: named.database,
    })
}

/// Returns the settings that the URLs contain.
fn address(scope: &mut Scope<'_>, table: &Table) -> Option<RemoteSettings> {
    let endpoints = table.list("endpoints");
    if endpoints.is_empty() {
        scope.refuse(table, &["return_after"], "only applies to `endpoints`");
    }
    match (table.node("url"), endpoints) {
        (None, []) => {
            scope.error_in(table, "expected `url` or `endpoints`");
            None
        }
        (Some(_), []) => scope.parsed(table, "url", |url| {
            RemoteSettings::from_url(url).map_err(|error| format!("the URL {error}"))
        }),
        (Some(node), _) => {
            scope.error(node, "not with `endpoints`");
            None
        }
        (None, endpoints) => {
            let urls: Vec<&str> = endpoints.iter().map(Node::as_text).collect();
            let parsed = RemoteSettings::from_endpoints(&urls);
            parsed.map_err(|(index, error)| scope.error(&endpoints[index], format!("the URL {error}"))).ok()
        }
    }
}

/// Returns `None` if the file is wrong, and `Some(None)` if there is none.
fn password_of(scope: &mut Scope<'_>, table: &Table, key: &str) -> Option<Option<Secret>> {
    match table.node(key) {
        Some(node) => Some(Some(Secret::new(scope.secret(node)?.reveal()))),
        None => Some(None),
    }
}

fn instance_name(text: &str) -> Result<String, String> {
    let is_good = (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    let must = || format!("must have 1 to {NAME_BYTES_MAX} bytes without control characters");
    is_good.then(|| text.to_owned()).ok_or_else(must)
}

fn word(text: &str) -> Result<Word, String> {
    Word::new(text).map_err(|error| error.to_string())
}

/// Returns `None` if the keys are wrong, and `Some(None)` if the table has none of the TLS keys.
fn client_config(
    scope: &mut Scope<'_>,
    table: &Table,
    address: &Address,
) -> Option<Option<Arc<ClientConfig>>> {
    if tls::KEYS.iter().all(|key| table.given(key).is_none()) {
        return Some(None);
    }
    if !has_tls(address) {
        scope.refuse(table, &tls::KEYS, "only applies to a `rediss` URL");
        return None;
    }
    let at = (table, table.node("url").or_else(|| table.list("endpoints").first())?);
    let (config, _) = tls::client(scope, at, Verification::On, OriginProtocol::Http1)?;
    Some(Some(without_protocols(&config)))
}

fn has_tls(address: &Address) -> bool {
    match address {
        Address::Server(server) => matches!(server, Server::Tls(_)),
        Address::Endpoints(servers) => servers.iter().any(|server| matches!(server, Server::Tls(_))),
        Address::Sentinels(Sentinels { tls, .. }) | Address::Cluster(Seeds { tls, .. }) => *tls,
    }
}

/// Removes the ALPN protocols: servers of the Redis protocol negotiate none.
fn without_protocols(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols.clear();
    Arc::new(config)
}

fn breaker(scope: &mut Scope<'_>, remote: &Table) -> Option<BreakerSettings> {
    let timeouts = ["record_timeout", "segment_timeout", "log_timeout"].map(|key| millis(remote.get(key)));
    let longest = timeouts.into_iter().max().unwrap_or_default();
    let probe_ms_max = (2 * longest).clamp(1, *BreakerOptions::PROBE_MS_MAX.end());
    let rest = BreakerOptions { probe_ms_max, ..BreakerOptions::default() };
    breaker::breaker(scope, remote.table("breaker"), rest)
}
