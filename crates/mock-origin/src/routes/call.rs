//! A request, with the state that all workers share.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::request::Parts;
use tokio::sync::Semaphore;

use crate::{counters::Counters, options::Prefix};

/// State of the whole origin. Its locks are leaves and never held over an await.
pub(crate) struct State {
    pub(crate) counters: Counters,
    pub(crate) prefix: Prefix,
    /// Busy work per handler of the products API.
    pub(crate) cpu: Duration,
    /// Slots of requests that wait out their `delay`.
    pub(crate) delay_slots: Semaphore,
}

/// A request with its body read.
pub(super) struct Call<'a> {
    pub(super) head: &'a Parts,
    pub(super) body: Bytes,
    pub(super) state: &'a State,
}

/// Returns path and query as received; `*` and authority forms as they are.
pub(super) fn target(head: &Parts) -> Arc<str> {
    head.uri.path_and_query().map_or_else(|| head.uri.to_string().into(), |target| target.as_str().into())
}
