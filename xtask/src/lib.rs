//! The automation of the repository, beyond single lines of shell.
//!
//! Checks the house rules ([`tidy`]) and whether code and tests cover the RFCs ([`requirements`]), counts lines
//! ([`lines`]), and builds releases ([`release`]). The automation never changes a source file: `codegen` and
//! `requirements` write `docs/reference`, `vectors` writes `conformance/store`.

pub mod codegen;
pub mod lines;
pub mod release;
pub mod requirements;
pub mod tidy;
mod tool;
pub mod vectors;
