//! All automation of the repository that is more than a line of shell.
//!
//! Decides whether the tree keeps the house rules ([`tidy`]), whether the generated pages are up to
//! date ([`codegen`]), and whether code and tests answer the RFCs ([`requirements`]). It never changes
//! a source file; `codegen` and `requirements` without `--check` write `docs/reference` and nothing else.

pub mod codegen;
pub mod requirements;
pub mod structure;
pub mod tidy;
