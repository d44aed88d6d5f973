//! Checks that links and paths in the documentation and in comments exist.

use std::collections::BTreeMap;

use super::layout::Layout;
use super::markdown::{anchors, code_spans, link_targets, prose_lines};
use super::problem::Problem;

/// Folders at the root: a code span that begins with one of them is a path of the repository.
const ROOT_FOLDERS: [&str; 11] = [
    ".ci/",
    "compare/",
    "config/",
    "conformance/",
    "crates/",
    "deploy/",
    "docs/",
    "fuzz/",
    "npm/",
    "scripts/",
    "xtask/",
];

pub(super) fn check(layout: &Layout) -> Vec<Problem> {
    let anchors: BTreeMap<&str, Vec<String>> =
        layout.pages.iter().map(|(path, text)| (path.as_str(), anchors(text))).collect();
    let mut problems = Vec::new();
    for (path, text) in &layout.pages {
        for (line, prose) in prose_lines(text) {
            let links = link_targets(prose)
                .into_iter()
                .filter_map(|target| broken_link(layout, &anchors, path, &target));
            problems.extend(links.map(|what| problem(path, line, what)));
            problems.extend(broken_paths(layout, prose).map(|what| problem(path, line, what)));
        }
    }
    problems.extend(comment_paths(layout));
    problems
}

fn problem(path: &str, line: usize, what: String) -> Problem {
    let allowed = "paths and anchors that exist in this tree".to_owned();
    Problem { file: path.to_owned(), line, rule: "links", what, allowed }
}

fn broken_link(
    layout: &Layout,
    anchors: &BTreeMap<&str, Vec<String>>,
    page: &str,
    target: &str,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let resolved = if path.is_empty() { page.to_owned() } else { resolve(page, path)? };
    if !layout.has(&resolved) {
        return Some(format!("`{target}` does not exist"));
    }
    let known = anchors.get(resolved.as_str())?;
    let is_missing = !anchor.is_empty() && !known.iter().any(|name| name == anchor);
    is_missing.then(|| format!("`{resolved}` has no heading `#{anchor}`"))
}

/// Returns the path from the root to which `target` resolves on `page`; a leading slash stands for the root.
pub(crate) fn resolve(page: &str, target: &str) -> Option<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    parts.retain(|part| !part.is_empty());
    Some(parts.join("/"))
}

/// Returns paths in code spans of a line that don't exist.
fn broken_paths<'a>(layout: &'a Layout, line: &'a str) -> impl Iterator<Item = String> + 'a {
    let words = code_spans(line).into_iter().flat_map(str::split_whitespace);
    let paths =
        words.filter(|word| ROOT_FOLDERS.iter().any(|folder| word.starts_with(folder))).filter_map(path_of);
    paths
        .flat_map(alternatives)
        .filter(|path| !layout.has(path))
        .map(|path| format!("`{path}` does not exist"))
}

/// Returns the path in a word, without anchor, line number and full stop; `None` if the word is a placeholder.
fn path_of(word: &str) -> Option<&str> {
    let path = word.split(['#', ':']).next().unwrap_or(word).trim_end_matches([',', '.', ';']);
    let is_path = path.chars().all(|c| c.is_alphanumeric() || "_-./*{},".contains(c));
    (is_path && !path.contains("..")).then_some(path)
}

/// Expands braces that contain a comma to several paths.
fn alternatives(path: &str) -> Vec<String> {
    let braces = path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braces {
        None => vec![path.to_owned()],
        Some((before, (inside, after))) => {
            inside.split(',').flat_map(|part| alternatives(&format!("{before}{part}{after}"))).collect()
        }
    }
}

fn comment_paths(layout: &Layout) -> Vec<Problem> {
    let mut problems = Vec::new();
    for source in &layout.sources {
        for (index, line) in source.text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//").unwrap_or("");
            problems.extend(broken_paths(layout, comment).map(|what| problem(&source.path, index + 1, what)));
        }
    }
    problems
}
