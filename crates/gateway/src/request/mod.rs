//! A request on its way: the loop and its steps, the call to its origin, replies and their bodies.

pub(crate) mod compression;
pub(crate) mod exchange;
pub(crate) mod interims;
pub(crate) mod origin_call;
pub(crate) mod overlay;
pub(crate) mod plan;
pub(crate) mod private;
pub(crate) mod reply;
pub(crate) mod respond;
pub(crate) mod steps;
