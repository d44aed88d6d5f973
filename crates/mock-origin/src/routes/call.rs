//! A request, with the state that all workers share.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::request::Parts;
use tokio::sync::Semaphore;

use crate::{counters::Counters, options::Prefix};

/// State of the whole origin. No lock in it is held while another one is acquired, or across an
/// await.
pub(crate) struct State {
    pub(crate) counters: Counters,
    pub(crate) prefix: Prefix,
    /// CPU time for each request to the products API.
    pub(crate) cpu: Duration,
    /// Slots for requests that wait for their `delay`.
    pub(crate) delay_slots: Semaphore,
}

/// A request with its whole body.
pub(super) struct Call<'a> {
    pub(super) head: &'a Parts,
    pub(super) body: Bytes,
    pub(super) state: &'a State,
}

/// Returns the path and query as received; `*` and authority forms as they are.
pub(super) fn target(head: &Parts) -> Arc<str> {
    head.uri.path_and_query().map_or_else(|| head.uri.to_string().into(), |target| target.as_str().into())
}
