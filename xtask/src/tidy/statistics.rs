//! Function lengths per crate, for people: the rules catch the long ones, the numbers show the drift.

use std::collections::BTreeMap;

use super::shape::bool_parameter_count;
use super::source::{Purpose, Source};

pub(crate) fn lines(sources: &[Source]) -> Vec<String> {
    let mut lengths: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let production = || sources.iter().filter(|source| source.purpose == Purpose::Production);
    for source in production() {
        let outside_tests =
            source.functions().into_iter().filter(|function| !source.is_test_line(function.line));
        lengths.entry(source.crate_name()).or_default().extend(outside_tests.map(|function| function.lines));
    }
    let mut lines: Vec<String> =
        lengths.into_iter().filter_map(|(name, lengths)| line(name, lengths)).collect();
    let bools: usize = production().map(bool_parameter_count).sum();
    if bools > 0 {
        lines.push(format!(
            "warning: {bools} bool parameters in public functions; an enum says what a call means"
        ));
    }
    lines
}

fn line(name: &str, mut lengths: Vec<usize>) -> Option<String> {
    lengths.sort_unstable();
    let max = lengths.last()?;
    let at = |percent: usize| lengths[(lengths.len() - 1) * percent / 100];
    Some(format!("{name}: {} functions, lines: median {}, p90 {}, max {max}", lengths.len(), at(50), at(90)))
}
