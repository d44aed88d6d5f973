//! The shapes that a chart consists of, without a word about files.

/// Shapes in the order in which they are drawn, on a ground of its size.
#[derive(Debug)]
pub(in crate::report) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

pub(super) type Spot = (f64, f64);

#[derive(Debug)]
pub(super) enum Shape {
    Line(Line),
    /// A filled polygon, half transparent.
    Area {
        corners: Vec<Spot>,
        colour: Colour,
    },
    Rectangle {
        corner: Spot,
        size: Spot,
        colour: Colour,
        hover: String,
    },
    Dot {
        centre: Spot,
        colour: Colour,
        /// What it says when the pointer is over it.
        hover: String,
        seen: Seen,
    },
    Text(Label),
}

/// Straight from spot to spot.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) spots: Vec<Spot>,
    pub(super) colour: Colour,
    pub(super) width: f64,
    pub(super) dash: Dash,
}

#[derive(Debug)]
pub(super) struct Label {
    /// On the base line.
    pub(super) at: Spot,
    pub(super) text: String,
    pub(super) size: f64,
    pub(super) anchor: Anchor,
    pub(super) weight: Weight,
    pub(super) colour: Colour,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Regular,
    Medium,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Dash {
    Solid,
    Dashed,
    Dotted,
}

impl Dash {
    /// Lengths of stroke and gap.
    pub(super) fn pattern(self) -> Option<[f64; 2]> {
        match self {
            Self::Solid => None,
            Self::Dashed => Some([7.0, 4.0]),
            Self::Dotted => Some([2.0, 3.0]),
        }
    }
}

/// How many series have a colour of their own.
pub(in crate::report) const SERIES_COLOURS: usize = 8;

/// What a colour is for; the page gives it another value in the dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Colour {
    Ground,
    Grid,
    Axis,
    Ink,
    Faint,
    /// One of [`SERIES_COLOURS`].
    Series(usize),
    /// All series that have no colour of their own.
    Other,
}

impl Colour {
    /// The colour of the series with this index.
    pub(in crate::report) fn of_series(index: usize) -> Self {
        if index < SERIES_COLOURS { Self::Series(index) } else { Self::Other }
    }

    /// On a light ground. The series are told apart by people who see no red or no green too (the palette of Okabe and
    /// Ito without its yellow, which is too light for lines).
    pub(super) fn hex(self) -> &'static str {
        const SERIES: [&str; SERIES_COLOURS] =
            ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#4d4d4d"];
        match self {
            Self::Ground => "#ffffff",
            Self::Grid => "#e4e7eb",
            Self::Axis => "#8a939e",
            Self::Ink => "#1c2128",
            Self::Faint => "#57606a",
            Self::Series(index) => SERIES[index % SERIES_COLOURS],
            Self::Other => "#b8c0c9",
        }
    }

    /// What style sheets call it.
    pub(super) fn class(self) -> String {
        match self {
            Self::Ground => "ground".into(),
            Self::Grid => "grid".into(),
            Self::Axis => "axis".into(),
            Self::Ink => "ink".into(),
            Self::Faint => "faint".into(),
            Self::Series(index) => format!("s{index}"),
            Self::Other => "other".into(),
        }
    }
}

impl Scene {
    pub(super) fn new(width: f64) -> Self {
        Self { width, height: 0.0, shapes: Vec::new() }
    }

    pub(super) fn text(&mut self, label: Label) {
        self.shapes.push(Shape::Text(label));
    }

    pub(super) fn line(&mut self, line: Line) {
        self.shapes.push(Shape::Line(line));
    }
}
