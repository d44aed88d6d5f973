//! Globs, compiled within limits: the `globset` crate panics if an expression is too large or too deep.

use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::RegexBuilder;

/// The characters that `*` and `?` match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wildcards {
    /// All but `/`.
    InSegments,
    /// All but `/`, and letters match in either case.
    InSegmentsOfAnyCase,
    /// Any character.
    Everywhere,
}

pub(super) fn glob(text: &str, wildcards: Wildcards) -> Result<GlobMatcher, String> {
    if text.len() > GLOB_BYTES_MAX {
        return Err(format!("has {} bytes; at most {GLOB_BYTES_MAX} are allowed", text.len()));
    }
    let glob = GlobBuilder::new(text)
        .literal_separator(wildcards != Wildcards::Everywhere)
        .case_insensitive(wildcards == Wildcards::InSegmentsOfAnyCase)
        .build();
    let glob = glob.map_err(|error| format!("not a glob: {}", error.kind()))?;
    match RegexBuilder::new(glob.regex()).size_limit(REGEX_BYTES_MAX).build() {
        Ok(_) => Ok(glob.compile_matcher()),
        Err(regex::Error::CompiledTooBig(bytes)) => {
            Err(format!("the glob needs more than {bytes} bytes of memory"))
        }
        Err(_) => Err("the glob nests braces too deeply".to_owned()),
    }
}

const GLOB_BYTES_MAX: usize = 4096;
/// Memory limit for a compiled expression.
pub(super) const REGEX_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_have_limits() {
        let check = |text: &str, expected: Option<&str>| {
            let found = glob(text, Wildcards::Everywhere).err();
            let fits = match (&found, expected) {
                (Some(found), Some(part)) => found.contains(part),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(fits, "{text:.40}: {found:?}");
        };
        let nested = |depth: usize| format!("{}b{}", "{a,".repeat(depth), "}".repeat(depth));
        check("text/*", None);
        check(&nested(3), None);
        check(&nested(500), Some("nests braces too deeply"));
        check(&nested(2000), Some("has 8001 bytes; at most 4096 are allowed"));
        check(&"{a,".repeat(300), Some("not a glob"));
    }
}
