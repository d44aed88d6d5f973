//! Conditions and ranges of a request, which allow a 304 or a 206.

/// The request fields that allow a 304 or a 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    has_condition: bool,
    has_range: bool,
}

impl Asked {
    /// Reads the fields of a request as it is sent to the origin. `has` returns whether a field is present; its argument is a name in lower
    /// case.
    pub fn by(has: impl Fn(&str) -> bool) -> Self {
        Self { has_condition: has("if-none-match") || has("if-modified-since"), has_range: has("range") }
    }

    /// Returns the problem with a response if the request doesn't allow its status, so that the recipient couldn't use it. Doesn't check
    /// whether the method allows a condition or a range, or whether another status would be right: client and origin decide that (RFC 9110
    /// sections 15.3.7 and 15.4.5).
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
            let asked = Asked::by(|field| ["host", name].contains(&field));
            assert_eq!(asked.unasked(304).is_none(), is_304_asked, "{name}");
            assert_eq!(asked.unasked(206).is_none(), is_206_asked, "{name}");
            assert_eq!(asked.unasked(200), None);
        }
        check("if-none-match", true, false);
        check("if-modified-since", true, false);
        check("range", false, true);
        // If these conditions fail, the response is a 412 or a 200.
        check("if-match", false, false);
        check("if-unmodified-since", false, false);
        check("if-range", false, false);
        check("accept", false, false);
    }
}
