//! Display of the problems of a configuration.

use terminal::output;

use crate::config::{Checked, LeftOut, Severity};

/// Prints the problems to standard output, for `check`.
pub(crate) fn to_stdout(checked: &Checked) {
    lines(checked).iter().for_each(|line| output::result(line));
}

/// Prints the problems that keep `serve` from starting, or warnings, to standard error.
pub(crate) fn to_stderr(checked: &Checked) {
    lines(checked).iter().for_each(|line| output::hint(line));
}

/// Returns the errors in one line, without excerpts.
pub(crate) fn errors(checked: &Checked) -> String {
    let errors = checked.problems.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.line(&checked.sources)).collect::<Vec<_>>().join("; ")
}

/// Formats every problem with its excerpt, then their number.
fn lines(checked: &Checked) -> Vec<String> {
    let mut lines = Vec::new();
    for problem in &checked.problems {
        lines.push(problem.line(&checked.sources));
        let excerpt = checked.sources.excerpt(&problem.place);
        lines.extend((!excerpt.is_empty()).then_some(excerpt));
    }
    let left_out = checked.left_out.errors + checked.left_out.warnings;
    if left_out > 0 {
        lines.push(format!("and {left_out} more"));
    }
    if !lines.is_empty() {
        lines.push(summary(checked));
    }
    lines
}

/// Counts errors and warnings.
fn summary(checked: &Checked) -> String {
    let count = |severity| checked.problems.iter().filter(|problem| problem.severity == severity).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let LeftOut { errors, warnings } = checked.left_out;
    let errors = plural(count(Severity::Error) + errors, "error");
    format!("{errors}, {}", plural(count(Severity::Warning) + warnings, "warning"))
}
