//! The data files `mean sd url` that other programs draw from.

use std::fmt::Write as _;

use super::merge::file_name;
use crate::result::{Report, Run};

/// One file for each run that has figures per URL: its name and its text.
///
/// The header is `mean sd url`; each row holds the mean and the standard deviation in milliseconds and the running
/// index of the URL, from 0.
#[must_use]
pub fn data_files(report: &Report) -> Vec<(String, String)> {
    let with_urls = report.runs.iter().filter(|run| !run.urls.is_empty());
    with_urls.map(|run| (format!("{}.txt", file_name(&run.name)), rows(run))).collect()
}

fn rows(run: &Run) -> String {
    let mut text = String::from("mean sd url\n");
    for (index, figures) in run.urls.iter().enumerate() {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{} {} {index}", rounded_ms(figures.mean_us), rounded_ms(figures.sd_us));
    }
    text
}

/// Milliseconds with at most three decimals, as short as it goes.
fn rounded_ms(us: f64) -> f64 {
    if us.is_finite() { us.round() / 1e3 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn rows_are_mean_sd_and_index() {
        let mut report = example::report();
        report.runs[0].urls.truncate(2);
        report.runs[0].urls[0].mean_us = 1_452_000.0;
        report.runs[0].urls[0].sd_us = 175_700.0;
        report.runs[0].urls[1].mean_us = 12.3456;
        report.runs[0].urls[1].sd_us = f64::NAN;
        let files = data_files(&report);
        assert_eq!(files.len(), report.runs.iter().filter(|run| !run.urls.is_empty()).count());
        assert_eq!(files[0], ("with-cache.txt".into(), "mean sd url\n1452 175.7 0\n0.012 0 1\n".into()));
    }
}
