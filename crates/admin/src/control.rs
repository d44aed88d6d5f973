//! What the admin listener asks of the process. The binary implements it.

use std::pin::Pin;

use gateway::{ExplainError, Explanation, PurgeError, PurgeOrder, PurgeOutcome, Question};

/// A future that a [`Control`] returns.
pub type ControlFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The process, as far as an operator can move it.
pub trait Control: Send + Sync {
    /// Whether new requests are welcome. Called at each probe; must be quick.
    fn readiness(&self) -> Readiness;

    /// Purges what an order says, all variants and fills in progress included.
    /// The listener counts `larder_purges_total`.
    fn purge<'a>(&'a self, order: &'a PurgeOrder) -> ControlFuture<'a, Result<PurgeOutcome, PurgeError>>;

    /// Makes a request as a client would, and tells what was decided about it.
    fn explain(&self, question: Question) -> ControlFuture<'_, Result<Explanation, ExplainError>>;

    /// Loads the configuration again and returns its warnings, or returns its problems and leaves the running one in
    /// force. The implementation counts `larder_reloads_total`, because signals lead there too.
    fn reload(&self) -> ControlFuture<'_, Result<Vec<String>, Vec<String>>>;

    /// Starts the program anew and gives it the listening sockets. Returns the id of the new process, once that serves; this one
    /// then finishes its requests and ends. Otherwise it goes on, and what it returns is the reason. The implementation counts
    /// `larder_upgrades_total`, because a signal leads there too.
    fn upgrade(&self) -> ControlFuture<'_, Result<u32, String>>;
}

/// Whether new requests are welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Listeners are not bound yet, or the configuration is not in force.
    Starting,
    /// Requests are accepted.
    Ready,
    /// The process ends; requests in flight finish.
    Draining,
}
