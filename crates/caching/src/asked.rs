//! Which answers a request has asked for by more than its method and target.

use crate::FieldLine;
use crate::fields;

/// What of a request calls for a 304 or a 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    has_condition: bool,
    has_range: bool,
}

impl Asked {
    /// By a request with these fields, as it is sent.
    pub fn by(request: &[FieldLine<'_>]) -> Self {
        let has = |name| fields::contains(request, name);
        Self { has_condition: has("if-none-match") || has("if-modified-since"), has_range: has("range") }
    }

    /// What is wrong with an answer of this status: its recipient could make nothing of it. Whether the field may come with
    /// this method, or would call for another status, is between client and origin (RFC 9110 sections 15.3.7 and 15.4.5).
    pub fn unasked(self, status: u16) -> Option<&'static str> {
        match status {
            304 if !self.has_condition => Some("304 to a request without conditions"),
            206 if !self.has_range => Some("206 to a request without a range"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_for_what() {
        #[track_caller]
        fn check(name: &'static str, is_304_asked: bool, is_206_asked: bool) {
            let asked = Asked::by(&[("Host", b"a"), (name, b"x")]);
            assert_eq!(asked.unasked(304).is_none(), is_304_asked, "{name}");
            assert_eq!(asked.unasked(206).is_none(), is_206_asked, "{name}");
            assert_eq!(asked.unasked(200), None);
        }
        check("If-None-Match", true, false);
        check("If-Modified-Since", true, false);
        check("Range", false, true);
        // A failure of these is a 412 or a 200.
        check("If-Match", false, false);
        check("If-Unmodified-Since", false, false);
        check("If-Range", false, false);
        check("Accept", false, false);
    }
}
