//! All automation of the repository that is more than a line of shell.
//!
//! Decides whether the tree keeps the house rules ([`tidy`]), whether the generated pages are up to
//! date ([`codegen`], [`vectors`]), whether code and tests answer the RFCs ([`requirements`]), how much there is to read ([`lines`]), and what a release consists of ([`release`]). It
//! never changes a source file; without `--check`, `codegen` and `requirements` write `docs/reference`, `vectors` writes `conformance/store`,
//! `changelog VERSION` writes `CHANGELOG.md`, and nothing else.

pub mod codegen;
pub mod lines;
pub mod release;
pub mod requirements;
pub mod structure;
pub mod tidy;
mod tool;
pub mod vectors;
