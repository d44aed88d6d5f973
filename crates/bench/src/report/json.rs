//! The report as JSON, its JSON Schema, and the parser.

use serde_json::Value;
use thiserror::Error;

use crate::result::{Report, SCHEMA};

/// Why a file isn't a report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON, or JSON without a required field. The source names the field and its place.
    #[error("not a report")]
    Form(#[from] serde_json::Error),
    /// Another version of the format, or other JSON with a field `schema`.
    #[error("the report has schema `{0}`; this version reads `{SCHEMA}`")]
    Schema(String),
}

/// The report as indented JSON, with a newline at its end.
///
/// JSON has no infinities and no NaN: points with such numbers are left out, and other figures become 0.
#[must_use]
pub fn write(report: &Report) -> String {
    let mut report = report.clone();
    for series in report.charts.iter_mut().flat_map(|chart| &mut chart.series) {
        series.points.retain(|point| point.x.is_finite() && point.y.is_finite());
        for point in &mut series.points {
            point.ribbon = point.ribbon.filter(|(low, high)| low.is_finite() && high.is_finite());
        }
    }
    report.runs.iter_mut().for_each(make_finite);
    let mut text = serde_json::to_string_pretty(&report).expect("all keys are strings");
    text.push('\n');
    text
}

fn make_finite(run: &mut crate::result::Run) {
    let intervals = run.intervals.iter_mut().map(|interval| &mut interval.mean_us);
    let urls = run.urls.iter_mut().flat_map(|url| [&mut url.mean_us, &mut url.sd_us]);
    let own = [
        &mut run.elapsed_s,
        &mut run.requests_per_s,
        &mut run.read_bytes_per_s,
        &mut run.generator_cpu_us_per_request,
        &mut run.latency.mean_us,
        &mut run.latency.sd_us,
    ];
    own.into_iter()
        .chain(intervals)
        .chain(urls)
        .filter(|figure| !figure.is_finite())
        .for_each(|figure| *figure = 0.0);
    if let Some(server) = &mut run.server {
        server.process_cpu_us_per_request = server.process_cpu_us_per_request.filter(|us| us.is_finite());
        server.core_busy_us_per_request = server.core_busy_us_per_request.filter(|us| us.is_finite());
    }
}

/// Parses a report.
///
/// # Errors
///
/// Returns an error if the text isn't JSON, has another version, or lacks a field.
pub fn read(text: &str) -> Result<Report, ReadError> {
    let value: Value = serde_json::from_str(text)?;
    match value.get("schema").and_then(Value::as_str) {
        // Without a schema, the error about the missing field is more helpful.
        Some(schema) if schema != SCHEMA => Err(ReadError::Schema(schema.to_owned())),
        _ => Ok(serde_json::from_str(text)?),
    }
}

/// The JSON Schema of a report, with a newline at its end.
#[must_use]
pub fn schema() -> String {
    let schema =
        schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Report>();
    let mut text = serde_json::to_string_pretty(&schema).expect("all keys are strings");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::report::example;
    use crate::result::Point;

    #[test]
    fn what_is_written_is_read_back() {
        let report = example::report();
        assert_eq!(read(&write(&report)).expect("it was just written"), report);
    }

    #[test]
    fn form_stays_as_it_is() {
        let mut report = example::report();
        report.runs.truncate(1);
        report.runs[0].intervals.truncate(1);
        report.runs[0].urls.truncate(1);
        report.runs[0].latency.curve.truncate(1);
        report.charts[0].series[0].points.truncate(1);
        example::check_golden("report.json", &write(&report));
    }

    #[test]
    fn what_json_cannot_say_is_left_out() {
        let mut report = example::report();
        report.runs[0].requests_per_s = f64::NAN;
        report.runs[0].intervals[0].mean_us = f64::INFINITY;
        let points = &mut report.charts[0].series[0].points;
        let before = points.len();
        points.push(Point { x: f64::NAN, y: 1.0, ribbon: None });
        points.push(Point { x: 1.0, y: 1.0, ribbon: Some((f64::NAN, 1.0)) });
        let again = read(&write(&report)).expect("it can be read");
        assert_eq!(again.charts[0].series[0].points.len(), before + 1);
        assert!(again.runs[0].requests_per_s.abs() < f64::EPSILON);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let error = read(text).expect_err("it is no report");
            let causes = std::iter::successors(Some(&error as &dyn Error), |error| (*error).source());
            let told = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
            assert!(told.contains(expected), "{told}");
        }
        check("{", "not a report: EOF");
        check(
            r#"{"schema": "larder-bench/9"}"#,
            "schema `larder-bench/9`; this version reads `larder-bench/1`",
        );
        check(r#"{"schema": "larder-bench/1"}"#, "missing field `title`");
        check("{}", "missing field `schema`");
    }
}
