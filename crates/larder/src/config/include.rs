//! Further files: those that match the patterns of `include`, read in the order of their names and merged into the main
//! tree.

use std::path::{Path, PathBuf};

use super::file::{Input, read};
use super::glob::{Wildcards, glob};
use super::locate::Sources;
use super::problem::Problems;
use super::table::INCLUDED;
use super::tree::{Table, Value};

/// Reads the files that `tree` includes, and appends their sites and origins.
pub(super) fn read_included(tree: &mut Table, sources: &mut Sources, problems: &mut Problems) {
    let mut seen: Vec<PathBuf> = Vec::new();
    for pattern in tree.list("include").to_vec() {
        let files = match files(&sources.resolve(&pattern.place, pattern.as_text())) {
            Ok(files) => files,
            Err(message) => {
                problems.error(&pattern.place, &pattern.path, message);
                continue;
            }
        };
        for file in files {
            if seen.contains(&file) {
                continue;
            }
            let input = Input::of_file(&file);
            if let Some(error) = input.error() {
                // The problem is shown at the line that names the file.
                let message = format!("{} can't be read: {error}", file.display());
                problems.error(&pattern.place, &pattern.path, message);
                continue;
            }
            let included = read(input, &INCLUDED, sources, problems);
            append(tree, included);
            seen.push(file);
        }
    }
}

/// Returns the files that match a pattern, sorted by name. Wildcards are allowed in the file name only, so that the
/// configuration names every directory that Larder reads.
fn files(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let name = pattern.file_name().and_then(|name| name.to_str()).ok_or("names no file")?;
    if !name.contains(['*', '?']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let glob = glob(name, Wildcards::Everywhere)?;
    let directory =
        pattern.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let failure = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failure)? {
        let path = entry.map_err(failure)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.file_name().is_some_and(|name| glob.is_match(name)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn append(tree: &mut Table, included: Table) {
    for (key, mut node) in included.entries {
        let Value::List(added) = &mut node.value else { continue };
        match tree.node_mut(key).map(|node| &mut node.value) {
            Some(Value::List(list)) => list.append(added),
            _ => tree.set(key, node),
        }
    }
}
