//! Messages of either protocol, as the gateway uses them: heads, fields, trailers, the client that a request counts for, and the
//! records of an exchange.
//!
//! Nothing here opens a connection or reads a configuration.

pub mod client;
pub mod clock;
pub mod explain_record;
pub mod fields;
pub mod head;
pub mod piece;
pub mod read_ahead;
pub mod reason;
pub mod timeline;
pub mod trailers;
