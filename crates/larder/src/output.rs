//! The only place that writes to standard output and, outside logs, to standard error.
#![expect(clippy::print_stderr, reason = "this module is where the binary speaks to its user")]

use std::io::{self, ErrorKind, Write};

use crate::config::{Checked, Severity};

/// Results of a command. A reader that has had enough, such as `head`, is no trouble.
pub(crate) fn result(text: &str) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            failure(&format!("can't write the result: {error}"));
        }
        _ => {}
    }
}

/// Where a server has begun to listen.
pub(crate) fn listening(url: &str) {
    result(&format!("listening on {url}"));
}

/// Trouble that ends a command.
pub(crate) fn failure(text: &str) {
    eprintln!("larder: {text}");
}

/// An error with its causes, in one line.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    error.chain().map(cause).collect::<Vec<_>>().join(": ")
}

/// The system's words, except where they leave open what to look for.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == ErrorKind::AddrInUse => "address in use by another process".to_owned(),
        Some(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address".to_owned()
        }
        _ => error.to_string(),
    }
}

/// What the user should know beside the result.
pub(crate) fn note(text: &str) {
    eprintln!("larder: {text}");
}

/// A line that belongs to the one before it.
pub(crate) fn hint(text: &str) {
    eprintln!("{text}");
}

/// A line about something that works, but probably not as it was meant.
pub(crate) fn warning(text: &str) {
    eprintln!("{text}");
}

/// The problems that `check` was asked for, to standard output.
pub(crate) fn check_result(checked: &Checked) {
    lines(checked).iter().for_each(|line| result(line));
}

/// The problems that keep `serve` from starting, or warnings, to standard error.
pub(crate) fn problems(checked: &Checked) {
    lines(checked).iter().for_each(|line| eprintln!("{line}"));
}

/// Every problem with its excerpt, and how many there are.
fn lines(checked: &Checked) -> Vec<String> {
    let mut lines = Vec::new();
    for problem in &checked.problems {
        lines.push(problem.line(&checked.sources));
        let excerpt = checked.sources.excerpt(&problem.place);
        lines.extend((!excerpt.is_empty()).then_some(excerpt));
    }
    if !lines.is_empty() {
        lines.push(summary(checked));
    }
    lines
}

/// How many errors and warnings there are.
pub(crate) fn summary(checked: &Checked) -> String {
    let count = |severity| checked.problems.iter().filter(|problem| problem.severity == severity).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}", plural(count(Severity::Error), "error"), plural(count(Severity::Warning), "warning"))
}
