//! Questions of `larder explain`, and their answers.

use caching::explain::Finding;
use http::{HeaderMap, Method, Uri};
use http1::Authority;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// A request that is sent to explain how it is handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The method.
    pub method: Method,
    /// Absolute `http` or `https` URL.
    pub url: Uri,
    /// The header fields.
    pub fields: HeaderMap,
}

/// Answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Explanation {
    /// Status that a client would receive.
    pub status: u16,
    /// `Cache-Status` that a client would receive.
    pub cache_status: String,
    /// Whether the response was complete.
    pub complete: bool,
    /// Decisions, in the order in which they are made.
    pub findings: Vec<Finding>,
}

/// Reason for a missing explanation. The enum isn't `#[non_exhaustive]`, because the admin API has a status
/// for each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The URL is not absolute, or no client can send a request for it.
    #[error(
        "the URL must be absolute, with http or https, a host, a port from 1 to 65535 if any, and no user information"
    )]
    UrlUnusable,
    /// The target is longer than the limit for requests of clients.
    #[error("path and query of the URL are longer than {bytes_max} bytes (`limits.target_bytes_max`)")]
    UrlTooLong {
        /// The maximum length of a target in requests of clients.
        bytes_max: usize,
    },
    /// The method isn't safe. The request is really sent, so only safe methods can be explained.
    #[error("only GET and HEAD can be explained: the request is actually sent")]
    MethodUnsafe,
    /// The process serves no site.
    #[error("no site is configured")]
    NoSite,
    /// Too many explanations are in progress, or the process is stopping. The caller may try again.
    #[error("too many explanations are in progress")]
    Busy,
}

/// A question for a worker.
pub(crate) struct ExplainJob {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Explanation>,
}

/// Maximum number of questions that wait for the worker.
pub(crate) const EXPLAIN_JOBS_MAX: usize = 16;

impl Question {
    /// Checks a question, except for limits of the process.
    ///
    /// # Errors
    /// [`ExplainError::MethodUnsafe`] or [`ExplainError::UrlUnusable`].
    pub fn check(&self) -> Result<(), ExplainError> {
        let Self { method, url, .. } = self;
        if ![Method::GET, Method::HEAD].contains(method) {
            return Err(ExplainError::MethodUnsafe);
        }
        // A valid URL may have an authority that `Host` doesn't allow.
        let authority = url.authority().and_then(|authority| Authority::parse(authority.as_str().as_bytes()));
        let is_sendable = authority.is_some_and(|authority| authority.port() != Some(0));
        match matches!(url.scheme_str(), Some("http" | "https")) && is_sendable {
            true => Ok(()),
            false => Err(ExplainError::UrlUnusable),
        }
    }

    /// Checks a question like [`Self::check`], and also the length of its target.
    pub(crate) fn check_in(&self, bytes_max: usize) -> Result<(), ExplainError> {
        self.check()?;
        let bytes = self.url.path_and_query().map_or(0, |target| target.as_str().len());
        if bytes > bytes_max { Err(ExplainError::UrlTooLong { bytes_max }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_what_clients_can_send() {
        let too_long = Err(ExplainError::UrlTooLong { bytes_max: 8 });
        for (method, url, expected) in [
            ("GET", "http://h/", Ok(())),
            ("HEAD", "https://h:65535", Ok(())),
            ("GET", "http://[::1]:1/1234567", Ok(())),
            ("GET", "http://h/12345678", too_long),
            ("GET", "http://h/?1234567", too_long),
            ("POST", "http://h/", Err(ExplainError::MethodUnsafe)),
            ("GET", "/", Err(ExplainError::UrlUnusable)),
            ("GET", "ftp://h/", Err(ExplainError::UrlUnusable)),
            ("GET", "http://user:password@h/", Err(ExplainError::UrlUnusable)),
            ("GET", "http://h:0/", Err(ExplainError::UrlUnusable)),
            ("GET", "http://h:99999/", Err(ExplainError::UrlUnusable)),
        ] {
            let question = Question {
                method: method.parse().expect("a method"),
                url: url.parse().expect("the grammar has it"),
                fields: HeaderMap::new(),
            };
            assert_eq!(question.check_in(8), expected, "{method} {url}");
        }
    }
}
