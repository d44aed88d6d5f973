//! Lines and bars as SVG, drawn by `plotters`.
//!
//! Both axes are linear for `plotters`: [`place`] applies the scale of an axis to values, and [`label`] converts positions back to numbers.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::number::significant;
use crate::result::{Chart, Point, Scale, Series};

const SIZE: (u32, u32) = (960, 420);
const FONT: (&str, u32) = ("system-ui, sans-serif", 13);
const HEADING: (&str, u32) = ("system-ui, sans-serif", 17);
const TICKS_MAX: usize = 9;
/// More lines than this can't be distinguished. The table has all of them.
const LINES_MAX: usize = 12;

/// Distinguishable with colour blindness: the palette of Okabe and Ito, without its yellow.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(106, 61, 154),
    RGBColor(77, 77, 77),
];

/// Lines with ribbons over two axes. `None` if nothing can be drawn.
pub(super) fn lines(chart: &Chart) -> Option<String> {
    let spots = |series: &Series| series.points.iter().filter_map(|at| spot(chart, at)).collect::<Vec<_>>();
    let curves: Vec<_> = chart.series.iter().take(LINES_MAX).map(|series| (series, spots(series))).collect();
    let edges = chart.series.iter().take(LINES_MAX).flat_map(|series| ribbon(chart, series));
    let ys = curves.iter().flat_map(|(_, spots)| spots.iter().copied()).chain(edges);
    let ys: Vec<f64> = ys.map(|(_, y)| y).collect();
    let x = Places::of(chart.x.scale, curves.iter().flat_map(|(_, spots)| spots).map(|(x, _)| *x))?;
    // A margin above the highest value, because the upper edge would hide a line on it.
    let spare = ys.iter().copied().fold(0.0, f64::max) * 1.05;
    let edges = if chart.y.scale == Scale::Linear { vec![0.0, spare] } else { Vec::new() };
    let y = Places::of(chart.y.scale, ys.into_iter().chain(edges))?;
    Some(drawn(SIZE, |area| {
        let mut plot = ChartBuilder::on(area)
            .caption(&chart.title, HEADING)
            .margin(12)
            .margin_right(36)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        plot.configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(FONT)
            .x_desc(&chart.x.label)
            .y_desc(&chart.y.label)
            .draw()?;
        for (index, (series, spots)) in curves.into_iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            plot.draw_series([Polygon::new(ribbon(chart, series), colour.mix(0.2))])?;
            if let [only] = spots[..] {
                plot.draw_series([Circle::new(only, 3, colour.filled())])?;
            }
            plot.draw_series([PathElement::new(spots, colour.stroke_width(2))])?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        plot.configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.6))
            .label_font(FONT)
            .draw()
    }))
}

const BAR: u32 = 26;
/// Space for the names on the left and the figures on the right, as shares of the longest bar.
const NAMES_SHARE: f64 = 0.45;
const LABEL_SHARE: f64 = 0.25;

/// A bar for each name, value and label, from top to bottom.
pub fn bars(title: &str, bars: &[(String, f64, String)]) -> String {
    let longest =
        bars.iter().map(|(_, value, _)| *value).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let longest = if longest > 0.0 { longest } else { 1.0 };
    let count = bars.len() as u32;
    drawn((SIZE.0, 60 + BAR * count), |area| {
        let across = -NAMES_SHARE * longest..(1.0 + LABEL_SHARE) * longest;
        let mut plot = ChartBuilder::on(area)
            .caption(title, HEADING)
            .margin(12)
            .build_cartesian_2d(across, f64::from(count)..0.0)?;
        for (row, (name, value, label)) in bars.iter().enumerate() {
            let colour = COLOURS[row % COLOURS.len()];
            let (middle, gap) = (row as f64 + 0.5, longest / 100.0);
            let length = if value.is_finite() { value.max(0.0) } else { 0.0 };
            let style = |side| TextStyle::from(FONT.into_font()).pos(Pos::new(side, VPos::Center));
            plot.draw_series([Rectangle::new(
                [(0.0, middle - 0.36), (length, middle + 0.36)],
                colour.filled(),
            )])?;
            plot.draw_series([Text::new(name.clone(), (-gap, middle), style(HPos::Right))])?;
            plot.draw_series([Text::new(label.clone(), (length + gap, middle), style(HPos::Left))])?;
        }
        Ok(())
    })
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn drawn(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Drawn<'static>,
) -> String {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present()).expect("a String takes all");
    drop(area);
    svg
}

fn spot(chart: &Chart, at: &Point) -> Option<(f64, f64)> {
    Some((place(chart.x.scale, at.x)?, place(chart.y.scale, at.y)?))
}

