//! The house rules that a program can check.
//!
//! Every rule reads the tree as text and tokens, without a build, so that the whole check takes a
//! second. Rules look at tokens, never at raw text: a word in a comment or a string is not a call.

mod edges;
pub(crate) mod layout;
mod links;
mod markdown;
mod paths;
mod places;
mod purity;
mod shape;
pub(crate) mod source;
mod statistics;

use std::fmt;
use std::path::Path;

use self::layout::Layout;

/// One broken rule: where, which, what is wrong and what is allowed instead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path from the root of the repository.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    pub rule: &'static str,
    pub what: String,
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}; {}", self.file, self.line, self.rule, self.what, self.allowed)
    }
}

/// What a check found.
#[derive(Debug)]
pub struct Report {
    /// Sorted by file and line; empty when the tree keeps the rules.
    pub problems: Vec<Problem>,
    /// Lines for people: function lengths per crate, warnings that do not fail.
    pub statistics: Vec<String>,
}

/// Checks the repository at `root`.
///
/// # Errors
///
/// When the tree cannot be read or `cargo metadata` fails; broken rules are no error but
/// [`Report::problems`].
pub fn check(root: &Path) -> anyhow::Result<Report> {
    let layout = Layout::read(root)?;
    let mut problems = edges::check(root)?;
    for file in &layout.sources {
        problems.extend(file.unreadable.iter().cloned());
        problems.extend(shape::check(file));
        problems.extend(purity::check(file));
        problems.extend(places::check(file));
    }
    problems.extend(links::check(&layout));
    problems.sort();
    problems.dedup();
    Ok(Report { problems, statistics: statistics::lines(&layout.sources) })
}
