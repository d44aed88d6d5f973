//! The processing of requests: the loop and its steps, calls to origins, replies and their bodies.

pub(crate) mod account;
pub(crate) mod context;
pub(crate) mod decide;
pub(crate) mod fetch;
pub(crate) mod findings;
pub(crate) mod invalidate;
pub(crate) mod lookup;
pub(crate) mod origin_call;
pub(crate) mod otel;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod private;
pub(crate) mod pump;
pub(crate) mod refresh;
pub(crate) mod reply;
pub(crate) mod respond;
pub(crate) mod serve;
pub(crate) mod steps;
