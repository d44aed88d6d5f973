//! `cargo xtask structure`: how the crates are built, in figures.
//!
//! Per crate: files and lines outside tests, function lengths, circles of files that import each other, and how many
//! files the most far-reaching file reaches. A circle can only be read as a whole.

pub(crate) mod imports;

use std::collections::BTreeSet;
use std::path::Path;

use crate::tidy::layout::Layout;
use crate::tidy::source::Source;
use crate::tidy::statistics;

use self::imports::Imports;

/// Lines for people.
///
/// # Errors
/// When the tree can't be read.
pub fn report(root: &Path) -> anyhow::Result<Vec<String>> {
    let layout = Layout::read(root)?;
    let lengths = statistics::lines(&layout.sources);
    Ok(roots(&layout.sources)
        .iter()
        .flat_map(|root| {
            let name = crate_of(root);
            let own = lengths.iter().filter(|line| line.starts_with(&format!("{name}: "))).cloned();
            own.chain(figures(&layout.sources, root)).collect::<Vec<_>>()
        })
        .collect())
}

/// The source folders of all crates: `crates/store/src`, `xtask/src`.
pub(crate) fn roots(sources: &[Source]) -> BTreeSet<&str> {
    let root = |source: &'_ Source| {
        let end = source.path.find("/src/")? + "/src".len();
        Some(end)
    };
    sources.iter().filter_map(|source| source.path.get(..root(source)?)).collect()
}

pub(crate) fn crate_of(root: &str) -> &str {
    root.trim_end_matches("/src").rsplit('/').next().unwrap_or(root)
}

fn figures(sources: &[Source], root: &str) -> Vec<String> {
    let imports = Imports::read(sources, root);
    let own = |source: &&Source| imports.files.contains(&source.path);
    let lines: usize = sources.iter().filter(own).map(Source::production_line_count).sum();
    let mut figures = vec![format!("  {} files, {lines} lines outside tests", imports.files.len())];
    let reach = |file: &usize| imports.reached_from(*file).len();
    if let Some(file) = (0..imports.files.len()).max_by_key(reach) {
        figures.push(format!("  {} reaches {} files", imports.files[file], reach(&file)));
    }
    figures.extend(
        imports.circles().iter().map(|circle| format!("  circle of {}: {}", circle.len(), circle.join(" "))),
    );
    figures
}

/// The imports that close the circles of one crate, a line each.
///
/// # Errors
/// When the tree can't be read.
pub fn circles_of(root: &Path, name: &str) -> anyhow::Result<Vec<String>> {
    let layout = Layout::read(root)?;
    let found = roots(&layout.sources).into_iter().find(|root| crate_of(root) == name);
    let imports = Imports::read(&layout.sources, found.ok_or_else(|| anyhow::anyhow!("no crate `{name}`"))?);
    let short = |file: usize| imports.files[file].split_once("/src/").map_or("", |(_, file)| file);
    let mut lines = Vec::new();
    for circle in imports.circles() {
        lines.push(format!("circle of {}", circle.len()));
        let is_inside = |file: usize| circle.contains(&imports.files[file].as_str());
        for file in (0..imports.files.len()).filter(|file| is_inside(*file)) {
            let used = imports.uses[file].iter().filter(|(used, _)| is_inside(**used));
            lines.extend(used.map(|(used, paths)| {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                format!("  {} -> {}: {}", short(file), short(*used), paths.join(", "))
            }));
        }
    }
    Ok(lines)
}
