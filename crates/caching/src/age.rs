//! The `Age` field: RFC 9111 section 5.1. [`crate::StoredFacts`] computes `corrected_initial_age` from it.

use crate::directives::{DeltaSeconds, parse_delta_seconds};
use crate::{FieldLine, fields};

/// Reads `Age` in seconds.
//= RFC 9111 section 5.1: the first member of a list
//= RFC 9111 section 5.1: an invalid Age is ignored
//= RFC 9111 section 5.1: Age is a non-negative integer
pub fn parse(response: &[FieldLine<'_>]) -> Option<DeltaSeconds> {
    let value = fields::first(response, "age")?;
    parse_delta_seconds(fields::Members::new(value).next()?)
}
