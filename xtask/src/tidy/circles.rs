//! Files that import each other in a circle can only be understood, moved and tested as a whole.
//!
//! Two may: a type and what it is made of. Crates that have more have it written in `xtask/circles.toml`, with the size of the
//! largest: a number that is too small is a circle that grew, and one that is too large would let it grow again.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;

use super::problem::Problem;
use super::source::Source;
use crate::structure::imports::Imports;
use crate::structure::{crate_of, roots};

const CIRCLE_FILES_MAX: usize = 2;

/// One machine each, whose parts work on the same data; and a tool.
const EXEMPT_CRATES: [&str; 3] = ["compare", "engine", "kv"];

/// What is written down.
const WRITTEN: &str = "xtask/circles.toml";

pub(super) fn check(root: &Path, sources: &[Source]) -> anyhow::Result<Vec<Problem>> {
    let written = read_written(root)?;
    let found: Vec<Found> = roots(sources)
        .into_iter()
        .filter(|root| !EXEMPT_CRATES.contains(&crate_of(root)))
        .map(|root| Found::read(sources, root))
        .collect();
    let grown = found.iter().flat_map(|found| found.grown(&written));
    let outdated = written.iter().filter_map(|row| row.outdated(&found));
    Ok(grown.chain(outdated).collect())
}

/// The circles of a crate.
struct Found {
    name: String,
    /// The files of each; the largest first.
    circles: Vec<Vec<String>>,
}

impl Found {
    fn read(sources: &[Source], root: &str) -> Self {
        let imports = Imports::read(sources, root);
        let own = |circle: Vec<&str>| circle.into_iter().map(str::to_owned).collect();
        let circles = imports.circles().into_iter().map(own).collect();
        Self { name: crate_of(root).to_owned(), circles }
    }

    fn files_max(&self) -> usize {
        self.circles.first().map_or(0, Vec::len)
    }

    fn grown(&self, written: &[Written]) -> Vec<Problem> {
        let row = written.iter().find(|row| row.name == self.name);
        let allowed = row.map_or(CIRCLE_FILES_MAX, |row| row.files);
        let larger = self.circles.iter().filter(|circle| circle.len() > allowed);
        larger.map(|circle| self.problem(circle, allowed)).collect()
    }

    fn problem(&self, circle: &[String], allowed: usize) -> Problem {
        let what = format!("{} files import each other in a circle: {}", circle.len(), circle.join(" "));
        let name = &self.name;
        let allowed = format!("at most {allowed}: `cargo xtask structure {name}` shows the imports to cut");
        Problem { file: circle[0].clone(), line: 1, rule: "circles", what, allowed }
    }
}

/// A line `crate = files` of the file.
struct Written {
    name: String,
    files: usize,
    line: usize,
}

impl Written {
    fn parse((index, text): (usize, &str)) -> Option<Self> {
        let (name, files) = text.split_once('=')?;
        Some(Self { name: name.trim().to_owned(), files: files.trim().parse().ok()?, line: index + 1 })
    }

    fn outdated(&self, found: &[Found]) -> Option<Problem> {
        let files = found.iter().find(|found| found.name == self.name).map_or(0, Found::files_max);
        let (what, allowed) = if files <= CIRCLE_FILES_MAX {
            (format!("`{}` needs no line", self.name), "take it out".to_owned())
        } else if files < self.files {
            (format!("the largest circle of `{}` has {files} files", self.name), format!("write {files}"))
        } else {
            return None;
        };
        Some(Problem { file: WRITTEN.to_owned(), line: self.line, rule: "circles", what, allowed })
    }
}

fn read_written(root: &Path) -> anyhow::Result<Vec<Written>> {
    match std::fs::read_to_string(root.join(WRITTEN)) {
        Ok(text) => Ok(text.lines().enumerate().filter_map(Written::parse).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context(WRITTEN),
    }
}
