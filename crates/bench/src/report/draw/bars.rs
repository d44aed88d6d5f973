//! Bars side by side: one for each run.

use super::drawing::{Anchor, Colour, Drawing};
use super::font;
use super::measures::{MARGIN, TEXT_SIZE};
use crate::report::figures::Bar;

const ROW: f64 = 28.0;
const THICKNESS: f64 = 18.0;
const NAME_ROOM: f64 = 230.0;
/// Of the width of a narrow chart.
const NAME_SHARE: f64 = 0.26;
const VALUE_ROOM: f64 = 170.0;
/// More bars are not drawn; the table has them.
const BARS_MAX: usize = 40;

pub(super) fn draw(drawing: &mut Drawing, bars: &[Bar], top: f64) {
    let name_room = NAME_ROOM.min(drawing.width * NAME_SHARE);
    let longest = bars.iter().map(|bar| bar.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let names = bars.iter().map(|bar| font::width(&bar.name, TEXT_SIZE)).fold(0.0, f64::max).min(name_room);
    let left = MARGIN + names * 1.12 + 12.0;
    let room = drawing.width - MARGIN - VALUE_ROOM - left;
    for (row, bar) in bars.iter().take(BARS_MAX).enumerate() {
        let y = top + row as f64 * ROW;
        let share = if longest > 0.0 && bar.value > 0.0 { bar.value / longest } else { 0.0 };
        let length = (share * room).max(1.0);
        let corner = (left, y + (ROW - THICKNESS) / 2.0);
        let hover = format!("{}: {}", bar.name, bar.label);
        drawing.rectangle(corner, (length, THICKNESS), bar.colour, &hover);
        let base = y + ROW / 2.0 + TEXT_SIZE * 0.35;
        let name = font::fitted(&bar.name, TEXT_SIZE, name_room);
        drawing.text(&name, (left - 8.0, base), Anchor::End, Colour::Ink);
        drawing.text(&bar.label, (left + length + 8.0, base), Anchor::Start, Colour::Ink);
    }
    let mut bottom = top + bars.len().clamp(1, BARS_MAX) as f64 * ROW;
    if bars.len() > BARS_MAX {
        let text = format!("{} more in the table", bars.len() - BARS_MAX);
        drawing.text(&text, (left, bottom + TEXT_SIZE), Anchor::Start, Colour::Ink);
        bottom += ROW;
    }
    drawing.height = bottom + MARGIN;
}
