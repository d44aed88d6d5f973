//! The interface of the admin listener to the process. The binary implements it.

use std::pin::Pin;

use gateway::{ExplainError, Explanation, PurgeError, PurgeOrder, PurgeOutcome, Question};

/// A future that a [`Control`] returns.
pub type ControlFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The control of the process by operators.
pub trait Control: Send + Sync {
    /// Returns whether the process accepts new requests. Every probe calls this, so it must not block.
    fn readiness(&self) -> Readiness;

    /// Purges the selected responses, including all variants and fills in progress. The listener counts
    /// `larder_purges_total`.
    fn purge<'a>(&'a self, order: &'a PurgeOrder) -> ControlFuture<'a, Result<PurgeOutcome, PurgeError>>;

    /// Makes a request as a client would, and returns the decisions about it.
    fn explain(&self, question: Question) -> ControlFuture<'_, Result<Explanation, ExplainError>>;

    /// Loads the configuration again and returns its warnings, or returns its problems and keeps the running one. The
    /// implementation counts `larder_reloads_total`, because signals cause reloads too.
    fn reload(&self) -> ControlFuture<'_, Result<Vec<String>, Vec<String>>>;

    /// Starts the program again and passes the listening sockets to it. Returns the id of the new process once the new process serves. The
    /// old process then finishes its requests and exits. On failure, returns the reason, and the old process continues. The implementation
    /// counts `larder_upgrades_total`, because a signal causes upgrades too.
    fn upgrade(&self) -> ControlFuture<'_, Result<u32, String>>;
}

/// Readiness of the process for new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The listeners are not bound yet, or the configuration is not in force.
    Starting,
    /// Requests are accepted.
    Ready,
    /// The process stops; requests in flight finish.
    Draining,
}
