//! How old a response was when it arrived: RFC 9111 section 4.2.3 up to `corrected_initial_age`.
//! [`crate::StoredFacts::current_age_ms`] adds the time since.

use crate::directives::{DeltaSeconds, parse_delta_seconds};
use crate::{FieldLine, ResponseFacts, fields};

/// Reads `Age` in seconds.
//= RFC 9111 section 5.1: the first member of a list
//= RFC 9111 section 5.1: an invalid Age is ignored
//= RFC 9111 section 5.1: Age is a non-negative integer
pub fn parse(response: &[FieldLine<'_>]) -> Option<DeltaSeconds> {
    let value = fields::first(response, "age")?;
    parse_delta_seconds(fields::Members::new(value).next()?)
}

/// `corrected_initial_age` in milliseconds.
//= RFC 9111 section 4.2.3: corrected initial age
pub fn corrected_initial_age_ms(response: &ResponseFacts) -> u64 {
    // Date has whole seconds, so the arrival is rounded down to the same: its milliseconds would make
    // every response up to a second older than it is.
    //= RFC 9111 section 4.2.3: apparent age is never negative
    let apparent_age_s =
        response.times.response.whole_seconds().saturating_sub(response.date.whole_seconds()).max(0);
    //= RFC 9111 section 4.2.3: the delay counts from the request
    let response_delay_ms = response.times.response.ms_since(response.times.request).max(0);
    //= RFC 9111 section 4.2.3: age_value
    let corrected_age_ms = u64::from(response.age_s.unwrap_or(0)) * 1000 + response_delay_ms.unsigned_abs();
    apparent_age_s.unsigned_abs().saturating_mul(1000).max(corrected_age_ms)
}
