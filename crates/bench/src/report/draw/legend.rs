//! The legend, above the data and never over it.

use super::font;
use super::measures::{MARGIN, TEXT_SIZE};
use super::scene::{Anchor, Colour, Dash, Label, Line, Scene, Spot, Weight};

const SAMPLE: f64 = 26.0;
const GAP: f64 = 7.0;
const ROW: f64 = 20.0;
const NAME_ROOM: f64 = 300.0;
/// What browsers without the font may need more.
const SPARE: f64 = 1.12;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) colour: Colour,
    pub(super) dash: Dash,
}

/// Draws the entries in rows from `top` on; answers where the legend ends.
pub(super) fn draw(scene: &mut Scene, entries: &[Entry], top: f64) -> f64 {
    let mut x = MARGIN;
    let mut y = top;
    let name_room = NAME_ROOM.min(scene.width - 2.0 * MARGIN - SAMPLE - 5.0 * GAP);
    for entry in entries {
        let name = font::fitted(&entry.name, TEXT_SIZE, name_room / SPARE);
        let width = SAMPLE + GAP + SPARE * font::width(&name, TEXT_SIZE) + 2.0 * GAP;
        if x > MARGIN && x + width > scene.width - MARGIN {
            x = MARGIN;
            y += ROW;
        }
        draw_entry(scene, entry, name, (x, y));
        x += width;
    }
    if entries.is_empty() { top } else { y + ROW + 4.0 }
}

fn draw_entry(scene: &mut Scene, entry: &Entry, name: String, (x, y): Spot) {
    let middle = y + ROW / 2.0;
    scene.line(Line {
        spots: vec![(x, middle), (x + SAMPLE, middle)],
        colour: entry.colour,
        width: 2.5,
        dash: entry.dash,
    });
    scene.text(Label {
        at: (x + SAMPLE + GAP, middle + TEXT_SIZE * 0.35),
        text: name,
        size: TEXT_SIZE,
        anchor: Anchor::Start,
        weight: Weight::Regular,
        colour: Colour::Ink,
    });
}
