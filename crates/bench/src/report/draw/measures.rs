//! Lengths that all figures share, in the units of SVG.

pub(super) const MARGIN: f64 = 18.0;
pub(super) const TEXT_SIZE: f64 = 13.0;
