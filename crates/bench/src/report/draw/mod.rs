//! How a figure looks: laid out once as a [`scene`] of plain shapes, then written as SVG or painted as PNG.
//!
//! Widths of texts come from a font in the binary, so that the layout is the same on machines without fonts.

mod axis;
mod bars;
mod font;
mod legend;
mod lines;
mod measures;
mod png;
mod scene;
mod svg;

pub(super) use png::png;
pub(super) use scene::{Colour, Dash};
pub(super) use svg::svg;

use super::figures::{Content, Figure};
use measures::MARGIN;
use scene::{Anchor, Label, Scene, Weight};

/// Width of a chart, in the units of SVG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Wide,
    /// For telephones: texts have the size that they have on a wide screen.
    Narrow,
}

impl Width {
    fn units(self) -> f64 {
        match self {
            Self::Wide => 900.0,
            Self::Narrow => 380.0,
        }
    }
}

const TITLE_SIZE: f64 = 17.0;

/// The shapes of `figure`.
pub(super) fn scene(figure: &Figure, width: Width) -> Scene {
    let mut scene = Scene::new(width.units());
    scene.text(Label {
        at: (MARGIN, MARGIN + TITLE_SIZE),
        text: font::fitted(&figure.title, TITLE_SIZE, scene.width - 2.0 * MARGIN),
        size: TITLE_SIZE,
        anchor: Anchor::Start,
        weight: Weight::Medium,
        colour: Colour::Ink,
    });
    let top = MARGIN + TITLE_SIZE + 12.0;
    match &figure.content {
        Content::Lines(lines) => lines::draw(&mut scene, figure, lines, top),
        Content::Bars(bars) => bars::draw(&mut scene, bars, top),
    }
    scene
}
