//! Messages as the gateway has them, whatever protocol they came by: heads, fields, trailers, the client that a request is
//! counted for, and what is noted of an exchange on its way.
//!
//! Nothing here reads a socket or a configuration.

pub mod client;
pub mod fields;
pub mod head;
pub mod piece;
pub mod reason;
pub mod timeline;
pub mod trace;
pub mod trailers;
