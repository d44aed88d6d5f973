//! Activation of configurations, at start and while a gateway runs.

use std::sync::Arc;

use caching::CacheName;
use message::clock::now;
use origin::Upstreams;
use telemetry::Telemetry;

use super::StartError;
use crate::active::ActiveConfig;
use crate::config::{Config, ListenerConfig, ServerTiming, Site};
use crate::routing::{LiveSite, Routes};
use crate::server::tls;

/// A setting that a reload can't change. The running value stays in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReloaded {
    /// The key in the configuration file.
    pub key: &'static str,
}

/// Builds the active configuration, with the state of the running one.
pub(super) fn live(
    config: Config,
    running: Option<&ActiveConfig>,
    upstreams: &Upstreams,
    telemetry: &Telemetry,
) -> Result<ActiveConfig, StartError> {
    let cache_name = CacheName::new(&config.server_name)
        .map_err(|_| StartError::ServerName(config.server_name.clone()))?;
    let listeners = config.listeners.iter().enumerate();
    let tls = listeners.map(|(index, listener)| listener_tls(listener, running, index));
    let tls = tls.collect::<Result<_, _>>()?;
    let before = running.map(|running| running.routes.by_name()).unwrap_or_default();
    let sites = config.sites.iter().map(|site| {
        let live = LiveSite::new(site, upstreams.upstream(&site.origin), telemetry);
        Arc::new(match running {
            // The time is a second in the future, because responses are stored under the old configuration until the new one
            // applies.
            Some(_) => live.replacing(before.get(site.name.as_str()).copied(), now().plus_ms(1000)),
            None => live,
        })
    });
    let routes = Routes::new(sites.collect());
    let routes = match running {
        Some(running) => routes.replacing(&running.routes),
        None => routes,
    };
    upstreams.forget_unused();
    let is_told = |site: &Arc<Site>| site.server_timing != ServerTiming::Off;
    let has_timelines = config.tracing.is_some() || config.sites.iter().any(is_told);
    Ok(ActiveConfig { routes, cache_name, has_timelines, tls, config })
}

/// Returns the TLS configuration of the listener with this index. Keeps the running configuration if it is the same, so that its
/// session tickets stay valid.
fn listener_tls(
    listener: &ListenerConfig,
    running: Option<&ActiveConfig>,
    index: usize,
) -> Result<Option<Arc<rustls::ServerConfig>>, StartError> {
    let Some(tls) = &listener.tls else { return Ok(None) };
    let before = running.and_then(|live| live.config.listeners.get(index).zip(live.tls.get(index)?.clone()));
    let is_same = |before: &ListenerConfig| {
        before.http2 == listener.http2 && before.tls.as_ref().is_some_and(|before| before.is_same(tls))
    };
    if let Some((_, config)) = before.filter(|(before, _)| is_same(before)) {
        return Ok(Some(config));
    }
    let address = listener.address;
    tls::server_config(tls, listener.http2).map(Some).map_err(|source| StartError::Tls { address, source })
}

/// Replaces settings in `config` that a reload can't change by the running values, and returns the settings that differ.
pub(super) fn keep_fixed(running: &Config, config: &mut Config) -> Vec<NotReloaded> {
    let mut fixed = Vec::new();
    let addresses =
        |config: &Config| config.listeners.iter().map(|listener| listener.address).collect::<Vec<_>>();
    if addresses(running) != addresses(config) {
        config.listeners.clone_from(&running.listeners);
        fixed.push(NotReloaded { key: "listen" });
    }
    if running.workers != config.workers {
        config.workers = running.workers;
        fixed.push(NotReloaded { key: "workers" });
    }
    for (running, store) in running.stores.iter().zip(&mut config.stores) {
        if running.memory_bytes_max != store.memory_bytes_max {
            store.memory_bytes_max = running.memory_bytes_max;
            fixed.push(NotReloaded { key: "store.memory" });
        }
    }
    fixed
}

/// Returns whether both configurations have the same stores in the same order, because sites refer to their store by index.
pub(super) fn has_same_stores(running: &Config, config: &Config) -> bool {
    let names = |config: &Config| config.stores.iter().map(|store| store.name.clone()).collect::<Vec<_>>();
    names(running) == names(config)
}
