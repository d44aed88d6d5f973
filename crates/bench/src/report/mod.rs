//! A [`Report`](crate::result::Report) as a table, as JSON, and as one HTML page with charts.
//!
//! Pure functions of the report: the same report produces the same bytes, on every machine and with any fonts
//! installed.

mod charts;
mod drawing;
#[cfg(test)]
mod example;
mod html;
mod json;
pub(crate) mod number;
mod text;

pub use drawing::bars;
pub use html::html;
pub use json::{ReadError, read, write};
pub use text::{markdown, text};
