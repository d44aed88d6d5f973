//! Which answers a request has asked for by more than its method and target.

/// What of a request calls for a 304 or a 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    has_condition: bool,
    has_range: bool,
}

impl Asked {
    /// By a request that has these fields, as it is sent. Names are asked for in lower case.
    pub fn by(has: impl Fn(&str) -> bool) -> Self {
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
            let asked = Asked::by(|field| ["host", name].contains(&field));
            assert_eq!(asked.unasked(304).is_none(), is_304_asked, "{name}");
            assert_eq!(asked.unasked(206).is_none(), is_206_asked, "{name}");
            assert_eq!(asked.unasked(200), None);
        }
        check("if-none-match", true, false);
        check("if-modified-since", true, false);
        check("range", false, true);
        // A failure of these is a 412 or a 200.
        check("if-match", false, false);
        check("if-unmodified-since", false, false);
        check("if-range", false, false);
        check("accept", false, false);
    }
}
