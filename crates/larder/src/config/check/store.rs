//! Settings of the tier behind memory.

use std::sync::Arc;

use gateway::config::OriginProtocol;
use gateway::upstream::tls::{TlsConfigError, TlsOptions, Verification, client_config};
use gateway::{Coherence, LeaseLimits};
use rustls::ClientConfig;
use store::backing::{BreakerOptions, BreakerSettings, Deadlines};
use store::fleet::NAME_BYTES_MAX;
use store::remote::{Address, RemoteSettings, Secret, Word};

use super::scope::Scope;
use super::server::millis;
use crate::config::tree::{Node, Table};

/// A server of the Redis protocol behind memory, and how long it is waited for.
#[derive(Clone, Debug)]
pub(crate) struct RemoteTier {
    pub(crate) server: RemoteSettings,
    pub(crate) deadlines: Deadlines,
    pub(crate) breaker: BreakerSettings,
    /// What is done with copies while the server is away.
    pub(crate) coherence: Coherence,
    /// What this instance is called among those that share the server.
    pub(crate) instance: Option<String>,
    /// How long one instance may hold up the others.
    pub(crate) leases: LeaseLimits,
}

pub(super) fn remote(scope: &mut Scope<'_>, store: &Table) -> Option<RemoteTier> {
    let table = store.optional_table("remote")?;
    let breaker = breaker(scope, table);
    let server = server(scope, table);
    let leases =
        LeaseLimits { time: table.duration("lease_time"), wait_max: table.duration("lease_wait_max") };
    let record = table.duration("record_timeout");
    let deadlines = Deadlines {
        record,
        segment: table.duration("segment_timeout"),
        log: table.duration("log_timeout"),
        // It is renewed no less often, so it is still held for the rest of its time.
        release: record.max(leases.time / 3),
    };
    let instance = scope.parsed(table, "instance", instance_name);
    let coherence = match table.text("coherence") {
        Some("strict") => Coherence::Strict,
        _ => Coherence::Available,
    };
    Some(RemoteTier { server: server?, deadlines, breaker: breaker?, coherence, instance, leases })
}

fn server(scope: &mut Scope<'_>, table: &Table) -> Option<RemoteSettings> {
    let named = scope.parsed(table, "url", |url| {
        RemoteSettings::from_url(url).map_err(|error| format!("the URL {error}"))
    });
    let [prefix, client_name] = ["prefix", "client_name"].map(|key| scope.parsed(table, key, word));
    let password = match table.node("password_file") {
        Some(node) => Some(Secret::new(scope.secret_at(node)?.reveal())),
        None => None,
    };
    let named = named?;
    let tls = tls(scope, table, &named.address)?;
    Some(RemoteSettings {
        username: table.text("username").map(Into::into).or(named.username),
        password: password.or(named.password),
        prefix: prefix?,
        client_name: client_name?,
        verification: table.duration("verification_time"),
        connect_timeout: table.duration("connect_timeout"),
        followed_bytes_max: table.number("tracked_bytes_max"),
        tls,
        address: named.address,
        database: named.database,
    })
}

fn instance_name(text: &str) -> Result<String, String> {
    let is_good = (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    let must = || format!("must have 1 to {NAME_BYTES_MAX} bytes without control characters");
    is_good.then(|| text.to_owned()).ok_or_else(must)
}

fn word(text: &str) -> Result<Word, String> {
    Word::new(text).map_err(|error| error.to_string())
}

/// Nothing where the keys are wrong; nothing inside where certificates are checked by the system's roots, or there are none.
fn tls(scope: &mut Scope<'_>, table: &Table, address: &Address) -> Option<Option<Arc<ClientConfig>>> {
    let given: Vec<&Node> = TLS_KEYS.iter().filter_map(|key| table.given(key)).collect();
    if given.is_empty() {
        return Some(None);
    }
    if !matches!(address, Address::Tls(_)) {
        given.iter().for_each(|node| scope.error(node, "has a meaning only for a `rediss://` URL"));
        return None;
    }
    let options = tls_options(scope, table)?;
    match client_config(&options) {
        Ok((config, _)) => Some(Some(without_protocols(&config))),
        Err(error) => {
            let key = match error {
                TlsConfigError::CaFile(_) => "ca_file",
                TlsConfigError::ClientCertificate(_) => "client_certificate",
                TlsConfigError::ClientKey(_) => "client_key",
                _ => "url",
            };
            scope.error(table.node(key).or_else(|| table.node("url"))?, error.to_string());
            None
        }
    }
}

fn tls_options(scope: &mut Scope<'_>, table: &Table) -> Option<TlsOptions> {
    let [ca_file, chain, key] = scope.tls_files(table)?;
    Some(TlsOptions {
        ca_file,
        client_certificate: chain.zip(key),
        verification: Verification::On,
        protocol: OriginProtocol::Http1,
    })
}

/// Servers of the Redis protocol know none of the names that are agreed upon by TLS.
fn without_protocols(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols.clear();
    Arc::new(config)
}

fn breaker(scope: &mut Scope<'_>, remote: &Table) -> Option<BreakerSettings> {
    let table = remote.table("breaker");
    let longest = ["record_timeout", "segment_timeout", "log_timeout"]
        .map(|key| millis(remote.duration(key)))
        .into_iter()
        .max()
        .unwrap_or_default();
    let options = BreakerOptions {
        window_ms: millis(table.duration("window")),
        requests_min: table.number("requests_min"),
        error_percent: table.number("error_percent"),
        reset_ms: millis(table.duration("reset_time")),
        reset_ms_max: millis(table.duration("reset_time_max")),
        probe_ms_max: (2 * longest).clamp(1, *BreakerOptions::PROBE_MS_MAX.end()),
        ..BreakerOptions::default()
    };
    let given = table.given("reset_time_max").or_else(|| table.given("reset_time"));
    let node = given.or_else(|| table.node("reset_time_max"))?;
    scope.take(
        node,
        BreakerSettings::new(options)
            .map_err(|_| "`reset_time_max` must be at least `reset_time`".to_owned()),
    )
}

const TLS_KEYS: [&str; 3] = ["ca_file", "client_certificate", "client_key"];
