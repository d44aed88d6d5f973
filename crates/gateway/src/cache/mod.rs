//! The cache of the gateway: looks up, serves, fetches, collapses, stores.

pub(crate) mod ahead;
pub(crate) mod ask;
pub(crate) mod assemble;
pub(crate) mod collapse;
mod driven;
pub(crate) mod epochs;
pub(crate) mod fetch;
pub(crate) mod fill;
pub(crate) mod fill_ranges;
pub(crate) mod findings;
pub(crate) mod flight;
pub(crate) mod freshen;
pub(crate) mod head_update;
pub(crate) mod invalidate;
mod lone;
pub(crate) mod lookup;
pub(crate) mod part;
pub(crate) mod publish;
pub(crate) mod purge;
pub(crate) mod query;
mod relief;
pub(crate) mod segmented;
pub(crate) mod serve;
pub(crate) mod stand_in;
pub(crate) mod stored;
pub(crate) mod written;
