//! The parts of a QUERY that are included in its cache key (RFC 10008 section 2.7) in addition to method and target
//! URI: its content, byte for byte, and the fields that describe it.

use crate::{FieldLine, fields};

/// The method name in the cache key.
pub const METHOD: &str = "QUERY";

/// Returns the metadata of the content: all lines of the fields that describe it. The result differs whenever a line
/// differs; an absent field differs from an empty one.
//= RFC 10008 section 2.7: the cache key has the content
pub fn metadata(request: &[FieldLine<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for name in METADATA {
        let lines = fields::values(request, name);
        out.extend_from_slice(&(lines.clone().count() as u64).to_be_bytes());
        for line in lines {
            out.extend_from_slice(&(line.len() as u64).to_be_bytes());
            out.extend_from_slice(line);
        }
    }
    out
}

/// Returns whether the request has the type of its content. Without the type, the origin server has to refuse the
/// request, and no response is stored.
//= RFC 10008 section 2: Content-Type is needed
pub fn is_typed(request: &[FieldLine<'_>]) -> bool {
    fields::only(request, "content-type").is_some_and(|value| !value.is_empty())
}

/// The request fields that describe its content (RFC 9110 section 8).
const METADATA: [&str; 4] = ["content-type", "content-encoding", "content-language", "content-location"];

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 10008 section 2.7: the cache key has the content
    #[test]
    fn metadata_differ_whenever_a_field_does() {
        let sections: &[&[FieldLine<'_>]] = &[
            &[],
            &[("content-type", b"")],
            &[("content-type", b"a")],
            &[("content-type", b"a"), ("content-type", b"a")],
            &[("content-type", b"a, a")],
            &[("content-encoding", b"a")],
            &[("content-type", b"a"), ("content-encoding", b"a")],
            &[("content-language", b"a")],
            &[("content-location", b"a")],
        ];
        for (number, one) in sections.iter().enumerate() {
            for other in &sections[..number] {
                assert_ne!(metadata(one), metadata(other), "{one:?} {other:?}");
            }
        }
        assert_eq!(
            metadata(&[("Content-Type", b"a"), ("Accept", b"x")]),
            metadata(&[("content-type", b"a")])
        );
    }

    //= RFC 10008 section 2: Content-Type is needed
    #[test]
    fn a_query_says_what_its_content_is() {
        assert!(is_typed(&[("Content-Type", b"a/b")]));
        assert!(!is_typed(&[]));
        assert!(!is_typed(&[("content-type", b"")]));
        assert!(!is_typed(&[("content-type", b"a/b"), ("content-type", b"a/c")]));
    }
}
