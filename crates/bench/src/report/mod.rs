//! What a bench shows: a [`Report`] as a table, JSON, data files, charts and one HTML page.
//!
//! Pure functions of the report: the same report gives the same bytes, on every machine and with every set of fonts.

mod data;
mod draw;
#[cfg(test)]
mod example;
mod figures;
mod html;
mod json;
mod merge;
mod number;
mod text;

pub use data::data_files;
pub use html::html;
pub use json::{ReadError, read, schema, write};
pub use merge::{Named, merge};
pub use text::text;

use crate::result::Report;

/// An image of a chart.
#[derive(Clone, Debug)]
pub struct Image {
    /// Of its file, with the ending of its format.
    pub name: String,
    pub content: Vec<u8>,
}

/// Every chart of the page, as SVG and as PNG.
#[must_use]
pub fn images(report: &Report) -> Vec<Image> {
    figures::figures(report).iter().flat_map(both_images).collect()
}

fn both_images(figure: &figures::Figure) -> [Image; 2] {
    let svg = draw::svg(figure, draw::Width::Wide);
    let png = draw::png(&svg);
    [
        Image { name: format!("{}.svg", figure.id), content: svg.into_bytes() },
        Image { name: format!("{}.png", figure.id), content: png },
    ]
}
