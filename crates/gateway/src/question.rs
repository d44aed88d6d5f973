//! What `larder explain` asks, and what it is told.

use caching::explain::Finding;
use http::{HeaderMap, Method, Uri};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// A request that is made in order to see what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The method.
    pub method: Method,
    /// Absolute `http` or `https` URL.
    pub url: Uri,
    /// The header fields.
    pub fields: HeaderMap,
}

/// What became of a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Explanation {
    /// The status that a client would have got.
    pub status: u16,
    /// The `Cache-Status` that a client would have got.
    pub cache_status: String,
    /// Whether the response came to its end.
    pub complete: bool,
    /// The decisions, in the order in which they were made.
    pub findings: Vec<Finding>,
}

/// Why there is no explanation. Not `#[non_exhaustive]`: the admin API has a status for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The URL is not absolute, or its scheme is neither http nor https.
    #[error("the URL must be absolute, with http or https")]
    UrlUnusable,
    /// Only safe methods are explained: the request is a real one.
    #[error("only GET and HEAD can be explained: the request is really made")]
    MethodUnsafe,
    /// The process serves no site.
    #[error("there is no site")]
    NoSite,
    /// Too many explanations are under way, or the process stops. The caller tries again.
    #[error("too many explanations are in progress")]
    Busy,
}

/// A question on its way to a worker.
pub(crate) struct ExplainJob {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Explanation>,
}

/// Questions that wait for the worker.
pub(crate) const EXPLAIN_JOBS_MAX: usize = 16;

/// Checks that a question can be asked.
///
/// # Errors
/// See [`ExplainError`].
pub(crate) fn check(question: &Question) -> Result<(), ExplainError> {
    if ![Method::GET, Method::HEAD].contains(&question.method) {
        return Err(ExplainError::MethodUnsafe);
    }
    match (question.url.scheme_str(), question.url.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(()),
        _ => Err(ExplainError::UrlUnusable),
    }
}