/// The outline of the area between the lower and the upper edge.
fn ribbon(chart: &Chart, series: &Series) -> Vec<(f64, f64)> {
    let edges = |at: &Point| {
        let (low, high) = at.ribbon?;
        let x = place(chart.x.scale, at.x)?;
        Some(((x, place(chart.y.scale, low)?), (x, place(chart.y.scale, high)?)))
    };
    let (low, high): (Vec<_>, Vec<_>) = series.points.iter().filter_map(edges).unzip();
    low.into_iter().chain(high.into_iter().rev()).collect()
}

/// The range of an axis, and the positions with a label.
struct Places {
    scale: Scale,
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Places {
    fn of(scale: Scale, places: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) =
            places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
        if low > high {
            return None;
        }
        let whole = |low: f64, high: f64| {
            let (low, high) = (low.floor(), (high - ROUNDING).ceil().max(low.floor() + 1.0));
            let every = ((high - low) as usize / TICKS_MAX + 1) as f64;
            let ticks = (0..).map(|step| low + f64::from(step) * every).take_while(|at| *at <= high);
            Self { scale, range: low..high, ticks: ticks.collect() }
        };
        Some(match scale {
            Scale::Linear => {
                let range = if low < high { low..high } else { low - 0.5..high + 0.5 };
                let ticks = RangedCoordf64::from(range.clone()).key_points(TICKS_MAX);
                Self { scale, range, ticks }
            }
            Scale::Log => whole(low, high),
            Scale::Percentile => whole(0.0, high),
        })
    }
}

impl Ranged for Places {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(place, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Places {
    fn format_ext(&self, place: &f64) -> String {
        label(self.scale, *place)
    }
}

/// Tolerance for logarithms of whole numbers.
const ROUNDING: f64 = 1e-9;
/// Six nines.
const PERCENTILE_REST_MIN: f64 = 1e-6;

/// The position of a value on an axis. `None` if it is outside of the scale.
fn place(scale: Scale, value: f64) -> Option<f64> {
    match scale {
        Scale::Linear => Some(value).filter(|value| value.is_finite()),
        Scale::Log => (value.is_finite() && value > 0.0).then(|| value.log10()),
        Scale::Percentile => {
            (0.0..=100.0).contains(&value).then(|| -(1.0 - value / 100.0).max(PERCENTILE_REST_MIN).log10())
        }
    }
}

/// The label of a position.
fn label(scale: Scale, place: f64) -> String {
    match scale {
        Scale::Linear => short(place),
        Scale::Log if place < 0.0 => format!("{:.*}", -place as usize, 10_f64.powf(place)),
        Scale::Log => short(10_f64.powf(place)),
        Scale::Percentile => {
            format!("{:.*}", (place as usize).saturating_sub(2), 100.0 - 100.0 / 10_f64.powf(place))
        }
    }
}

/// A number without trailing zeros.
fn short(value: f64) -> String {
    let digits = significant(value);
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.').to_owned() } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn labels_are_round_numbers() {
        #[track_caller]
        fn check(scale: Scale, values: &[f64], expected: &str) {
            let places = values.iter().filter_map(|value| place(scale, *value));
            let ticks = Places::of(scale, places).expect("there are values").ticks;
            let labels: Vec<String> = ticks.into_iter().map(|at| label(scale, at)).collect();
            assert_eq!(labels.join(" "), expected);
        }
        check(Scale::Linear, &[0.0, 41.0], "0 5 10 15 20 25 30 35 40");
        check(Scale::Log, &[0.3, 7.0, 0.0, -1.0], "0.1 1 10");
        check(Scale::Log, &[5.0], "1 10");
        check(Scale::Percentile, &[0.0, 99.9, 101.0], "0 90 99 99.9");
    }

    #[test]
    fn values_without_a_place_are_left_out() {
        let mut chart = example::report().charts.remove(0);
        chart.y.scale = Scale::Log;
        let odd = [(1.0, f64::NAN), (10.0, 0.0), (100.0, f64::INFINITY), (-1.0, 1.0)];
        chart.series[0].points = odd.map(|(x, y)| Point { x, y, ribbon: Some((f64::NAN, y)) }).to_vec();
        assert_eq!(lines(&chart), None);
        chart.series[0].points.push(Point { x: 1.0, y: 1.0, ribbon: None });
        let svg = lines(&chart).expect("one can be drawn");
        assert!(svg.contains("<circle") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(!bars("t", &[("a".into(), f64::NAN, "-".into())]).contains("NaN"));
    }

    #[test]
    fn nothing_gets_out_of_a_text() {
        let svg = bars("</text><script>", &[("<a&b>".into(), 1.0, "\"1\"".into())]);
        assert!(svg.contains("&lt;/text&gt;&lt;script&gt;") && svg.contains("&lt;a&amp;b&gt;"), "{svg}");
    }
}
