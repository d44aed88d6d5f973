//! All upstreams of the process, kept across reloads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use store::Budget;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::admission::Admission;
use super::circuit::Circuit;
use super::endpoint::Endpoint;
use super::group::Upstream;
use super::health::check_servers;
use super::resolve::{Resolver, system_settings};
use super::retry::RetryBudget;
use super::servers::{Server, Servers};
use super::stats::{Counters, OriginStats};
use crate::settings::{BreakerConfig, OriginConfig, ServerConfig};

/// All upstreams of the process.
pub struct Upstreams {
    resolver: Arc<Resolver>,
    memory: Option<Arc<Budget>>,
    /// This is a map, because a start with thousands of upstreams would search a list thousands of times.
    by_name: Mutex<HashMap<String, Named>>,
}

/// State kept under the name of one origin.
#[derive(Default)]
struct Named {
    /// Counters, kept across reloads that change the origin.
    counters: Arc<Counters>,
    /// Upstreams of earlier configurations that still have running exchanges, followed by the current upstream.
    used: Vec<Weak<Upstream>>,
}

impl Upstreams {
    /// Creates an empty registry. Names are resolved on the background runtime, which must outlive the workers.
    #[must_use]
    pub fn new(background: Handle) -> Self {
        Self::with_resolver(Resolver::new(system_settings(), background))
    }

    pub(super) fn with_resolver(resolver: Arc<Resolver>) -> Self {
        Self { resolver, memory: None, by_name: Mutex::default() }
    }

    /// Charges the memory for large response bodies and awaited request content to a budget.
    #[must_use]
    pub fn charged_to(self, budget: &Arc<Budget>) -> Self {
        Self { memory: Some(Arc::clone(budget)), ..self }
    }

    /// Returns the upstream of a configuration. While an earlier upstream with the same name is in use, the new one takes over
    /// the state of each server, its connections if their settings are equal, the circuit breaker unless there is a new server,
    /// and the requests in flight.
    pub fn upstream(&self, config: &OriginConfig) -> Arc<Upstream> {
        // Declared before the lock, so that no upstream is dropped while it is held.
        let mut used = Vec::new();
        let mut by_name = self.by_name.lock();
        let named = by_name.entry(config.name.clone()).or_default();
        used.extend(named.used.iter().filter_map(Weak::upgrade));
        let upstream = match used.iter().find(|upstream| upstream.config == *config) {
            Some(same) => Arc::clone(same),
            None => Arc::new(self.succeeding(&used, config, &named.counters)),
        };
        let in_force = Arc::downgrade(&upstream);
        named.used.retain(|other| !other.ptr_eq(&in_force));
        named.used.push(in_force);
        upstream
    }

    fn succeeding(
        &self,
        used: &[Arc<Upstream>],
        config: &OriginConfig,
        counters: &Arc<Counters>,
    ) -> Upstream {
        let known = || used.iter().flat_map(|upstream| upstream.servers.list());
        let server = |config: &ServerConfig| {
            let endpoint = match known().find(|known| known.endpoint.is_for(&config.endpoint)) {
                Some(known) => Arc::clone(&known.endpoint),
                None => {
                    let known = known().find_map(|known| known.endpoint.known_of(&config.endpoint));
                    let known = known.map(Arc::clone).unwrap_or_default();
                    let (resolver, counters) = (Arc::clone(&self.resolver), Arc::clone(counters));
                    let config = config.endpoint.clone();
                    Arc::new(Endpoint::new(config, known, resolver, self.memory.clone(), counters))
                }
            };
            Server::new(endpoint, config.weight)
        };
        // The state of a breaker is kept only if it knows all servers: earlier failures say nothing about a new server.
        let of_these = |upstream: &&Arc<Upstream>| upstream.servers.are_known(&config.servers);
        let circuit = |config: &BreakerConfig| {
            // A breaker that was switched off in between starts anew, although exchanges of an earlier configuration may still be
            // running.
            let known = used.iter().rev().find(of_these).and_then(|upstream| upstream.circuit.as_ref());
            known.map_or_else(|| Circuit::new(config.clone()), |known| known.under(config))
        };
        Upstream {
            circuit: config.breaker.as_ref().map(circuit),
            config: config.clone(),
            servers: Arc::new(Servers::new(config.servers.iter().map(server).collect(), config)),
            admission: match used.last() {
                Some(upstream) => upstream.admission.under(config.admission),
                None => Admission::new(config.admission, counters),
            },
            budget: Mutex::new(RetryBudget::new(Instant::now())),
            memory: self.memory.clone(),
            counters: Arc::clone(counters),
        }
    }

    /// Puts the configuration of this upstream in force: its checks, if any, its limits, and the settings of its circuit breaker.
    pub fn take_effect(&self, upstream: &Arc<Upstream>) {
        upstream.admission.take_effect();
        upstream.circuit.iter().for_each(Circuit::take_effect);
        check_servers(&upstream.servers, &upstream.config, self.resolver.background());
    }

    /// Forgets unused upstreams, but keeps their counts.
    pub fn forget_unused(&self) {
        for named in self.by_name.lock().values_mut() {
            named.used.retain(|upstream| upstream.strong_count() > 0);
        }
    }

    /// Returns the counts by origin name.
    pub fn stats(&self) -> Vec<(String, OriginStats)> {
        // Declared before the lock, so that no upstream is dropped while it is held.
        let mut in_force = Vec::new();
        let by_name = self.by_name.lock();
        let latest = |named: &Named| named.used.iter().rev().find_map(Weak::upgrade);
        in_force.extend(by_name.values().map(latest));
        let counted = by_name.iter().zip(&in_force).map(|((name, named), upstream)| {
            let unused = || named.counters.snapshot();
            (name.clone(), upstream.as_ref().map_or_else(unused, |upstream| upstream.stats()))
        });
        let mut stats: Vec<_> = counted.collect();
        stats.sort_by(|(a, _), (b, _)| a.cmp(b));
        stats
    }
}
