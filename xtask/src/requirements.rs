//! The requirement page: every requirement of the RFCs on a shared cache, with its code and tests.
//!
//! `conformance/requirements` lists the requirements, one file per document. A citation names one of them: in Rust as
//! `//= RFC 9111 section 4.2.3: current age`, in a case of `conformance` as a string of `cites`. This module joins
//! requirements and citations into `docs/reference/rfc9111.md` and reports mismatches: citations of unknown
//! requirements, and requirements without code or test.

mod citations;
mod evidence;
mod list;
mod page;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use self::evidence::Evidence;
use crate::tidy::Problem;

/// Whether to compare or write the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Compare the generated page with the one in the tree.
    Check,
    /// Write the generated page into the tree.
    Write,
}

/// The result of joining the lists and citations of a tree.
#[derive(Debug)]
pub struct Report {
    /// The page, in Markdown.
    pub page: String,
    /// Citations of unknown requirements, and faults of the lists; sorted, empty if there are none.
    pub problems: Vec<Problem>,
    /// Requirements without code, test or exception, each as a line to print.
    pub gaps: Vec<String>,
}

const PAGE: &str = "docs/reference/rfc9111.md";

/// Joins requirements and citations of the repository at `root`; returns lines to print.
///
/// # Errors
///
/// Returns an error if a citation names no requirement, or a list has a fault; for [`Mode::Check`] also if a
/// requirement has gaps or the page in the tree differs.
pub fn run(root: &Path, mode: Mode) -> anyhow::Result<Vec<String>> {
    let Report { page, problems, gaps: mut lines } = report(root)?;
    if !problems.is_empty() {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        bail!("{}\nrequirements: {} problems", problems.join("\n"), problems.len());
    }
    if mode == Mode::Check && !lines.is_empty() {
        bail!("{}\nrequirements: {} gaps", lines.join("\n"), lines.len());
    }
    let place = root.join(PAGE);
    let is_same = fs::read_to_string(&place).is_ok_and(|text| text == page);
    lines.push(match (mode, is_same) {
        (_, true) => format!("requirements: {PAGE} is up to date"),
        (Mode::Check, false) => bail!("requirements: {PAGE} is out of date; run `cargo xtask requirements`"),
        (Mode::Write, false) => {
            fs::write(&place, page).with_context(|| format!("cannot write {PAGE}"))?;
            format!("requirements: wrote {PAGE}")
        }
    });
    Ok(lines)
}

/// Reads the tree at `root` and joins requirements and citations.
///
/// # Errors
///
/// Returns an error if a file can't be read, or a list or a case file doesn't parse.
pub fn report(root: &Path) -> anyhow::Result<Report> {
    let lists = list::read(root)?;
    let found = citations::read(root)?;
    let mut problems = lists.problems;
    problems.extend(found.problems);
    let (evidence, unmatched) = Evidence::join(&lists.documents, &found.citations);
    problems.extend(unmatched);
    problems.sort();
    problems.dedup();
    Ok(Report {
        page: page::render(&lists.documents, &evidence),
        problems,
        gaps: evidence.gaps(&lists.documents),
    })
}
