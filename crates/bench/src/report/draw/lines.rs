//! Lines with ribbons over two axes.

use super::axis::{Fit, Scaled, Tick};
use super::font;
use super::legend::{self, Entry};
use super::measures::{MARGIN, TEXT_SIZE};
use super::scene::{Anchor, Colour, Dash, Label, Line, Scene, Seen, Shape, Spot, Weight};
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

pub(super) fn draw(scene: &mut Scene, figure: &Figure, curves: &[Curve], top: f64) {
    let legend_end = legend::draw(scene, &entries(curves), top);
    let plot = plot(scene.width, figure, curves, legend_end + 26.0);
    scene.height = plot.bottom + 52.0;
    draw_axes(scene, figure, &plot);
    if !curves.iter().any(|curve| curve.points.iter().any(|point| plot.spot(point).is_some())) {
        draw_absence(scene, &plot);
    }
    let hovers = curves.iter().map(|curve| curve.points.len()).sum::<usize>() <= HOVERS_MAX;
    curves.iter().for_each(|curve| draw_ribbon(scene, curve, &plot));
    // The first series are the ones that readers look for: they go on top.
    curves.iter().rev().for_each(|curve| draw_curve(scene, curve, &plot));
    if hovers {
        curves.iter().for_each(|curve| draw_hovers(scene, figure, curve, &plot));
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

fn draw_axes(scene: &mut Scene, figure: &Figure, plot: &Plot) {
    for tick in &plot.y.ticks {
        let y = plot.y_at(plot.y.clamped_place(tick.value));
        draw_grid(scene, (plot.left, y), (plot.right, y));
        scene.text(label(tick.label.clone(), (plot.left - 8.0, y + TEXT_SIZE * 0.35), Anchor::End));
    }
    for (tick, x) in apart(plot) {
        draw_grid(scene, (x, plot.top), (x, plot.bottom));
        scene.text(label(tick.label.clone(), (x, plot.bottom + TEXT_SIZE + 6.0), Anchor::Middle));
    }
    scene.line(Line {
        spots: vec![(plot.left, plot.bottom), (plot.right, plot.bottom)],
        colour: Colour::Axis,
        width: 1.0,
        dash: Dash::Solid,
    });
    scene.text(label(figure.y.label.clone(), (MARGIN, plot.top - 12.0), Anchor::Start));
    let middle = f64::midpoint(plot.left, plot.right);
    scene.text(label(figure.x.label.clone(), (middle, plot.bottom + 42.0), Anchor::Middle));
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

fn draw_grid(scene: &mut Scene, from: Spot, to: Spot) {
    scene.line(Line { spots: vec![from, to], colour: Colour::Grid, width: 1.0, dash: Dash::Solid });
}

fn label(text: String, at: Spot, anchor: Anchor) -> Label {
    Label { at, text, size: TEXT_SIZE, anchor, weight: Weight::Regular, colour: Colour::Faint }
}

fn draw_absence(scene: &mut Scene, plot: &Plot) {
    let middle = (f64::midpoint(plot.left, plot.right), f64::midpoint(plot.top, plot.bottom));
    scene.text(label(String::from("no data"), middle, Anchor::Middle));
}

/// One area for each run of neighbours that have edges; a single one becomes an upright line.
fn draw_ribbon(scene: &mut Scene, curve: &Curve, plot: &Plot) {
    let edges = |point: &Point| {
        let (low, high) = point.ribbon.filter(|(low, high)| low.is_finite() && high.is_finite())?;
        let x = plot.x_at(plot.x.place(point.x)?);
        Some((x, plot.y_at(plot.y.clamped_place(low)), plot.y_at(plot.y.clamped_place(high))))
    };
    for neighbours in unbroken(curve, edges) {
        if let [(x, low, high)] = neighbours[..] {
            let spots = vec![(x, low), (x, high)];
            scene.line(Line { spots, colour: curve.colour, width: 1.5, dash: Dash::Solid });
            continue;
        }
        let above = neighbours.iter().map(|(x, _, high)| (*x, *high));
        let below = neighbours.iter().rev().map(|(x, low, _)| (*x, *low));
        scene.shapes.push(Shape::Area { corners: above.chain(below).collect(), colour: curve.colour });
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

fn draw_curve(scene: &mut Scene, curve: &Curve, plot: &Plot) {
    let width = if curve.colour == Colour::Other { 1.0 } else { 2.0 };
    for spots in unbroken(curve, |point| plot.spot(point)) {
        if let [centre] = spots[..] {
            let hover = curve.name.clone();
            scene.shapes.push(Shape::Dot { centre, colour: curve.colour, hover, seen: Seen::Always });
            continue;
        }
        scene.line(Line { spots, colour: curve.colour, width, dash: curve.dash });
    }
}

fn draw_hovers(scene: &mut Scene, figure: &Figure, curve: &Curve, plot: &Plot) {
    for point in &curve.points {
        let Some(centre) = plot.spot(point) else { continue };
        let hover = hover(figure, curve, point);
        scene.shapes.push(Shape::Dot { centre, colour: curve.colour, hover, seen: Seen::UnderPointer });
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
