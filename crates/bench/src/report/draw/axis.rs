//! Axes: from values to a place between 0 and 1, and ticks that people read with ease.

use crate::report::number::count;
use crate::result::Scale;

/// A scale with its range and its ticks.
#[derive(Debug)]
pub(super) struct Scaled {
    scale: Scale,
    /// Edges of the range, stretched as the scale does it.
    low: f64,
    high: f64,
    pub(super) ticks: Vec<Tick>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

/// Where an axis ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// At a tick beyond the values, and at zero if they allow it.
    Round,
    /// At the values.
    Tight,
}

impl Scaled {
    /// An axis for `values`, of which those that the scale can't show are left out, with at most `ticks_max` ticks.
    pub(super) fn new(scale: Scale, fit: Fit, values: impl Iterator<Item = f64>, ticks_max: usize) -> Self {
        let shown = values.filter(|value| shows(scale, *value));
        let range = shown.fold(None, |range: Option<(f64, f64)>, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        let ticks_max = ticks_max.max(2);
        match scale {
            Scale::Linear => linear(range.unwrap_or((0.0, 1.0)), fit, ticks_max),
            Scale::Log => log(range.unwrap_or((1.0, 10.0)), fit, ticks_max),
            Scale::Percentile => percentile(range.unwrap_or((0.0, 100.0)), ticks_max),
        }
    }

    /// How far along the axis `value` is: 0 at its begin, 1 at its end; nothing where the scale has no place for it.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        shows(self.scale, value).then(|| self.clamped_place(value))
    }

