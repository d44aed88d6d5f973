//! Messages of either protocol in the form that the gateway uses: heads, fields, trailers, the client to which a request counts,
//! and records of an exchange.
//!
//! Nothing here opens a connection or reads a configuration.
//!
//! Two records of an exchange are optional. If a record is absent, each step costs one comparison:
//!
//! - [`explain_record`] holds the decisions for `larder explain URL`. Each step adds its own decision as a sentence with values
//!   and a section, so that nothing is evaluated twice. Requests of clients carry no record.
//! - [`timeline`] holds the times for spans and `Server-Timing` (`docs/internals/tracing.md`).

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
