//! What a bench shows: a [`Report`](crate::result::Report) as a table, JSON, data files, charts and one HTML page.
//!
//! Pure functions of the report: the same report gives the same bytes, on every machine and with every set of fonts.

mod data;
#[cfg(test)]
mod example;
mod json;
mod merge;
mod number;
mod text;

pub use data::data_files;
pub use json::{ReadError, read, schema, write};
pub use merge::{Named, merge};
pub use text::text;
