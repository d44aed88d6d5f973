//! The legend, above the data and never over it.

use super::drawing::{Anchor, Colour, Dash, Drawing};
use super::font::{self, SPARE};
use super::measures::{MARGIN, TEXT_SIZE};

const SAMPLE: f64 = 26.0;
const GAP: f64 = 7.0;
const ROW: f64 = 20.0;
const NAME_ROOM: f64 = 300.0;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) colour: Colour,
    pub(super) dash: Dash,
}

/// Draws the entries in rows from `top` on; answers where the legend ends.
pub(super) fn draw(drawing: &mut Drawing, entries: &[Entry], top: f64) -> f64 {
    let mut x = MARGIN;
    let mut y = top;
    let name_room = NAME_ROOM.min(drawing.width - 2.0 * MARGIN - SAMPLE - 5.0 * GAP);
    for entry in entries {
        let name = font::fitted(&entry.name, TEXT_SIZE, name_room / SPARE);
        let width = SAMPLE + GAP + SPARE * font::width(&name, TEXT_SIZE) + 2.0 * GAP;
        if x > MARGIN && x + width > drawing.width - MARGIN {
            x = MARGIN;
            y += ROW;
        }
        let middle = y + ROW / 2.0;
        drawing.line(&[(x, middle), (x + SAMPLE, middle)], entry.colour, 2.5, entry.dash);
        let at = (x + SAMPLE + GAP, middle + TEXT_SIZE * 0.35);
        drawing.text(&name, at, Anchor::Start, Colour::Ink);
        x += width;
    }
    if entries.is_empty() { top } else { y + ROW + 4.0 }
}
