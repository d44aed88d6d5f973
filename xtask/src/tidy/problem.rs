//! A broken rule.

use std::fmt;

/// A broken rule: its place, its name, the problem and the allowed alternative.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path from the root of the repository.
    pub file: String,
    /// Line number, counted from 1.
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
