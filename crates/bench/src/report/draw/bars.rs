//! Bars side by side: one for each run.

use super::font;
use super::measures::{MARGIN, TEXT_SIZE};
use super::scene::{Anchor, Colour, Label, Scene, Shape, Weight};
use crate::report::figures::Bar;

const ROW: f64 = 28.0;
const THICKNESS: f64 = 18.0;
const NAME_ROOM: f64 = 230.0;
/// Of the width of a narrow chart.
const NAME_SHARE: f64 = 0.26;
const VALUE_ROOM: f64 = 170.0;
/// More bars are not drawn; the table has them.
const BARS_MAX: usize = 40;

pub(super) fn draw(scene: &mut Scene, bars: &[Bar], top: f64) {
    let name_room = NAME_ROOM.min(scene.width * NAME_SHARE);
    let longest = bars.iter().map(|bar| bar.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let names = bars.iter().map(|bar| font::width(&bar.name, TEXT_SIZE)).fold(0.0, f64::max).min(name_room);
    let left = MARGIN + names * 1.12 + 12.0;
    let room = scene.width - MARGIN - VALUE_ROOM - left;
    for (row, bar) in bars.iter().take(BARS_MAX).enumerate() {
        let y = top + row as f64 * ROW;
        let share = if longest > 0.0 && bar.value > 0.0 { bar.value / longest } else { 0.0 };
        let length = (share * room).max(1.0);
        scene.shapes.push(Shape::Rectangle {
            corner: (left, y + (ROW - THICKNESS) / 2.0),
            size: (length, THICKNESS),
            colour: bar.colour,
            hover: format!("{}: {}", bar.name, bar.label),
        });
        let base = y + ROW / 2.0 + TEXT_SIZE * 0.35;
        let name = font::fitted(&bar.name, TEXT_SIZE, name_room);
        scene.text(label(name, (left - 8.0, base), Anchor::End));
        scene.text(label(bar.label.clone(), (left + length + 8.0, base), Anchor::Start));
    }
    let mut bottom = top + bars.len().clamp(1, BARS_MAX) as f64 * ROW;
    if bars.len() > BARS_MAX {
        let text = format!("{} more in the table", bars.len() - BARS_MAX);
        scene.text(label(text, (left, bottom + TEXT_SIZE), Anchor::Start));
        bottom += ROW;
    }
    scene.height = bottom + MARGIN;
}

fn label(text: String, at: (f64, f64), anchor: Anchor) -> Label {
    Label { at, text, size: TEXT_SIZE, anchor, weight: Weight::Regular, colour: Colour::Ink }
}
