//! Messages as the gateway has them, whatever protocol they came by: heads, fields, trailers, the client that a request is
//! counted for, and what is noted of an exchange on its way.
//!
//! Nothing here opens a connection or reads a configuration.

pub mod client;
pub mod fields;
pub mod head;
pub mod piece;
pub mod read_ahead;
pub mod reason;
pub mod timeline;
pub mod trace;
pub mod trailers;
