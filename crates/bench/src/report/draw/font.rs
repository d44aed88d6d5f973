//! The font in the binary: how wide a text is, and its outlines.

use std::sync::LazyLock;

use ttf_parser::{Face, OutlineBuilder};

use super::scene::Weight;
use crate::report::number::shortened;

static REGULAR: LazyLock<Face<'static>> =
    LazyLock::new(|| parsed(include_bytes!("../../../fonts/Roboto-Regular.ttf")));
static MEDIUM: LazyLock<Face<'static>> =
    LazyLock::new(|| parsed(include_bytes!("../../../fonts/Roboto-Medium.ttf")));

fn parsed(bytes: &'static [u8]) -> Face<'static> {
    Face::parse(bytes, 0).expect("the font in the binary is whole")
}

fn face(weight: Weight) -> &'static Face<'static> {
    match weight {
        Weight::Regular => &REGULAR,
        Weight::Medium => &MEDIUM,
    }
}

/// Width of `text` in the regular weight. The medium one is wider by less than what every layout has to spare.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let face = face(Weight::Regular);
    text.chars().map(|character| advance(face, character)).sum::<f64>() * scale(face, size)
}

fn advance(face: &Face<'_>, character: char) -> f64 {
    // What the font lacks is drawn as a box and has the width of that.
    let glyph = face.glyph_index(character).unwrap_or_default();
    f64::from(face.glyph_hor_advance(glyph).unwrap_or_default())
}

fn scale(face: &Face<'_>, size: f64) -> f64 {
    size / f64::from(face.units_per_em())
}

/// `text`, with its middle cut out until it is at most `room` wide.
pub(super) fn fitted(text: &str, size: f64, room: f64) -> String {
    let mut fitting = text.to_owned();
    let mut characters = text.chars().count();
    while characters > 1 && width(&fitting, size) > room {
        characters -= 1;
        fitting = shortened(text, characters);
    }
    fitting
}

/// Draws the outlines of `text` from `x`, `y` on.
pub(super) fn outline(
    text: &str,
    weight: Weight,
    size: f64,
    (x, y): (f64, f64),
    pen: &mut dyn OutlineBuilder,
) {
    let face = face(weight);
    let scale = scale(face, size);
    let mut x = x;
    for character in text.chars() {
        let mut placed = Placed { pen, x: x as f32, y: y as f32, scale: scale as f32 };
        // A space has no outline.
        let _ = face.outline_glyph(face.glyph_index(character).unwrap_or_default(), &mut placed);
        x += advance(face, character) * scale;
    }
}

/// Moves and scales outlines, and turns them over: fonts count upwards, images downwards.
struct Placed<'a> {
    pen: &'a mut dyn OutlineBuilder,
    x: f32,
    y: f32,
    scale: f32,
}

impl Placed<'_> {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, self.y - y * self.scale)
    }
}

impl OutlineBuilder for Placed<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.pen.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.pen.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.pen.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.pen.curve_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.pen.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_where_they_are_told_to() {
        let long = "http://127.0.0.1:8080/a/rather/long/path?with=a&query=string";
        let fitting = fitted(long, 13.0, 120.0);
        assert!(width(&fitting, 13.0) <= 120.0 && fitting.contains('…'), "{fitting}");
        assert_eq!(fitted("short", 13.0, 120.0), "short");
        assert!(width("iiii", 13.0) < width("mmmm", 13.0));
    }

    #[test]
    fn every_character_of_our_own_texts_has_a_glyph() {
        for weight in [Weight::Regular, Weight::Medium] {
            let missing: String = "µ…±×−–·%0123456789,.()kMG"
                .chars()
                .filter(|each| face(weight).glyph_index(*each).is_none())
                .collect();
            assert_eq!(missing, "");
        }
    }
}
