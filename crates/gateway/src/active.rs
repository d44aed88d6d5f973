//! The configuration in force.

use std::sync::Arc;

use caching::CacheName;

use crate::config::{Config, ListenerConfig};
use crate::routing::Routes;

/// The configuration in force, with the values built from it. A reload replaces it as a whole, and a request uses the same
/// configuration from its start to its end.
pub(crate) struct ActiveConfig {
    pub(crate) config: Config,
    pub(crate) routes: Routes,
    pub(crate) cache_name: CacheName,
    /// Whether any request has a timeline.
    pub(crate) has_timelines: bool,
    /// TLS settings by listener, in the order of the configuration.
    pub(crate) tls: Vec<Option<Arc<rustls::ServerConfig>>>,
}

impl ActiveConfig {
    /// Returns the settings of a listener. If a reload has removed the listener, its connections use the settings of the last
    /// listener.
    pub(crate) fn listener(&self, index: usize) -> &ListenerConfig {
        &self.config.listeners[index.min(self.config.listeners.len() - 1)]
    }
}
