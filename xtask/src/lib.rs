//! All automation of the repository that is more than a line of shell.
//!
//! Decides whether the tree keeps the house rules ([`tidy`]) and whether the generated pages are
//! up to date ([`codegen`]). It never changes a source file; `codegen` without `--check` writes
//! `docs/reference` and nothing else.

pub mod codegen;
pub mod tidy;
