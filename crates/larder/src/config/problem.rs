//! The problems of a configuration: all that were found, each with its place.

use terminal::output;

use super::locate::{Place, Sources};

/// Whether a problem makes the configuration unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// The configuration is refused.
    Error,
    /// Probably a mistake, but usable.
    Warning,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) place: Place,
    /// Key path, such as `site[shop].timeouts.connect`; empty for the file as a whole.
    pub(crate) path: String,
    /// The mistake and the allowed values, in one line.
    pub(crate) message: String,
}

/// Numbers of problems that aren't listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
}

/// Maximum number of listed problems: enough to fix at a time, since each is shown with an excerpt.
pub(crate) const PROBLEMS_MAX: usize = 100;

/// The problems found so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    found: Vec<Problem>,
    /// Files, each with an offset. Problems after the offset are ignored, because they follow from one that has already been reported.
    ignored: Vec<(usize, usize)>,
}

impl Problems {
    /// Adds an error, which makes the configuration unusable.
    pub(crate) fn error(&mut self, place: &Place, path: &str, message: impl Into<String>) {
        self.note(Severity::Error, place, path, message.into());
    }

    /// Adds a warning about a probable mistake.
    pub(crate) fn warning(&mut self, place: &Place, path: &str, message: impl Into<String>) {
        self.note(Severity::Warning, place, path, message.into());
    }

    /// Ignores further problems after this offset of a file.
    pub(crate) fn ignore_from(&mut self, source: usize, from: usize) {
        self.ignored.push((source, from));
    }

    /// Joins both lists of problems.
    pub(crate) fn with(mut self, others: Self) -> Self {
        self.found.extend(others.found);
        self.ignored.extend(others.ignored);
        self
    }

    /// Returns whether there are no problems.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns whether the configuration is unusable.
    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Returns the first [`PROBLEMS_MAX`] problems in the order of the files' text, and the number of the others.
    pub(crate) fn into_sorted(mut self) -> (Vec<Problem>, LeftOut) {
        self.found.sort_by_key(|problem| match &problem.place {
            Place::Flag(_) => (0, 0),
            Place::Text { source, span } => (source + 1, span.start),
            Place::Preset => (usize::MAX, 0),
        });
        self.found.dedup();
        let (mut errors, mut warnings): (Vec<_>, Vec<_>) =
            self.found.into_iter().enumerate().partition(|(_, problem)| problem.severity == Severity::Error);
        let shown =
            (errors.len().min(PROBLEMS_MAX), warnings.len().min(PROBLEMS_MAX.saturating_sub(errors.len())));
        let left_out = LeftOut { errors: errors.len() - shown.0, warnings: warnings.len() - shown.1 };
        errors.truncate(shown.0);
        errors.extend(warnings.drain(..shown.1));
        errors.sort_by_key(|(at, _)| *at);
        (errors.into_iter().map(|(_, problem)| problem).collect(), left_out)
    }

    fn note(&mut self, severity: Severity, place: &Place, path: &str, message: String) {
        let is_ignored = |(source, from): &(usize, usize)| match place {
            Place::Text { source: other, span } => source == other && span.start >= *from,
            Place::Flag(_) | Place::Preset => false,
        };
        if self.ignored.iter().any(is_ignored) {
            return;
        }
        self.found.push(Problem { severity, place: place.clone(), path: path.to_owned(), message });
    }
}

impl Problem {
    /// Formats the problem in one line: place, severity, key path and message.
    pub(crate) fn line(&self, sources: &Sources) -> String {
        let place = sources.describe(&self.place);
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let parts =
            [place.as_str(), severity, &self.path, &self.message].into_iter().filter(|part| !part.is_empty());
        // A message may quote the file, which must not control the reader's terminal.
        parts.collect::<Vec<_>>().join(": ").replace(output::is_control, "\u{fffd}")
    }
}
