//! Invalidation of copies.

use std::sync::Weak;

use parking_lot::Mutex;

/// One node of a tier in one generation of the connection to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// Number of the node.
    pub node: u32,
    /// Number that increases with each connection, and with each change of the node's role.
    pub generation: u32,
}

/// Whether copies from a source can be relied upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStatus {
    /// All changes were announced, up to the time of verification.
    Verified,
    /// The generation is over, so changes may have been missed. The node is connected again and can be queried.
    Ended,
    /// Changes may have been missed, and the node can't be queried now.
    Unverified,
}

/// Receiver of announcements. The task that reads from the tier calls it, on any thread, so it must only set flags and return.
pub trait Watcher: Send + Sync {
    /// Called when copies of these records may be outdated.
    fn suspect(&self, keys: &[&[u8]]);

    /// Called when all copies of this source and of its earlier generations may be outdated; `None` for all copies.
    fn all_suspect(&self, source: Option<Source>);

    /// Called when the log has, or may have, grown, been trimmed or been replaced. If the log is read after the call, the next change is
    /// announced too.
    fn log_changed(&self);
}

/// Watchers, each of which keeps copies.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Weak<dyn Watcher>>>);

impl Watchers {
    pub(crate) fn add(&self, watcher: Weak<dyn Watcher>) {
        let mut watchers = self.0.lock();
        watchers.retain(|known| known.strong_count() > 0);
        watchers.push(watcher);
    }

    pub(crate) fn tell(&self, what: impl Fn(&dyn Watcher)) {
        // No lock is held during the calls, because a watcher may call this tier.
        let watchers: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        watchers.iter().for_each(|watcher| what(&**watcher));
    }
}
