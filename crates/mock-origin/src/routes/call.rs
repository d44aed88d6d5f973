//! What a resource is asked.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;

use crate::{knobs::Knobs, state::State};

/// A request with its body read.
pub(super) struct Call<'a> {
    pub(super) head: &'a Parts,
    pub(super) body: Bytes,
    pub(super) knobs: &'a Knobs,
    pub(super) state: &'a State,
}

/// Path and query as received; `*` and authority forms as they are.
pub(super) fn target(head: &Parts) -> Arc<str> {
    head.uri.path_and_query().map_or_else(|| head.uri.to_string().into(), |target| target.as_str().into())
}
