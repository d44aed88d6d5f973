//! `cargo xtask lines`: the lines of code per crate.
//!
//! Counts lines of production code that are neither blank nor comments, without tests, documentation and pages.

use std::collections::BTreeMap;
use std::path::Path;

use crate::tidy::layout::Layout;
use crate::tidy::source::{Purpose, Source};

/// Returns the sum, and a line for each crate, the largest first.
///
/// # Errors
///
/// Returns an error if the tree can't be read.
pub fn report(root: &Path) -> anyhow::Result<Vec<String>> {
    let layout = Layout::read(root)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let is_code = |source: &&Source| source.purpose == Purpose::Production && source.path.contains("/src/");
    for source in layout.sources.iter().filter(is_code) {
        *counts.entry(source.crate_name()).or_default() += count(source);
    }
    let mut rows: Vec<(&str, usize)> = counts.into_iter().collect();
    rows.push(("all", rows.iter().map(|(_, lines)| lines).sum()));
    rows.sort_by_key(|(name, lines)| (std::cmp::Reverse(*lines), *name));
    Ok(rows.iter().map(|(name, lines)| format!("{lines:>7} {name}")).collect())
}

fn count(source: &Source) -> usize {
    let numbered = source.text.lines().enumerate();
    let is_code = |(at, line): &(usize, &str)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("//") && !source.is_test_line(at + 1)
    };
    numbered.filter(is_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_blank_lines_nor_comments_nor_tests_count() {
        let check = |text: &str, expected: usize| {
            assert_eq!(count(&Source::parse("crates/a/src/b.rs", text.to_owned())), expected, "{text}");
        };
        check("", 0);
        check("//! About.\n\n/// One.\nfn one() {}\n", 1);
        check("fn one() { // why\n    // Because.\n    two();\n}\n", 3);
        check("fn one() {}\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n", 1);
        check("#[derive(Debug)]\nstruct A;\n", 2);
    }
}
