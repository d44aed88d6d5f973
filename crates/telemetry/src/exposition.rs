//! One scrape, and its text in the Prometheus exposition format.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Write};

use crate::declarations::{Metric, MetricType};
use crate::histogram::Buckets;

/// The content type of [`Telemetry::exposition`](crate::Telemetry::exposition).
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A value. Whole numbers stay exact beyond 2^53.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A real number, mostly seconds.
    Real(f64),
    /// A sum of seconds, as a whole number: its sums never decrease by rounding, which Prometheus would take for
    /// a counter reset.
    Nanoseconds(u64),
}

/// The values of one scrape. Values with equal labels are added up, so that several providers can report
/// parts.
#[derive(Debug, Default)]
pub struct Sample {
    values: BTreeMap<Metric, BTreeMap<Vec<String>, Number>>,
    histograms: BTreeMap<Metric, BTreeMap<Vec<String>, Buckets>>,
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
            Self::Nanoseconds(value) => write!(f, "{}.{:09}", value / 1_000_000_000, value % 1_000_000_000),
        }
    }
}

impl Number {
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => Self::Whole(left.saturating_add(right)),
            (Self::Nanoseconds(left), Self::Nanoseconds(right)) => {
                Self::Nanoseconds(left.saturating_add(right))
            }
            (left, right) => Self::Real(left.as_f64() + right.as_f64()),
        }
    }

    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
            Self::Nanoseconds(value) => value as f64 / 1e9,
        }
    }
}

impl Sample {
    /// Adds a value to the series of `metric` with these label values, in declared order. A label with an
    /// empty value is left out: for Prometheus both are the same series.
    ///
    /// # Panics
    ///
    /// Panics if the number of label values is not the declared one, or if `metric` is a histogram.
    pub fn add(&mut self, metric: Metric, labels: &[&str], value: impl Into<Number>) {
        let declaration = metric.declaration();
        assert_eq!(labels.len(), declaration.labels.len(), "labels of {}", declaration.name);
        assert_ne!(declaration.metric_type, MetricType::Histogram, "{}", declaration.name);
        let value = value.into();
        self.values
            .entry(metric)
            .or_default()
            .entry(owned(labels))
            .and_modify(|sum| *sum = sum.plus(value))
            .or_insert(value);
    }

    /// Adds a histogram; one without durations creates no series.
    ///
    /// # Panics
    ///
    /// Panics as [`add`](Self::add) does, or if another histogram of the same metric has different bounds.
    pub fn histogram(&mut self, metric: Metric, labels: &[&str], buckets: &Buckets) {
        let declaration = metric.declaration();
        assert_eq!(labels.len(), declaration.labels.len(), "labels of {}", declaration.name);
        assert_eq!(declaration.metric_type, MetricType::Histogram, "{}", declaration.name);
        if buckets.count() > 0 {
            let family = self.histograms.entry(metric).or_default();
            let of_labels = family.entry(owned(labels));
            of_labels.and_modify(|sum| sum.merge(buckets)).or_insert_with(|| buckets.clone());
        }
    }

    /// Returns the value of one series, if it exists. The admin API and tests use it.
    pub fn value(&self, metric: Metric, labels: &[&str]) -> Option<Number> {
        self.values.get(&metric)?.get(&owned(labels)).copied()
    }

    /// Returns the text, with families and series in a fixed order.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::with_capacity(16 * 1024);
        let families = crate::METRICS.iter().map(|declaration| declaration.metric);
        for metric in families {
            if let Some(series) = self.values.get(&metric) {
                encode_values(&mut text, metric, series);
            }
            if let Some(series) = self.histograms.get(&metric) {
                encode_histograms(&mut text, metric, series);
            }
        }
        text
    }
}

fn encode_values(text: &mut String, metric: Metric, series: &BTreeMap<Vec<String>, Number>) {
    header(text, metric);
    for (labels, value) in series {
        line(text, metric, "", labels, None, *value);
    }
}

fn encode_histograms(text: &mut String, metric: Metric, series: &BTreeMap<Vec<String>, Buckets>) {
    header(text, metric);
    for (labels, buckets) in series {
        for (bound, count) in buckets.cumulative() {
            line(text, metric, "_bucket", labels, Some(bound), Number::Whole(count));
        }
        line(text, metric, "_sum", labels, None, Number::Real(buckets.sum_seconds()));
        line(text, metric, "_count", labels, None, Number::Whole(buckets.count()));
    }
}

fn header(text: &mut String, metric: Metric) {
    let row = metric.declaration();
    // Writing to a `String` can't fail, here and below.
    let _ = writeln!(text, "# HELP {} {}", row.name, row.help);
    let _ = writeln!(text, "# TYPE {} {}", row.name, row.metric_type.as_str());
}

fn line(text: &mut String, metric: Metric, suffix: &str, labels: &[String], le: Option<&str>, value: Number) {
    let declaration = metric.declaration();
    text.push_str(declaration.name);
    text.push_str(suffix);
    let named = declaration.labels.iter().copied().zip(labels.iter().map(String::as_str));
    let named = named.filter(|(_, label)| !label.is_empty());
    let mut separator = '{';
    for (name, label) in named.chain(le.map(|bound| ("le", bound))) {
        let _ = write!(text, "{separator}{name}=\"");
        escape_label(text, label);
        text.push('"');
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

fn escape_label(text: &mut String, label: &str) {
    for c in label.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}
