//! The cache of the gateway: what is stored, what is being fetched, and what changes either.

pub(crate) mod epochs;
pub(crate) mod findings;
pub(crate) mod inflight;
pub(crate) mod invalidate;
pub(crate) mod key;
pub(crate) mod lookup;
pub(crate) mod publish;
pub(crate) mod purge;
pub(crate) mod record;
pub(crate) mod refresh;
pub(crate) mod serve;
pub(crate) mod stale_if_error;
pub(crate) mod using;
