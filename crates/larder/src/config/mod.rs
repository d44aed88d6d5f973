//! The configuration: from files and arguments to checked settings, or to every problem at once.
//!
//! The steps: [`raw`] reads text into a [`tree`] that fits the option [`table`]; [`include`] adds the files that it
//! names; arguments go over it; at a reload, [`reload`] puts the values back that can't change while running;
//! [`check`] turns the tree into the typed settings of the parts. Nothing else reads configuration.

mod address;
mod check;
mod environment;
mod include;
mod locate;
mod overrides;
mod problem;
mod quantity;
mod raw;
pub(crate) mod reference;
mod reload;
mod table;
mod tree;

#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use address::parse_address;
pub(crate) use check::{KvSettings, LogSettings, Settings};
pub(crate) use environment::Environment;
pub(crate) use locate::Sources;
pub(crate) use overrides::{KvOverrides, Overrides, Program, Purpose};
pub(crate) use problem::{Problem, Severity};
pub(crate) use quantity::{format_size, parse_duration};
pub(crate) use raw::nearest;
pub(crate) use tree::Table;

use locate::Place;
use problem::Problems;
use raw::Reader;

/// What came of reading a configuration.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The files, for showing problems.
    pub(crate) sources: Sources,
    /// Errors and warnings, in the order of the text.
    pub(crate) problems: Vec<Problem>,
    /// The settings; absent if there is any error.
    pub(crate) settings: Option<Settings>,
}

/// Reads and checks the configuration that a process starts with.
pub(crate) fn check(file: Option<&Path>, overrides: &Overrides) -> Checked {
    run(file, overrides, None)
}

/// Reads and checks the configuration anew for a process that runs with `running`.
///
/// Keys that can't change while running keep their value, with a warning.
pub(crate) fn check_again(file: Option<&Path>, overrides: &Overrides, running: &Settings) -> Checked {
    run(file, overrides, Some(&running.tree))
}

fn run(file: Option<&Path>, overrides: &Overrides, running: Option<&Table>) -> Checked {
    let mut sources = Sources::default();
    let mut problems = Problems::default();
    let mut tree = match file {
        Some(file) => read_file(file, &table::ROOT, &mut sources, &mut problems),
        None => Reader::of_flag("the command line", &mut problems).document(&table::ROOT, ""),
    };
    include::read_included(&mut tree, &mut sources, &mut problems);
    overrides.apply(&mut tree, &mut problems);
    address::resolve(&mut tree);
    if let Some(running) = running {
        reload::keep_unreloadable(&mut tree, running, &mut problems);
    }
    let settings = check::build(tree, overrides, &sources, &mut problems);
    let settings = settings.filter(|_| !problems.has_errors());
    Checked { sources, problems: problems.into_sorted(), settings }
}

/// Reads a file as `section`. One that can't be read counts as empty, so that the checks can go on.
fn read_file(
    path: &Path,
    section: &'static table::Section,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Table {
    let name = path.display().to_string();
    let (text, failure) = match std::fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => (text, None),
        Ok(Err(error)) => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            (text, Some((valid, "not UTF-8".to_owned())))
        }
        Err(error) => (String::new(), Some((0, format!("can't be read: {error}")))),
    };
    let source = sources.add(name, text.clone());
    let is_unread = failure.is_some();
    if let Some((at, message)) = failure {
        problems.error(&Place::Text { source, span: at..at }, "", message);
    }
    let mut reader = Reader::of_source(source, problems);
    let mut tree = reader.document(section, &text);
    let hidden = std::mem::take(&mut reader.hidden);
    sources.hide(source, hidden);
    if is_unread {
        // Nobody knows what it lacks.
        tree.wrong.extend(section.options.iter().map(|option| option.key));
    }
    tree
}
