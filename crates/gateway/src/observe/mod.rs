//! Reports about requests: metrics, the access log, spans, and the findings of `larder explain`.

pub(crate) mod account;
pub(crate) mod explain;
pub(crate) mod otel;
