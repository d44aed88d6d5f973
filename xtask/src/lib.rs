//! All automation of the repository that is more than a line of shell.
//!
//! Decides whether the tree keeps the house rules ([`tidy`]), whether the generated pages are up to
//! date ([`codegen`], [`vectors`]), and whether code and tests answer the RFCs ([`requirements`]). It never changes
//! a source file; without `--check`, `codegen` and `requirements` write `docs/reference`, `vectors` writes `conformance/store`, and
//! nothing else.

pub mod codegen;
pub mod requirements;
pub mod structure;
pub mod tidy;
pub mod vectors;
