//! Requests that come back to the gateway that forwarded them: an origin server is this gateway, or forwards to it.
//!
//! `CDN-Loop` (RFC 8586) shows a loop at the first return, by a number that each process draws for itself: gateways in a row may have
//! one name. `Via` shows it after some rounds, if a hop on the way removes `CDN-Loop`.

use std::hash::{BuildHasher, RandomState};

use caching::FieldLine;
use caching::fields::members;
use message::head::OwnedRequest;

/// Field in which a gateway finds its own name again.
pub(crate) const FIELD: &str = "cdn-loop";

/// Identity of this process among others of its name.
#[derive(Debug)]
pub(crate) struct Instance {
    /// `instance=` and a number.
    parameter: Box<str>,
}

impl Instance {
    pub(crate) fn new() -> Self {
        let number = RandomState::new().hash_one(std::process::id());
        Self { parameter: format!("instance={number:016x}").into() }
    }

    /// Parts of its list element.
    pub(crate) fn element<'a>(&'a self, server_name: &'a str) -> [&'a [u8]; 3] {
        [server_name.as_bytes(), b"; ", self.parameter.as_bytes()]
    }

    /// Whether this process has forwarded a request before, or gateways of its name have so often that it must be going in circles: a
    /// chain of gateways that kept their default name is shorter.
    //= RFC 9110 section 7.6: no message goes round without end
    pub(crate) fn goes_in_circles(&self, request: &OwnedRequest, server_name: &str) -> bool {
        // Most requests come straight from a client.
        let is_named = |name: &[u8], known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if !request.fields.has_any(|name| is_named(name, "via") || is_named(name, FIELD)) {
            return false;
        }
        let lines = request.fields.to_lines();
        self.is_returned(&lines) || passes(&lines, server_name) >= OWN_PASSES_MAX
    }

    fn is_returned(&self, lines: &[FieldLine<'_>]) -> bool {
        let is_own = |element: &[u8]| {
            let mut parameters = element.split(|byte| *byte == b';').skip(1);
            parameters.any(|parameter| parameter.trim_ascii() == self.parameter.as_bytes())
        };
        members(lines, FIELD).any(is_own)
    }
}

/// Number of times that a request came through gateways of this name.
fn passes(lines: &[FieldLine<'_>], server_name: &str) -> usize {
    let is_own = |element: &&[u8]| {
        let mut words = element.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|received_by| received_by.eq_ignore_ascii_case(server_name.as_bytes()))
    };
    members(lines, "via").filter(is_own).count()
}

/// Passes through gateways of one name from which on a request counts as looping.
const OWN_PASSES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_forwarded_is_known_at_once() {
        let (instance, other) = (Instance::new(), Instance::new());
        let element = |of: &Instance| String::from_utf8(of.element("larder").concat()).unwrap();
        let (own, others) = (element(&instance), element(&other));
        assert_ne!(own, others);
        let check = |value: &str, expected: bool| {
            assert_eq!(instance.is_returned(&[(FIELD, value.as_bytes())]), expected, "{value}");
        };
        check(&own, true);
        check(&format!("a.example, {own}"), true);
        check(&format!("{own}, {others}"), true);
        check(&own.replace("; ", ";"), true);
        check(&own.replace("; ", " ; a=b ; "), true);
        check(&others, false);
        check("larder", false);
        check("", false);
        check(&own.replace("larder; ", ""), false);
        check(&format!("a; b=\"{own}\""), false);
    }

    #[test]
    fn passes_are_counted_by_name() {
        let check = |value: &str, expected: usize| {
            assert_eq!(passes(&[("via", value.as_bytes())], "larder"), expected, "{value}");
        };
        check("1.1 larder, 2 other, 1.0 LARDER (comment)", 2);
        check("1.1 larder2, larder", 0);
    }
}
