//! Lines with ribbons over two axes.

use super::axis::{Fit, Scaled, Tick};
use super::drawing::{Anchor, Colour, Dash, Drawing, Seen, Spot};
use super::font;
use super::legend::{self, Entry};
use super::measures::{MARGIN, TEXT_SIZE};
use crate::report::figures::{Curve, Figure};
use crate::report::number::significant;
use crate::result::{Point, Scale};

const PLOT_HEIGHT: f64 = 300.0;
/// Points that carry their value for the pointer; a chart with more has none, for the page's sake.
const HOVERS_MAX: usize = 1500;

/// The rectangle that the data are drawn in, with its axes.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Scaled,
    y: Scaled,
}

impl Plot {
    fn x_at(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    fn y_at(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }

    fn spot(&self, point: &Point) -> Option<Spot> {
        Some((self.x_at(self.x.place(point.x)?), self.y_at(self.y.place(point.y)?)))
    }
}

pub(super) fn draw(drawing: &mut Drawing, figure: &Figure, curves: &[Curve], top: f64) {
    let legend_end = legend::draw(drawing, &entries(curves), top);
    let plot = plot(drawing.width, figure, curves, legend_end + 26.0);
    drawing.height = plot.bottom + 52.0;
    draw_axes(drawing, figure, &plot);
    if !curves.iter().any(|curve| curve.points.iter().any(|point| plot.spot(point).is_some())) {
        let middle = (f64::midpoint(plot.left, plot.right), f64::midpoint(plot.top, plot.bottom));
        drawing.text("no data", middle, Anchor::Middle, Colour::Faint);
    }
    let hovers = curves.iter().map(|curve| curve.points.len()).sum::<usize>() <= HOVERS_MAX;
    curves.iter().for_each(|curve| draw_ribbon(drawing, curve, &plot));
    // The first series are the ones that readers look for: they go on top.
    curves.iter().rev().for_each(|curve| draw_curve(drawing, curve, &plot));
    if hovers {
        curves.iter().for_each(|curve| draw_hovers(drawing, figure, curve, &plot));
    }
}

/// The named series, and one entry for all that have no colour of their own.
fn entries(curves: &[Curve]) -> Vec<Entry> {
    let entry = |curve: &Curve| Entry { name: curve.name.clone(), colour: curve.colour, dash: curve.dash };
    let mut entries: Vec<Entry> =
        curves.iter().filter(|curve| curve.colour != Colour::Other).map(entry).collect();
    let folded = curves.len() - entries.len();
    if folded > 0 {
        let name = format!("{folded} more");
        entries.push(Entry { name, colour: Colour::Other, dash: Dash::Solid });
    }
    entries
}

fn plot(width: f64, figure: &Figure, curves: &[Curve], top: f64) -> Plot {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let edges = points().filter_map(|point| point.ribbon).flat_map(|(low, high)| [low, high]);
    let ys = points().map(|point| point.y).chain(edges);
    let y = Scaled::new(figure.y.scale, Fit::Round, ys, 8);
    let widest = y.ticks.iter().map(|tick| font::width(&tick.label, TEXT_SIZE)).fold(0.0, f64::max);
    let left = MARGIN + widest * 1.1 + 10.0;
    let x = Scaled::new(figure.x.scale, Fit::Tight, points().map(|point| point.x), ticks_max(width));
    Plot { left, right: width - MARGIN - 10.0, top, bottom: top + PLOT_HEIGHT, x, y }
}

/// So many ticks of the x axis as have room.
fn ticks_max(width: f64) -> usize {
    const TICK_ROOM: f64 = 69.0;
    (width / TICK_ROOM) as usize
}

fn draw_axes(drawing: &mut Drawing, figure: &Figure, plot: &Plot) {
    let Plot { left, right, top, bottom, .. } = *plot;
    for tick in &plot.y.ticks {
        let y = plot.y_at(plot.y.clamped_place(tick.value));
        drawing.line(&[(left, y), (right, y)], Colour::Grid, 1.0, Dash::Solid);
        drawing.text(&tick.label, (left - 8.0, y + TEXT_SIZE * 0.35), Anchor::End, Colour::Faint);
    }
    for (tick, x) in apart(plot) {
        drawing.line(&[(x, top), (x, bottom)], Colour::Grid, 1.0, Dash::Solid);
        drawing.text(&tick.label, (x, bottom + TEXT_SIZE + 6.0), Anchor::Middle, Colour::Faint);
    }
    drawing.line(&[(left, bottom), (right, bottom)], Colour::Axis, 1.0, Dash::Solid);
    drawing.text(&figure.y.label, (MARGIN, top - 12.0), Anchor::Start, Colour::Faint);
    let middle = f64::midpoint(left, right);
    drawing.text(&figure.x.label, (middle, bottom + 42.0), Anchor::Middle, Colour::Faint);
}

/// The ticks of the x axis whose labels do not touch: the first, and those with room behind the one before; the last
/// goes before its neighbour.
fn apart(plot: &Plot) -> Vec<(&Tick, f64)> {
    let half = |tick: &Tick| font::width(&tick.label, TEXT_SIZE) * 0.55 + 6.0;
    let mut kept: Vec<(&Tick, f64)> = Vec::new();
    for tick in &plot.x.ticks {
        let x = plot.x_at(plot.x.clamped_place(tick.value));
        let is_last = std::ptr::eq(tick, &raw const plot.x.ticks[plot.x.ticks.len() - 1]);
        let touches = |(before, at): &(&Tick, f64)| x - half(tick) < at + half(before);
        if is_last && kept.len() > 1 && kept.last().is_some_and(touches) {
            kept.pop();
        }
        if !kept.last().is_some_and(touches) {
            kept.push((tick, x));
        }
    }
    kept
}

/// One area for each run of neighbours that have edges; a single one becomes an upright line.
fn draw_ribbon(drawing: &mut Drawing, curve: &Curve, plot: &Plot) {
    let edges = |point: &Point| {
        let (low, high) = point.ribbon.filter(|(low, high)| low.is_finite() && high.is_finite())?;
        let x = plot.x_at(plot.x.place(point.x)?);
        Some((x, plot.y_at(plot.y.clamped_place(low)), plot.y_at(plot.y.clamped_place(high))))
    };
    for neighbours in unbroken(curve, edges) {
        if let [(x, low, high)] = neighbours[..] {
            drawing.line(&[(x, low), (x, high)], curve.colour, 1.5, Dash::Solid);
            continue;
        }
        let above = neighbours.iter().map(|(x, _, high)| (*x, *high));
        let below = neighbours.iter().rev().map(|(x, low, _)| (*x, *low));
        drawing.area(&above.chain(below).collect::<Vec<_>>(), curve.colour);
    }
}

/// What `pick` finds in the points of a curve, parted where it finds nothing.
fn unbroken<T>(curve: &Curve, pick: impl Fn(&Point) -> Option<T>) -> Vec<Vec<T>> {
    let mut parts = vec![Vec::new()];
    for point in &curve.points {
        match (pick(point), parts.last_mut()) {
            (Some(found), Some(part)) => part.push(found),
            _ => parts.push(Vec::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn draw_curve(drawing: &mut Drawing, curve: &Curve, plot: &Plot) {
    let width = if curve.colour == Colour::Other { 1.0 } else { 2.0 };
    for spots in unbroken(curve, |point| plot.spot(point)) {
        match spots[..] {
            [centre] => drawing.dot(centre, curve.colour, Seen::Always, &curve.name),
            _ => drawing.line(&spots, curve.colour, width, curve.dash),
        }
    }
}

fn draw_hovers(drawing: &mut Drawing, figure: &Figure, curve: &Curve, plot: &Plot) {
    for point in &curve.points {
        let Some(centre) = plot.spot(point) else { continue };
        drawing.dot(centre, curve.colour, Seen::UnderPointer, &hover(figure, curve, point));
    }
}

/// `with cache · URL 7 · Time (ms) 1452 (1276 to 1628)`, with the point's own name where it has one.
fn hover(figure: &Figure, curve: &Curve, point: &Point) -> String {
    let x = if figure.x.scale == Scale::Percentile { point.x.to_string() } else { significant(point.x) };
    let ribbon = point
        .ribbon
        .map_or_else(String::new, |(low, high)| format!(" ({} to {})", significant(low), significant(high)));
    let values = format!(
        "{}\n{}: {x}\n{}: {}{ribbon}",
        curve.name,
        figure.x.label,
        figure.y.label,
        significant(point.y)
    );
    match figure.names.get(point.x as usize) {
        Some(name) if point.x >= 0.0 => format!("{values}\n{name}"),
        _ => values,
    }
}
