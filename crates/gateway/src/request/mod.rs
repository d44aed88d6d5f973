//! A request on its way: replies and their bodies.

pub(crate) mod interims;
pub(crate) mod private;
pub(crate) mod reply;
pub(crate) mod respond;
