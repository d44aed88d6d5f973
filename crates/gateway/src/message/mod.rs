//! Requests and responses as the gateway has them, whatever protocol they came by: heads, fields, replies and their bodies.

pub(crate) mod fields;
pub(crate) mod head;
pub(crate) mod interims;
pub(crate) mod piece;
pub(crate) mod private;
pub(crate) mod reply;
pub(crate) mod respond;
pub(crate) mod trailers;
