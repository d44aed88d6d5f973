//! All upstreams of the process, found again over reloads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use store::Budget;
use tokio::runtime::Handle;

use super::group::Upstream;
use super::resolve::{Resolver, system_settings};
use super::stats::{Counters, OriginStats};
use crate::config::OriginConfig;

/// All origins of the process.
pub struct Upstreams {
    resolver: Arc<Resolver>,
    memory: Option<Arc<Budget>>,
    /// By name: a start with thousands would search through all of them for each.
    known: Mutex<HashMap<String, Vec<Weak<Upstream>>>>,
    /// By origin name, so that counts go on over a reload that changes an origin.
    counters: Mutex<HashMap<String, Arc<Counters>>>,
}

impl Upstreams {
    /// Names are looked up on the background runtime, which must outlive the workers.
    #[must_use]
    pub fn new(background: Handle) -> Self {
        Self::with_resolver(Resolver::new(system_settings(), background))
    }

    pub(super) fn with_resolver(resolver: Arc<Resolver>) -> Self {
        Self { resolver, memory: None, known: Mutex::default(), counters: Mutex::default() }
    }

    /// Charges what is read of large bodies, or waited for of requests, to a budget.
    #[must_use]
    pub fn charged_to(self, budget: &Arc<Budget>) -> Self {
        Self { memory: Some(Arc::clone(budget)), ..self }
    }

    /// The origin of a configuration. While somebody still uses the origin of an equal configuration, it is
    /// that one with its connections; an origin that nobody uses any more is gone.
    pub fn upstream(&self, config: &OriginConfig) -> Arc<Upstream> {
        let mut known = self.known.lock();
        let known = known.entry(config.name.clone()).or_default();
        known.retain(|origin| origin.strong_count() > 0);
        if let Some(origin) = known.iter().filter_map(Weak::upgrade).find(|origin| origin.config == *config) {
            return origin;
        }
        let counters = Arc::clone(self.counters.lock().entry(config.name.clone()).or_default());
        let origin = Arc::new(Upstream::new(
            config.clone(),
            Arc::clone(&self.resolver),
            self.memory.clone(),
            counters,
        ));
        known.push(Arc::downgrade(&origin));
        origin
    }

    /// Forgets the upstreams that nobody uses any more.
    pub(crate) fn forget_unused(&self) {
        self.known.lock().retain(|_, known| known.iter().any(|upstream| upstream.strong_count() > 0));
    }

    /// Counts by origin name.
    pub fn stats(&self) -> Vec<(String, OriginStats)> {
        let mut stats: Vec<_> =
            self.counters.lock().iter().map(|(name, counters)| (name.clone(), counters.snapshot())).collect();
        stats.sort_by(|(a, _), (b, _)| a.cmp(b));
        stats
    }
}
