//! The report as JSON, and the parser.

use serde_json::Value;
use thiserror::Error;

use crate::result::{Report, SCHEMA};

/// Errors of reading a report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON, or JSON without a required field. The source names the field and its place.
    #[error("not a report")]
    Form(#[from] serde_json::Error),
    /// A different version of the format, or other JSON with a field `schema`.
    #[error("the report has schema `{0}`; this version reads `{SCHEMA}`")]
    Schema(String),
}

/// The report as indented JSON, with a newline at its end.
#[must_use]
pub fn write(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("all keys are strings");
    text.push('\n');
    text
}

/// Parses a report.
///
/// # Errors
///
/// Returns an error if the text isn't JSON, has a different version, or lacks a field.
pub fn read(text: &str) -> Result<Report, ReadError> {
    let value: Value = serde_json::from_str(text)?;
    match value.get("schema").and_then(Value::as_str) {
        // If the schema is missing, deserialization reports the missing field, which is more helpful.
        Some(schema) if schema != SCHEMA => Err(ReadError::Schema(schema.to_owned())),
        _ => Ok(serde_json::from_str(text)?),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::report::example;

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
