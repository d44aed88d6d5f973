//! The shapes that a chart consists of, as SVG.
//!
//! Every shape has its light colours as attributes, which any program understands, and a class, through which the style
//! sheet of a page gives it others.

use maud::{Markup, PreEscaped, html};

use super::measures::TEXT_SIZE;

pub(super) type Spot = (f64, f64);

/// A ground of its size, and the shapes on it in the order in which they are drawn.
#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) width: f64,
    pub(super) height: f64,
    shapes: String,
}

impl Drawing {
    pub(super) fn new(width: f64) -> Self {
        Self { width, height: 0.0, shapes: String::new() }
    }

    /// The whole image, described by `description` for those who do not see it.
    pub(super) fn svg(&self, description: &str) -> String {
        let (width, height) = (number(self.width), number(self.height));
        let (class, light) = Colour::Ground.look();
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox={ "0 0 " (width) " " (height) }
                width=(width) height=(height) role="img" aria-label=(description)
                font-family="Roboto, 'Helvetica Neue', Arial, sans-serif" {
                "\n" rect class=(class) width=(width) height=(height) fill=(light) {}
                "\n" (PreEscaped(&self.shapes))
            }
        };
        // XML has no way to write the other control characters.
        let unwritable = |character: char| character.is_control() && character != '\n';
        svg.into_string()
            .replace(|character| unwritable(character) || ('\u{fffe}'..='\u{ffff}').contains(&character), " ")
    }

    fn add(&mut self, shape: Markup) {
        self.shapes += &shape.into_string();
        self.shapes.push('\n');
    }

    /// Straight from spot to spot.
    pub(super) fn line(&mut self, spots: &[Spot], colour: Colour, width: f64, dash: Dash) {
        let (class, light) = colour.look();
        self.add(html! {
            path class={ (class) " line" } d=(path(spots)) fill="none" stroke=(light) stroke-width=(number(width))
                stroke-linejoin="round" stroke-dasharray=[dash.pattern()] {}
        });
    }

    /// A filled polygon, half transparent.
    pub(super) fn area(&mut self, corners: &[Spot], colour: Colour) {
        let (class, light) = colour.look();
        self.add(html! {
            path class={ (class) " area" } d={ (path(corners)) "Z" } fill=(light) fill-opacity="0.5" {}
        });
    }

    /// Says `hover` when the pointer is over it.
    pub(super) fn rectangle(&mut self, corner: Spot, size: Spot, colour: Colour, hover: &str) {
        let ((x, y), (width, height), (class, light)) = (corner, size, colour.look());
        self.add(html! {
            rect class=(class) x=(number(x)) y=(number(y)) width=(number(width)) height=(number(height)) fill=(light) {
                title { (hover) }
            }
        });
    }

    /// Says `hover` when the pointer is over it.
    pub(super) fn dot(&mut self, (x, y): Spot, colour: Colour, seen: Seen, hover: &str) {
        let (class, light) = colour.look();
        let hidden = seen == Seen::UnderPointer;
        self.add(html! {
            circle class={ (class) @if hidden { " hover" } } cx=(number(x)) cy=(number(y)) r="4" fill=(light)
                fill-opacity=[hidden.then_some("0")] { title { (hover) } }
        });
    }

    /// `at` is on the base line.
    pub(super) fn text(&mut self, text: &str, at: Spot, anchor: Anchor, colour: Colour) {
        let ((x, y), (class, light)) = (at, colour.look());
        self.add(html! {
            text class=(class) x=(number(x)) y=(number(y)) font-size=(number(TEXT_SIZE)) text-anchor=[anchor.word()]
                fill=(light) { (text) }
        });
    }

    /// Larger and heavier than other texts.
    pub(super) fn heading(&mut self, text: &str, (x, y): Spot, size: f64) {
        let (class, light) = Colour::Ink.look();
        self.add(html! {
            text class=(class) x=(number(x)) y=(number(y)) font-size=(number(size)) font-weight="500" fill=(light) {
                (text)
            }
        });
    }
}

fn path(spots: &[Spot]) -> String {
    let spots: Vec<String> = spots.iter().map(|(x, y)| format!("{} {}", number(*x), number(*y))).collect();
    format!("M{}", spots.join("L"))
}

/// With one decimal at most: a tenth of a pixel is finer than anybody sees.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // Adding zero takes the sign from a zero.
    (rounded + 0.0).to_string()
}

/// When a dot is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Always,
    /// Only under the pointer: it is there to carry a value.
    UnderPointer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Start => None,
            Self::Middle => Some("middle"),
            Self::End => Some("end"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Dash {
    Solid,
    Dashed,
    Dotted,
}

impl Dash {
    /// Lengths of stroke and gap.
    fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Solid => None,
            Self::Dashed => Some("7 4"),
            Self::Dotted => Some("2 3"),
        }
    }
}

/// The series that have a colour of their own: their class, and their colour on a light ground. They are told apart by people who see no red or
/// no green too (the palette of Okabe and Ito without its yellow, which is too light for lines).
const SERIES: [(&str, &str); 8] = [
    ("s0", "#0072b2"),
    ("s1", "#d55e00"),
    ("s2", "#009e73"),
    ("s3", "#cc79a7"),
    ("s4", "#e69f00"),
    ("s5", "#56b4e9"),
    ("s6", "#6a3d9a"),
    ("s7", "#4d4d4d"),
];

/// What a colour is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Colour {
    Ground,
    Grid,
    Axis,
    Ink,
    Faint,
    Series(usize),
    /// All series that have no colour of their own.
    Other,
}

impl Colour {
    /// The colour of the series with this index.
    pub(in crate::report) fn of_series(index: usize) -> Self {
        if index < SERIES.len() { Self::Series(index) } else { Self::Other }
    }

    /// What style sheets call it, and its value on a light ground.
    fn look(self) -> (&'static str, &'static str) {
        match self {
            Self::Ground => ("ground", "#ffffff"),
            Self::Grid => ("grid", "#e4e7eb"),
            Self::Axis => ("axis", "#8a939e"),
            Self::Ink => ("ink", "#1c2128"),
            Self::Faint => ("faint", "#57606a"),
            Self::Series(index) => SERIES[index % SERIES.len()],
            Self::Other => ("other", "#b8c0c9"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_text() {
        let mut drawing = Drawing::new(1.0);
        drawing.dot((1.0, 0.25), Colour::Ink, Seen::Always, "</title><img src='x' onerror=\"a&b\">\u{0}");
        let escaped = "&lt;/title&gt;&lt;img src='x' onerror=&quot;a&amp;b&quot;&gt; </title>";
        let svg = drawing.svg("\"<&\u{ffff}");
        assert!(svg.contains(escaped) && svg.contains("aria-label=\"&quot;&lt;&amp; \""), "{svg}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([number(1.0), number(0.25), number(-0.01)], ["1", "0.3", "0"]);
    }
}
