//! Turns an origin's response into a stored response under its key: fetch, judge, fill, put.

pub(crate) mod assembly;
pub(crate) mod fetch_spec;
pub(crate) mod fleet_fetch;
pub(crate) mod job;
pub(crate) mod other_methods;
pub(crate) mod part;
pub(crate) mod publication;
pub(crate) mod run;
