//! A scene as PNG, with the font of the binary: the same bytes on every machine.

use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform,
};
use ttf_parser::OutlineBuilder;

use super::scene::{Anchor, Label, Line, Scene, Seen, Shape, Spot};
use super::{Colour, font};

/// Pixels per unit of the scene: sharp on a projector, and in print at half a page.
const PIXELS_PER_UNIT: f32 = 2.0;
const OPAQUE: u8 = 255;
const HALF: u8 = 128;

/// The PNG file of a scene.
pub(in crate::report) fn png(scene: &Scene) -> Vec<u8> {
    let pixels = |units: f64| (units as f32 * PIXELS_PER_UNIT).ceil().max(1.0) as u32;
    let mut image =
        Pixmap::new(pixels(scene.width), pixels(scene.height)).expect("a chart has a size, and a small one");
    image.fill(colour(Colour::Ground, OPAQUE));
    scene.shapes.iter().for_each(|shape| paint(&mut image, shape));
    image.encode_png().expect("an image in memory can be encoded")
}

fn paint(image: &mut Pixmap, shape: &Shape) {
    match shape {
        Shape::Line(line) => stroke(image, line),
        Shape::Area { corners, colour } => fill(image, path(corners, Ends::Joined), *colour, HALF),
        Shape::Rectangle { corner, size, colour, .. } => {
            let rectangle = Rect::from_xywh(corner.0 as f32, corner.1 as f32, size.0 as f32, size.1 as f32);
            fill(image, rectangle.map(PathBuilder::from_rect), *colour, OPAQUE);
        }
        Shape::Dot { seen: Seen::UnderPointer, .. } => {}
        Shape::Dot { centre, colour, .. } => {
            fill(image, PathBuilder::from_circle(centre.0 as f32, centre.1 as f32, 4.0), *colour, OPAQUE);
        }
        Shape::Text(label) => write(image, label),
    }
}

fn write(image: &mut Pixmap, label: &Label) {
    let width = font::width(&label.text, label.size);
    let x = match label.anchor {
        Anchor::Start => label.at.0,
        Anchor::Middle => label.at.0 - width / 2.0,
        Anchor::End => label.at.0 - width,
    };
    let mut pen = Pen(PathBuilder::new());
    font::outline(&label.text, label.weight, label.size, (x, label.at.1), &mut pen);
    fill(image, pen.0.finish(), label.colour, OPAQUE);
}

fn stroke(image: &mut Pixmap, line: &Line) {
    let Some(path) = path(&line.spots, Ends::Open) else { return };
    let dash = line
        .dash
        .pattern()
        .and_then(|pattern| StrokeDash::new(pattern.map(|length| length as f32).to_vec(), 0.0));
    let stroke = Stroke {
        width: line.width as f32,
        line_cap: LineCap::Butt,
        line_join: LineJoin::Round,
        dash,
        ..Stroke::default()
    };
    image.stroke_path(&path, &paint_of(line.colour, OPAQUE), &stroke, transform(), None);
}

/// Fills `path`; what has no extent has none.
fn fill(image: &mut Pixmap, path: Option<Path>, colour: Colour, opacity: u8) {
    if let Some(path) = path {
        image.fill_path(&path, &paint_of(colour, opacity), FillRule::Winding, transform(), None);
    }
}

fn transform() -> Transform {
    Transform::from_scale(PIXELS_PER_UNIT, PIXELS_PER_UNIT)
}

fn paint_of(of: Colour, opacity: u8) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(colour(of, opacity));
    paint
}

fn colour(colour: Colour, opacity: u8) -> Color {
    let value = u32::from_str_radix(&colour.hex()[1..], 16).expect("every colour is six hexadecimal digits");
    let [_, red, green, blue] = value.to_be_bytes();
    Color::from_rgba8(red, green, blue, opacity)
}

#[derive(Clone, Copy)]
enum Ends {
    Open,
    Joined,
}

fn path(spots: &[Spot], ends: Ends) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (index, (x, y)) in spots.iter().enumerate() {
        match index {
            0 => builder.move_to(*x as f32, *y as f32),
            _ => builder.line_to(*x as f32, *y as f32),
        }
    }
    if matches!(ends, Ends::Joined) {
        builder.close();
    }
    builder.finish()
}

/// Puts outlines of glyphs into a path.
struct Pen(PathBuilder);

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
