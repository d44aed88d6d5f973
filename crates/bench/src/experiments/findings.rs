//! Findings of an experiment, and its errors.

use std::io;

use crate::http::LoadError;
use crate::peers::PeerError;
use crate::resp::RespError;
use crate::result::{Chart, Expectation, Run};
use crate::server::ServerError;

/// Errors of an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// A required program isn't installed.
    #[error("{program} is not installed; on Debian: apt-get install {package}")]
    Missing { program: String, package: String },
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A file of the experiment can't be created.
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Resp(#[from] RespError),
    /// Reading or writing files of the experiment, or reading the counters of its origin, failed.
    #[error("{what}")]
    Io { what: String, source: io::Error },
}

/// The parts that an experiment adds to its report.
pub(super) struct Findings {
    pub(super) title: &'static str,
    pub(super) description: String,
    pub(super) runs: Vec<Run>,
    pub(super) charts: Vec<Chart>,
    pub(super) expectations: Vec<Expectation>,
}

/// The expectation that every request of a run was answered.
pub(super) fn all_answered(run: &Run) -> Expectation {
    let errors = run.errors.total();
    Expectation {
        what: format!("{}: every request is answered", run.name),
        measured: format!("{} answered, {errors} errors", run.requests),
        holds: errors == 0 && run.requests > 0,
    }
}
