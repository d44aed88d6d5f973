//! What an experiment brings to its report, and why it may bring nothing.

use std::io;

use crate::http::LoadError;
use crate::peers::PeerError;
use crate::resp::RespError;
use crate::result::{Chart, Expectation, Run};
use crate::server::ServerError;

/// Why an experiment came to no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Install what the message names.
    #[error("{program} is not installed; on Debian: apt-get install {package}")]
    Missing { program: String, package: String },
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A file of the experiment.
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Resp(#[from] RespError),
    /// Files of the experiment, or the counters of its origin.
    #[error("{what}")]
    Io { what: String, source: io::Error },
}

/// What an experiment brings to its report.
pub(super) struct Findings {
    pub(super) title: &'static str,
    pub(super) description: String,
    pub(super) runs: Vec<Run>,
    pub(super) charts: Vec<Chart>,
    pub(super) expectations: Vec<Expectation>,
}

/// Every request of a run had an answer.
pub(super) fn all_answered(run: &Run) -> Expectation {
    let errors = run.errors.total();
    Expectation {
        what: format!("{}: every request is answered", run.name),
        measured: format!("{} answered, {errors} errors", run.requests),
        holds: errors == 0 && run.requests > 0,
    }
}
