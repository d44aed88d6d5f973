//! A chart as values. The report determines its appearance.

use serde::{Deserialize, Serialize};

use super::{Run, UrlFigures};

/// Lines over a common axis, with a ribbon at points that have one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Chart {
    /// Unique in its report, from `a-z`, `0-9` and `-`: names the files of the chart.
    pub id: String,
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

impl Chart {
    pub(crate) fn linear(id: &str, title: &str, (x, y): (&str, &str), series: Vec<Series>) -> Self {
        let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
        Self { id: id.to_owned(), title: title.to_owned(), x: axis(x), y: axis(y), series }
    }

    /// A chart over time.
    pub(crate) fn over_time(id: &str, title: &str, y: &str, series: Vec<Series>) -> Self {
        Self::linear(id, title, ("Time (s)", y), series)
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// With the unit in brackets: `Time (ms)`.
    pub label: String,
    pub scale: Scale,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    Linear,
    /// Decades. Values that aren't above zero are left out.
    Log,
    /// Percent, stretched towards 100: 90, 99, 99.9 at equal distances.
    Percentile,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

impl Series {
    /// The mean of each URL, with a ribbon of one standard deviation.
    pub(crate) fn of_urls(name: &str, run: &Run) -> Self {
        let answered = run.urls.iter().enumerate().filter(|(_, figures)| figures.requests > 0);
        let point = |(index, url): (usize, &UrlFigures)| {
            let (mean_ms, sd_ms) = (url.mean_us / 1e3, url.sd_us / 1e3);
            Point { x: index as f64, y: mean_ms, ribbon: Some(((mean_ms - sd_ms).max(0.0), mean_ms + sd_ms)) }
        };
        Self { name: name.to_owned(), points: answered.map(point).collect() }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Lower and upper edge of the ribbon at this point.
    pub ribbon: Option<(f64, f64)>,
}
