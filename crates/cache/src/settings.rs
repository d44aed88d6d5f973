//! Settings of the cache.

use std::time::Duration;

use caching::tags::TagRules;
use caching::{Codings, FieldLine, Rules, Selecting};

use crate::imprint::Imprint;

/// Limits on waiting for another request's forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapseLimits {
    /// Maximum wait for the response head. After it, one waiter forwards again, for all waiters.
    pub wait_max: Duration,
    /// Maximum number of waiters per forward; further requests are forwarded on their own.
    pub waiters_max: usize,
    /// How waiters continue if the forward fails.
    pub on_failure: LeaderFailure,
    /// Time for which an uncacheable key is remembered, so that its requests aren't collapsed.
    pub uncacheable_for: Duration,
}

/// How waiters continue if the forward that they wait for fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderFailure {
    /// All waiters get the error of the failed forward, which protects a failing origin.
    Share,
    /// One waiter forwards again, once; the others wait for its response, or share its failure.
    HandOver,
}

/// Whether large bodies are kept in files, from which the kernel sends them. This only helps clients without TLS, and costs clients with
/// TLS a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    LargeBodies,
    None,
}

/// Rules of a site for what is stored and how stored responses are selected.
#[derive(Clone, Copy, Debug)]
pub struct StorageRules<'a> {
    pub caching: &'a Rules,
    /// Rules for the tags of responses.
    pub tags: &'a TagRules,
    /// Reduction of `Accept-Encoding`.
    pub codings: &'a Codings,
    /// Maximum size of a stored body.
    pub object_bytes_max: u64,
    /// Imprint of the site on its stored responses.
    pub imprint: Option<Imprint>,
    /// Maximum number of groups of a stored response.
    pub groups_max: usize,
}

impl<'a> StorageRules<'a> {
    /// Returns the criteria by which a request's fields select a stored response.
    #[inline]
    pub fn selecting<'r>(&self, request: &'r [FieldLine<'r>]) -> Selecting<'r>
    where
        'a: 'r,
    {
        Selecting::new(request, self.caching.negotiation).reduced_to(self.codings)
    }
}
