//! The font in the binary: how wide a text is.

use std::sync::LazyLock;

use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider as _};

use crate::report::number::{self, shortened};

/// The weights, each with its file.
pub(super) const FILES: [(u16, &[u8]); 2] = [
    (400, include_bytes!("../../../fonts/Roboto-Regular.ttf")),
    (500, include_bytes!("../../../fonts/Roboto-Medium.ttf")),
];

static REGULAR: LazyLock<FontRef<'static>> =
    LazyLock::new(|| FontRef::new(FILES[0].1).expect("the font in the binary is whole"));

/// Width of `text` in the regular weight. The medium one is wider by less than what every layout has to spare.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let (glyphs, metrics) =
        (REGULAR.charmap(), REGULAR.glyph_metrics(Size::new(size as f32), LocationRef::default()));
    // What the font lacks is drawn as a box and has the width of that.
    let advance = |character: char| metrics.advance_width(glyphs.map(character).unwrap_or_default());
    text.chars().filter_map(advance).map(f64::from).sum()
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

/// `text` in at most `lines_max` lines, parted between words. A word that is too long for a line, and the last line where the text is too long for
/// all of them, lose their middle.
pub(super) fn wrapped(text: &str, size: f64, room: f64, lines_max: usize) -> Vec<String> {
    let lines = number::wrapped(text, lines_max, |line| width(line, size) <= room);
    lines.into_iter().map(|line| fitted(&line, size, room)).collect()
}

/// What browsers without the font may need more.
pub(super) const SPARE: f64 = 1.12;

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
    fn texts_are_parted_between_words() {
        let lines = |text: &str, lines_max| wrapped(text, 13.0, 60.0, lines_max);
        assert_eq!(lines("one two", 4), ["one two"]);
        assert_eq!(lines("one two three four five", 4), ["one two", "three four", "five"]);
        assert_eq!(lines("", 4), [""; 0]);
        let cut = lines("one two three four five six", 2);
        assert!(cut.len() == 2 && cut[1].contains('…') && width(&cut[1], 13.0) <= 60.0, "{cut:?}");
        let long = lines("a http://127.0.0.1:8080/long", 4);
        assert!(long.len() == 2 && long[1].contains('…'), "{long:?}");
    }

    #[test]
    fn every_character_of_our_own_texts_has_a_glyph() {
        for (_, file) in FILES {
            let glyphs = FontRef::new(file).expect("the font is whole").charmap();
            let missing: String =
                "µ…±×−–·%0123456789,.()kMG".chars().filter(|each| glyphs.map(*each).is_none()).collect();
            assert_eq!(missing, "");
        }
    }
}
