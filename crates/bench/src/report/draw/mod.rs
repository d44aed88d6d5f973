//! How a figure looks: drawn once as SVG, of which PNG is painted.
//!
//! Widths of texts come from a font in the binary, so that the layout is the same on machines without fonts.

mod axis;
mod bars;
mod drawing;
mod font;
mod legend;
mod lines;
mod measures;

pub(super) use drawing::{Colour, Dash};

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{self, FaceInfo, ID, Language, Source, Stretch, Style, Weight};
use resvg::usvg::{Options, Tree};

use super::figures::{Content, Figure};
use drawing::Drawing;
use measures::MARGIN;

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
const TITLE_LINE: f64 = 22.0;
const TITLE_LINES_MAX: usize = 4;

/// `figure` as SVG.
pub(super) fn svg(figure: &Figure, width: Width) -> String {
    let mut drawing = Drawing::new(width.units());
    let base = draw_title(&mut drawing, &figure.title);
    let top = base + 12.0;
    match &figure.content {
        Content::Lines(curves) => lines::draw(&mut drawing, figure, curves, top),
        Content::Bars(bars) => bars::draw(&mut drawing, bars, top),
    }
    drawing.svg(&figure.description)
}

/// Draws it in as many lines as it needs; answers with the base of the last one.
fn draw_title(drawing: &mut Drawing, title: &str) -> f64 {
    let mut base = MARGIN + TITLE_SIZE;
    let room = (drawing.width - 2.0 * MARGIN) / font::SPARE;
    for (number, text) in font::wrapped(title, TITLE_SIZE, room, TITLE_LINES_MAX).iter().enumerate() {
        base = MARGIN + TITLE_SIZE + number as f64 * TITLE_LINE;
        drawing.heading(text, (MARGIN, base), TITLE_SIZE);
    }
    base
}

/// Pixels per unit: sharp on a projector, and in print at half a page.
const PIXELS_PER_UNIT: f32 = 2.0;

/// What [`svg`] has made, as PNG, with the fonts of the binary: the same bytes on every machine.
pub(super) fn png(svg: &str) -> Vec<u8> {
    let options = Options { fontdb: Arc::clone(&FONTS), ..Options::default() };
    let tree = Tree::from_str(svg, &options).expect("a chart is SVG");
    let [width, height] = [tree.size().width(), tree.size().height()].map(|units| units * PIXELS_PER_UNIT);
    let mut image =
        Pixmap::new(width.ceil() as u32, height.ceil() as u32).expect("a chart has a size, and a small one");
    let scale = Transform::from_scale(PIXELS_PER_UNIT, PIXELS_PER_UNIT);
    resvg::render(&tree, scale, &mut image.as_mut());
    image.encode_png().expect("an image in memory can be encoded")
}

/// By name, since their files have none: they are cut down.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    for (weight, file) in font::FILES {
        fonts.push_face_info(FaceInfo {
            id: ID::dummy(),
            source: Source::Binary(Arc::new(file)),
            index: 0,
            families: vec![("Roboto".to_owned(), Language::English_UnitedStates)],
            post_script_name: "Roboto".to_owned(),
            style: Style::Normal,
            weight: Weight(weight),
            stretch: Stretch::Normal,
            monospaced: false,
        });
    }
    Arc::new(fonts)
});

#[cfg(test)]
mod tests {
    use super::drawing::Anchor;
    use super::measures::TEXT_SIZE;
    use super::*;

    #[test]
    fn texts_are_painted_in_their_weight() {
        let ink = |paint: fn(&mut Drawing)| {
            let mut drawing = Drawing::new(200.0);
            drawing.height = 40.0;
            paint(&mut drawing);
            let image = Pixmap::decode_png(&png(&drawing.svg(""))).expect("it is one");
            image.pixels().iter().filter(|pixel| pixel.red() < 128).count()
        };
        let plain = ink(|drawing| drawing.text("Latency", (10.0, 30.0), Anchor::Start, Colour::Ink));
        let heavy = ink(|drawing| drawing.heading("Latency", (10.0, 30.0), TEXT_SIZE));
        assert!(plain > 200 && heavy > plain + plain / 10, "{plain} and {heavy} dark pixels");
    }

    #[test]
    fn a_title_stands_whole_above_a_narrow_chart() {
        let title = "collapse = process: one origin request per expiry, whatever the number of clients that wait for it";
        let base = |title: &str| draw_title(&mut Drawing::new(Width::Narrow.units()), title);
        let room = Width::Narrow.units() - 2.0 * MARGIN;
        let lines = font::wrapped(title, TITLE_SIZE, room / font::SPARE, TITLE_LINES_MAX);
        assert_eq!(lines.join(" "), title);
        assert!(lines.len() > 1 && lines.iter().all(|line| font::width(line, TITLE_SIZE) <= room));
        let more = (lines.len() - 1) as f64 * TITLE_LINE;
        assert!((base(title) - base("short") - more).abs() < 1e-9, "the rest of the chart makes room");
    }
}