    /// As [`Self::place`], with the edge for what the axis does not reach.
    pub(super) fn clamped_place(&self, value: f64) -> f64 {
        let stretched = if shows(self.scale, value) { stretched(self.scale, value) } else { self.low };
        ((stretched - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

fn shows(scale: Scale, value: f64) -> bool {
    value.is_finite()
        && match scale {
            Scale::Linear => true,
            Scale::Log => value > 0.0,
            Scale::Percentile => (0.0..=100.0).contains(&value),
        }
}

fn stretched(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log => value.log10(),
        // 100 % is as far as six nines; the range ends before that if the values do.
        Scale::Percentile => -(1.0 - value / 100.0).max(1e-7).log10(),
    }
}

fn linear((low, high): (f64, f64), fit: Fit, ticks_max: usize) -> Scaled {
    let (mut low, mut high) = match fit {
        Fit::Round => (low.min(0.0), high.max(0.0)),
        Fit::Tight => (low, high),
    };
    if high - low <= f64::EPSILON * high.abs().max(low.abs()) {
        let margin = if high == 0.0 { 1.0 } else { high.abs() / 2.0 };
        (low, high) =
            if fit == Fit::Round { (low, high + 2.0 * margin) } else { (low - margin, high + margin) };
    }
    let step = step_up(low, high, fit, ticks_max);
    let (first, last) = match fit {
        Fit::Round => ((low / step).floor(), (high / step).ceil()),
        Fit::Tight => ((low / step).ceil(), (high / step).floor()),
    };
    // By a whole number each time, so that no error adds up.
    let values = (0..=(last - first) as usize).map(|index| (first + index as f64) * step);
    let ticks =
        values.map(|value| Tick { value, label: linear_label(value, step, high.abs().max(low.abs())) });
    let (low, high) = if fit == Fit::Round { (first * step, last * step) } else { (low, high) };
    Scaled { scale: Scale::Linear, low, high, ticks: ticks.collect() }
}

/// The smallest step of 1, 2 or 5 times a power of ten that makes at most `ticks_max` ticks.
fn step_up(low: f64, high: f64, fit: Fit, ticks_max: usize) -> f64 {
    let fits = |step: f64| {
        let ticks = match fit {
            Fit::Round => (high / step).ceil() - (low / step).floor(),
            Fit::Tight => (high / step).floor() - (low / step).ceil(),
        };
        ticks + 1.0 <= ticks_max as f64
    };
    let power = 10_f64.powf(((high - low) / ticks_max as f64).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0].map(|factor| factor * power);
    steps.into_iter().find(|step| fits(*step)).unwrap_or(100.0 * power)
}

/// With the decimals that tell neighbours apart; large numbers with `k`, `M` and `G`.
fn linear_label(value: f64, step: f64, largest: f64) -> String {
    let (unit, suffix) = magnitude(largest, 1e4);
    let decimals = (-(step / unit).log10().floor()).max(0.0) as usize;
    // No zero with a sign, no suffix at zero.
    let value = if value.abs() < step / 2.0 { 0.0 } else { value / unit };
    if value == 0.0 {
        return String::from("0");
    }
    if decimals == 0 && value >= 1000.0 {
        return count(value.round() as u64) + suffix;
    }
    format!("{value:.decimals$}{suffix}")
}

fn magnitude(largest: f64, thousands_from: f64) -> (f64, &'static str) {
    match largest {
        largest if largest >= 1e9 => (1e9, "G"),
        largest if largest >= 1e6 => (1e6, "M"),
        largest if largest >= thousands_from => (1e3, "k"),
        _ => (1.0, ""),
    }
}

fn log((low, high): (f64, f64), fit: Fit, ticks_max: usize) -> Scaled {
    let (low, high) = if low < high { (low, high) } else { (low / 2.0, high * 2.0) };
    let grids: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    let fine =
        grids.iter().map(|grid| log_ticks(low, high, fit, grid)).find(|ticks| ticks.len() <= ticks_max);
    let values = fine.unwrap_or_else(|| {
        let decades = log_ticks(low, high, fit, &[1.0]);
        let every = (decades.len() - 1).div_ceil(ticks_max - 1).max(1);
        let last = decades[decades.len() - 1];
        let kept = decades.iter().copied().step_by(every);
        // The last decade stands even where the step passes it, so that the ticks cover the values.
        let kept: Vec<f64> = kept.filter(|value| *value < last).collect();
        kept.into_iter().chain([last]).collect()
    });
    let edges = match (fit, values.first(), values.last()) {
        (Fit::Round, Some(first), Some(last)) => (*first, *last),
        _ => (low, high),
    };
    let ticks = values.iter().map(|value| Tick { value: *value, label: log_label(*value) }).collect();
    Scaled { scale: Scale::Log, low: edges.0.log10(), high: edges.1.log10(), ticks }
}

/// Multiples of powers of ten from the one below `low` to the one above `high`, or within both.
fn log_ticks(low: f64, high: f64, fit: Fit, multiples: &[f64]) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all: Vec<f64> =
        decades.flat_map(|decade| multiples.iter().map(move |multiple| decimal(*multiple, decade))).collect();
    match fit {
        Fit::Tight => all.into_iter().filter(|value| (low..=high).contains(value)).collect(),
        Fit::Round => {
            let first = all.iter().rposition(|value| *value <= low).unwrap_or(0);
            let last = all.iter().position(|value| *value >= high).unwrap_or(all.len() - 1);
            all[first..=last].to_vec()
        }
    }
}

/// `multiple` times ten to the power, by the way that rounds once.
fn decimal(multiple: f64, power: i32) -> f64 {
    if power < 0 { multiple / 10_f64.powi(-power) } else { multiple * 10_f64.powi(power) }
}

fn log_label(value: f64) -> String {
    let (unit, suffix) = magnitude(value, 1e3);
    format!("{}{suffix}", value / unit)
}

/// From 0 to the last percentile below 100, and a little further to 100 itself.
fn percentile((low, high): (f64, f64), ticks_max: usize) -> Scaled {
    const NAMED: [f64; 9] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 100.0];
    let low = NAMED.into_iter().rfind(|named| *named <= low).unwrap_or(0.0);
    let high = NAMED.into_iter().find(|named| *named >= high && *named > low).unwrap_or(100.0);
    let mut values: Vec<f64> = NAMED.into_iter().filter(|named| (low..=high).contains(named)).collect();
    while values.len() > ticks_max {
        values.remove(values.len() - 2);
    }
    let ticks = values.into_iter().map(|value| Tick { value, label: value.to_string() }).collect();
    let stretch = |value| stretched(Scale::Percentile, value);
    Scaled { scale: Scale::Percentile, low: stretch(low), high: stretch(high), ticks }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(scale: Scale, fit: Fit, values: &[f64]) -> Vec<String> {
        Scaled::new(scale, fit, values.iter().copied(), 7).ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        #[track_caller]
        fn check(scale: Scale, fit: Fit, values: &[f64], expected: &str) {
            assert_eq!(labels(scale, fit, values).join(" "), expected);
        }
        check(Scale::Linear, Fit::Round, &[3.0, 61_000.0], "0 20k 40k 60k 80k");
        check(Scale::Linear, Fit::Round, &[0.12], "0 0.02 0.04 0.06 0.08 0.10 0.12");
        check(Scale::Linear, Fit::Tight, &[0.0, 41.0], "0 10 20 30 40");
        check(Scale::Linear, Fit::Round, &[f64::NAN], "0 0.2 0.4 0.6 0.8 1.0");
        check(Scale::Log, Fit::Round, &[0.3, 7.0, 0.0, -1.0], "0.2 0.5 1 2 5 10");
        check(Scale::Log, Fit::Round, &[0.3, 70_000.0], "0.1 1 10 100 1k 10k 100k");
        check(Scale::Percentile, Fit::Tight, &[0.0, 99.9, 100.0], "0 50 90 99 99.9 99.99 100");
    }

    fn check_laws(scale: Scale, values: &[f64], ticks_max: usize) {
        let axis = Scaled::new(scale, Fit::Round, values.iter().copied(), ticks_max);
        assert!(axis.ticks.len() <= ticks_max && axis.ticks.len() >= 2, "{axis:?}");
        assert!(
            axis.ticks.is_sorted_by(|one, next| one.value < next.value && one.label != next.label),
            "{axis:?}"
        );
        let (first, last) = (axis.ticks[0].value, axis.ticks[axis.ticks.len() - 1].value);
        for value in values {
            let place = axis.place(*value).expect("the scale shows it");
            assert!((0.0..=1.0).contains(&place), "{value} at {place}: {axis:?}");
            assert!(first <= *value && *value <= last, "{value} is outside of {axis:?}");
        }
    }

    proptest! {
        #[test]
        fn linear_ticks_cover_the_values(values in prop::collection::vec(-1e9..1e9, 1..8), ticks_max in 3_usize..12) {
            check_laws(Scale::Linear, &values, ticks_max);
        }

        #[test]
        fn log_ticks_cover_the_values(exponents in prop::collection::vec(-6.0..9.0, 1..8), ticks_max in 3_usize..12) {
            let values: Vec<f64> = exponents.iter().map(|exponent| 10_f64.powf(*exponent)).collect();
            check_laws(Scale::Log, &values, ticks_max);
        }

        #[test]
        fn percentile_ticks_cover_the_values(values in prop::collection::vec(0.0..=100.0, 1..8), ticks_max in 3_usize..12) {
            check_laws(Scale::Percentile, &values, ticks_max);
        }
    }

    #[test]
    fn nines_are_at_equal_distances() {
        let axis = Scaled::new(Scale::Percentile, Fit::Tight, [0.0, 100.0].into_iter(), 9);
        let place = |percent| axis.place(percent).expect("it is a percentage");
        let distances = [place(90.0) - place(0.0), place(99.0) - place(90.0), place(99.9) - place(99.0)];
        assert!((distances[0] - distances[1]).abs() < 1e-9 && (distances[1] - distances[2]).abs() < 1e-9);
        assert!((place(100.0) - 1.0).abs() < 1e-9);
        assert_eq!(axis.place(101.0), None);
    }
}
