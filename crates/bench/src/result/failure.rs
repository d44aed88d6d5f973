//! The reason for a failed run, as a sentence that explains the exit status.

use super::{Errors, Run};
use crate::report::number;

impl Run {
    /// Returns the reason for a failure: some requests got no answer, or an unexpected one. `None` if all answers were as expected.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let (name, errors) = (&self.name, self.errors.total());
        match (self.requests, errors) {
            (0, 0) => Some(format!("{name}: no request was answered in {:.1} s", self.elapsed_s)),
            (0, _) => {
                Some(format!("{name}: no request was answered as expected: {}", self.errors.in_words()))
            }
            (_, 0) => None,
            (right, _) => {
                let all = right + errors;
                Some(format!("{name}: {errors} of {all} requests failed: {}", self.errors.in_words()))
            }
        }
    }
}

/// Cause of a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Connect,
    Broken,
    Malformed,
    Timeout,
}

impl Errors {
    pub(crate) fn count(&mut self, failure: Failure, requests: u64) {
        *match failure {
            Failure::Connect => &mut self.connect,
            Failure::Broken => &mut self.broken,
            Failure::Malformed => &mut self.malformed,
            Failure::Timeout => &mut self.timeout,
        } += requests;
    }

    /// The causes that occurred, in words.
    pub(crate) fn in_words(self) -> String {
        let kinds = [
            ("no connection", self.connect),
            ("broken connection", self.broken),
            ("malformed answer", self.malformed),
            ("timeout", self.timeout),
            ("wrong answer", self.wrong),
        ];
        in_words(&kinds)
    }
}

/// The counts above zero: `timeout: 3, wrong answer: 1,234`.
pub(crate) fn in_words(counts: &[(&str, u64)]) -> String {
    let counted = counts.iter().filter(|(_, count)| *count > 0);
    counted.map(|(what, count)| format!("{what}: {}", number::count(*count))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_expectation_is_a_failed_run() {
        let check = |requests: u64, errors: Errors, expected: Option<&str>| {
            let run = Run { name: "run".into(), requests, errors, elapsed_s: 2.0, ..Run::default() };
            assert_eq!(run.failure().as_deref(), expected);
        };
        check(10, Errors::default(), None);
        check(0, Errors::default(), Some("run: no request was answered in 2.0 s"));
        let wrong = Errors { wrong: 15_012, ..Errors::default() };
        check(0, wrong, Some("run: no request was answered as expected: wrong answer: 15,012"));
        let some = Errors { connect: 1, timeout: 2, ..Errors::default() };
        let expected = "run: 3 of 10 requests failed: no connection: 1, timeout: 2";
        check(7, some, Some(expected));
    }
}
