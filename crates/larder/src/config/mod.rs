//! The configuration: from files and arguments to checked settings, or to every problem at once.
//!
//! The steps: [`raw`] reads text into a [`tree`] that fits the option [`table`]; [`mod@include`] adds the files that it
//! names; arguments override it; [`mod@check`] turns the tree into the typed settings of the parts. At a reload,
//! [`reload`] restores the values that can't change at run time, and the result is checked again. No other module reads
//! configuration.

mod address;
mod check;
mod environment;
mod file;
mod glob;
mod include;
mod locate;
mod misplaced;
mod overlay;
mod overrides;
mod problem;
mod quantity;
mod raw;
pub(crate) mod reference;
mod reload;
mod setting;
mod status;
mod table;
mod tree;
mod words;

#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use address::{parse_address, parse_listen_address};
pub(crate) use check::{
    KvSettings, LogSettings, PeerSettings, RegionSettings, RemoteTier, Settings, StoreTier,
};
pub(crate) use environment::Environment;
pub(crate) use file::Input;
pub(crate) use locate::Sources;
pub(crate) use overrides::{KvOverrides, Overrides, Program, Purpose};
pub(crate) use problem::{LeftOut, Problem, Severity};
pub(crate) use quantity::{WORKERS, format_size};

use address::Names;
use file::read;
use locate::Place;
use problem::Problems;
use raw::Reader;

/// The result of reading a configuration.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The files, for showing problems.
    pub(crate) sources: Sources,
    /// Errors and warnings, in the order of the text: at most [`problem::PROBLEMS_MAX`], errors before warnings.
    pub(crate) problems: Vec<Problem>,
    /// The numbers of errors and warnings that aren't in the list.
    pub(crate) left_out: LeftOut,
    /// The settings; absent if there is an error.
    pub(crate) settings: Option<Settings>,
}

/// Reads and checks the configuration for the start of a process, or for `larder check`.
pub(crate) fn check(input: Option<Input>, overrides: &Overrides) -> Checked {
    run(input, overrides, None)
}

/// Reads and checks the configuration again for a process that runs with `running`.
///
/// Keys that can't change at run time keep their value, with a warning.
pub(crate) fn check_again(file: Option<&Path>, overrides: &Overrides, running: &Settings) -> Checked {
    run(file.map(Input::of_file), overrides, Some(running))
}

fn run(input: Option<Input>, overrides: &Overrides, running: Option<&Settings>) -> Checked {
    let mut sources = Sources::default();
    let mut problems = Problems::default();
    let mut tree = match input {
        Some(input) => read(input, &table::ROOT, &mut sources, &mut problems),
        None => Reader::new(Place::Flag("the command line"), &mut problems).document(&table::ROOT, ""),
    };
    include::read_included(&mut tree, &mut sources, &mut problems);
    overrides.apply(&mut tree, &mut problems);
    let unknown = Names::default();
    let names = address::resolve(&mut tree, running.map_or(&unknown, |running| &running.names));
    if let Some(running) = running.filter(|_| overrides.program == Program::Kv) {
        reload::refuse_lost_kv(&tree, &running.tree, &mut problems);
    }
    let is_read = problems.clone();
    let mut settings = check::build(tree.clone(), names.clone(), overrides, &sources, &mut problems);
    let mut changes = Problems::default();
    // A reload refuses every file that a start would refuse, so that the next start can't fail.
    if let Some(running) = running.filter(|_| !problems.has_errors()) {
        let mut unchanged = reload::Unchanged::new(&running.tree, &mut changes);
        reload::keep_unreloadable(&mut tree, &running.tree, &mut unchanged);
        reload::keep_stores_of_sites(&mut tree, &running.tree, &mut unchanged);
    }
    if !changes.is_empty() {
        problems = is_read.with(changes);
        settings = check::build(tree, names, overrides, &sources, &mut problems);
    }
    let settings = settings.filter(|_| !problems.has_errors());
    let (problems, left_out) = problems.into_sorted();
    Checked { sources, problems, left_out, settings }
}
