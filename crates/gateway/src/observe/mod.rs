//! What is told of requests: metrics and the access log, events, spans, and the findings of `larder explain`.

pub(crate) mod account;
pub mod events;
pub(crate) mod explain;
pub(crate) mod question;
pub(crate) mod traces;
