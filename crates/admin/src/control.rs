//! What the admin listener asks of the process. The binary implements it.

use std::pin::Pin;

use serde::{Deserialize, Serialize};

use crate::error::{ExplainError, PurgeError, SiteUrls};
use crate::explain::{Explanation, Question};

/// A future that a [`Control`] returns.
pub type ControlFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The process, as far as an operator can move it.
pub trait Control: Send + Sync {
    /// Whether new requests are welcome. Called at each probe; must be quick.
    fn readiness(&self) -> Readiness;

    /// Purges everything stored for this URL, all variants and fills in progress included.
    /// The listener counts `larder_purges_total`.
    fn purge<'a>(
        &'a self,
        url: &'a str,
        mode: PurgeMode,
    ) -> ControlFuture<'a, Result<PurgeOutcome, PurgeError>>;

    /// Makes a request as a client would, and tells what was decided about it.
    fn explain(&self, question: Question) -> ControlFuture<'_, Result<Explanation, ExplainError>>;

    /// Loads the configuration again and returns its warnings, or returns its problems and leaves the running one in
    /// force. The implementation counts `larder_reloads_total`, because signals lead there too.
    fn reload(&self) -> ControlFuture<'_, Result<Vec<String>, Vec<String>>>;
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

/// What a purge leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PurgeMode {
    /// Nothing: stored responses are removed.
    #[default]
    Hard,
    /// Stale responses: they are validated before they are used again, and may be used where
    /// stale ones are allowed.
    Soft,
}

impl PurgeMode {
    /// The word of the API and of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
        }
    }

    /// The mode of a word of the API.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Hard, Self::Soft].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// What a purge found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PurgeOutcome {
    /// Cache keys of the URL that had something stored or on its way.
    pub keys_matched: u64,
    /// Stored responses, counted with all variants, that were removed or made stale.
    pub responses_purged: u64,
    /// Fills in progress whose result will not be reused.
    pub fills_doomed: u64,
    /// Stored responses under keys with the content or the fields of their requests may be out of use too, of which there is no list to count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keyed_uncounted: bool,
    /// Only where nothing matched.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub hints: Option<PurgeHints>,
}

/// What the caller may have meant whose URL matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PurgeHints {
    /// Similar URLs under which something is stored.
    pub elsewhere: Vec<String>,
    /// The sites there are.
    pub sites: Vec<SiteUrls>,
}
