//! All automation of the repository that is more than a line of shell.
//!
//! Decides whether the tree keeps the house rules ([`tidy`]), whether code and tests answer the RFCs ([`requirements`]), how much there is to
//! read ([`lines`]), and what a release consists of ([`release`]). It never changes a source file: `codegen` and `requirements` write
//! `docs/reference`, `vectors` writes `conformance/store`.

pub mod codegen;
pub mod lines;
pub mod release;
pub mod requirements;
pub mod tidy;
mod tool;
pub mod vectors;
