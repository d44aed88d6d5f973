//! Whether a run has failed and why, in a sentence beside the exit status.

use super::{Errors, Run};

impl Run {
    /// Why the run has failed: none or only some of the requests were answered as expected. `None` if all were.
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

/// Why a request has no answer.
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

    fn in_words(self) -> String {
        let kinds = [
            (self.connect, "connections could not be made"),
            (self.broken, "connections broke"),
            (self.malformed, "answers were not of the protocol"),
            (self.timeout, "answers did not come in time"),
            (self.wrong, "answers were not the expected ones"),
        ];
        let words =
            kinds.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        words.collect::<Vec<_>>().join(", ")
    }
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
        check(
            0,
            wrong,
            Some("run: no request was answered as expected: 15012 answers were not the expected ones"),
        );
        let some = Errors { connect: 1, timeout: 2, ..Errors::default() };
        let expected =
            "run: 3 of 10 requests failed: 1 connections could not be made, 2 answers did not come in time";
        check(7, some, Some(expected));
    }
}
