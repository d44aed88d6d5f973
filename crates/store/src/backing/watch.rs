//! How copies stay true to the tier.

/// One node of a tier in one generation of the connection to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// Which node.
    pub node: u32,
    /// Grows with each connection, and with each change of the node's role.
    pub generation: u32,
}

/// Whether copies from a source can be relied upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// What has changed was told, up to the time of verification.
    Verified,
    /// Something may have changed unheard, and whoever loads again knows: the node is heard in a later generation.
    Ended,
    /// Nobody knows what has changed: the node is not heard now.
    Unverified,
}

/// Is told what changes. Called from any thread, by whoever reads what the tier sends: it sets flags and returns.
pub trait Watcher: Send + Sync {
    /// Copies of these records may be outdated.
    fn suspect(&self, keys: &[&[u8]]);

    /// All copies of this source, and of its generations before, may be outdated; `None`: all copies.
    fn all_suspect(&self, source: Option<Source>);

    /// The log has grown, was trimmed, or is another one; or it may have. What is asked for from here on is asked in time to be told of the
    /// next change.
    fn log_changed(&self);
}
