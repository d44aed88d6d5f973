//! A request on its way: the call to its origin, replies and their bodies.

pub(crate) mod interims;
pub(crate) mod origin_call;
pub(crate) mod private;
pub(crate) mod reply;
pub(crate) mod respond;
