//! The number of further gateways that a request may pass (RFC 9110 section 7.6.2).

use crate::{FieldLine, decimal, fields};

/// The meaning of `Max-Forwards` for a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxForwards {
    /// No limit: the field is absent, not a number, or not defined for the method.
    Unlimited,
    /// The gateway answers the request itself.
    Answer,
    /// The gateway forwards the request with this number.
    Forward(u64),
}

impl MaxForwards {
    /// Parses `Max-Forwards` of a request. Doesn't allocate.
    //= RFC 9110 section 7.6.2: Max-Forwards of TRACE and OPTIONS
    //= RFC 9110 section 7.6.2: Max-Forwards of other methods
    pub fn parse(method: &str, request: &[FieldLine<'_>]) -> Self {
        if !matches!(method, "TRACE" | "OPTIONS") {
            return Self::Unlimited;
        }
        match fields::only(request, "max-forwards").and_then(decimal::parse_saturating) {
            None => Self::Unlimited,
            Some(0) => Self::Answer,
            Some(left) => Self::Forward(left - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 9110 section 7.6.2: Max-Forwards of TRACE and OPTIONS
    //= RFC 9110 section 7.6.2: Max-Forwards of other methods
    #[test]
    fn numbers_count_down_for_two_methods() {
        let cases: &[(&str, &[&[u8]], MaxForwards)] = &[
            ("OPTIONS", &[b"10"], MaxForwards::Forward(9)),
            ("TRACE", &[b"1"], MaxForwards::Forward(0)),
            ("OPTIONS", &[b"0"], MaxForwards::Answer),
            ("TRACE", &[b"000"], MaxForwards::Answer),
            ("OPTIONS", &[b"99999999999999999999999"], MaxForwards::Forward(u64::MAX - 1)),
            ("OPTIONS", &[], MaxForwards::Unlimited),
            ("OPTIONS", &[b"x"], MaxForwards::Unlimited),
            ("OPTIONS", &[b"-1"], MaxForwards::Unlimited),
            ("OPTIONS", &[b"0", b"5"], MaxForwards::Unlimited),
            ("GET", &[b"0"], MaxForwards::Unlimited),
            ("options", &[b"0"], MaxForwards::Unlimited),
        ];
        for (method, values, expected) in cases {
            let request: Vec<FieldLine<'_>> = values.iter().map(|value| ("Max-Forwards", *value)).collect();
            assert_eq!(MaxForwards::parse(method, &request), *expected, "{method} {values:?}");
        }
    }
}
