//! Settings of the cache.

use std::time::Duration;

use caching::tags::TagRules;
use caching::{Codings, FieldLine, Rules, Selecting};

use crate::imprint::Imprint;

/// Bounds on waiting for another request's forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapseLimits {
    /// Longest wait for the response head before one waiter forwards again, for all.
    pub wait_max: Duration,
    /// Waiters per forward; more are forwarded on their own.
    pub waiters_max: usize,
    /// How waiters go on when the forward fails.
    pub on_failure: LeaderFailure,
    /// How long a key that turned out uncacheable is remembered and not collapsed.
    pub uncacheable_for: Duration,
}

/// How waiters go on when the forward that they wait for fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderFailure {
    /// All get the error of the failed forward: spares an origin in trouble.
    Share,
    /// One of them forwards again, once; the others wait for it, and share its failure.
    HandOver,
}

/// Whether large bodies lie in files, from which the kernel sends them: that only helps clients without TLS, and costs the others
/// a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    LargeBodies,
    None,
}

/// Rules of a site for what is stored, and for the selection among stored responses.
#[derive(Clone, Copy, Debug)]
pub struct StorageRules<'a> {
    pub caching: &'a Rules,
    /// Tags of responses that count.
    pub tags: &'a TagRules,
    /// Reduction of `Accept-Encoding`.
    pub codings: &'a Codings,
    /// Largest body that is stored.
    pub object_bytes_max: u64,
    /// Imprint of the site on its stored responses.
    pub imprint: Option<Imprint>,
    /// Maximum number of groups of a stored response.
    pub groups_max: usize,
}

impl<'a> StorageRules<'a> {
    /// Selection among stored responses by the fields of a request.
    #[inline]
    pub fn selecting<'r>(&self, request: &'r [FieldLine<'r>]) -> Selecting<'r>
    where
        'a: 'r,
    {
        Selecting::new(request, self.caching.negotiation).reduced_to(self.codings)
    }
}
