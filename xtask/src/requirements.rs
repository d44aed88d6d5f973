//! The requirement page: every requirement of the RFCs on a shared cache, and what answers it.
//!
//! `conformance/requirements` lists the requirements, one file per document. Citations name one of
//! them, in Rust as `//= RFC 9111 section 4.2.3: current age`, in a case of `conformance` as a string
//! of `cites`. This module joins the two into `docs/reference/rfc9111.md` and finds what does not
//! join: a citation of nothing, a requirement that no code or no test cites.

mod citations;
mod evidence;
mod list;
mod page;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use self::evidence::Evidence;
use crate::tidy::Problem;

/// What to do with the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Compare with the tree.
    Check,
    /// Put it into the tree.
    Write,
}

/// What the lists and the citations of a tree come to.
#[derive(Debug)]
pub struct Report {
    /// The page, in Markdown.
    pub page: String,
    /// Citations of nothing and faults of the lists; sorted, empty when all join.
    pub problems: Vec<Problem>,
    /// Requirements without code, test or exception: a line for people each.
    pub gaps: Vec<String>,
}

const PAGE: &str = "docs/reference/rfc9111.md";

/// Joins requirements and citations of the repository at `root`; answers with lines for people.
///
/// # Errors
///
/// When a citation names no requirement, or a list has a fault, and, for [`Mode::Check`], when a
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

/// Reads the tree at `root` and joins what it says.
///
/// # Errors
///
/// When a file cannot be read, or a list or a case file does not parse.
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
