//! The contents of the tree: sources, pages, and the paths that git ignores.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::source::Source;

/// The tree, read once.
pub(crate) struct Layout {
    /// Every Rust file.
    pub(crate) sources: Vec<Source>,
    /// Every Markdown file: path and text.
    pub(super) pages: Vec<(String, String)>,
    /// Every file of other kinds with comments: path and text.
    pub(super) others: Vec<(String, String)>,
    /// Every file and folder, by path from the root; folders without a slash at the end.
    pub(crate) paths: BTreeSet<String>,
    /// Folders at the root of the tree that git ignores: pages may name them even if they don't
    /// exist.
    pub(super) ignored: Vec<String>,
}

impl Layout {
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut layout = Self {
            sources: Vec::new(),
            pages: Vec::new(),
            others: Vec::new(),
            paths: BTreeSet::new(),
            ignored: ignored_paths(root),
        };
        layout.read_folder(root, "")?;
        mark_test_modules(&mut layout.sources);
        Ok(layout)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> anyhow::Result<()> {
        let place = root.join(folder);
        let entries = fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))?;
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if matches!(name.as_str(), ".git" | "build" | "dist" | "target" | "node_modules")
                || self.ignored.contains(&path)
            {
                continue;
            }
            self.paths.insert(path.clone());
            if entry.file_type()?.is_dir() {
                self.read_folder(root, &path)?;
            } else {
                self.read_file(root, &path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, root: &Path, path: &str) -> anyhow::Result<()> {
        let read =
            |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
        match Path::new(path).extension().and_then(|extension| extension.to_str()) {
            Some("rs") => self.sources.push(Source::parse(path, read(path)?)),
            Some("md") => self.pages.push((path.to_owned(), read(path)?)),
            Some("ts" | "js" | "mjs" | "toml" | "yml" | "yaml" | "conf" | "cfg" | "sh") => {
                self.others.push((path.to_owned(), read(path)?));
            }
            None if path.starts_with("scripts/") => self.others.push((path.to_owned(), read(path)?)),
            _ => {}
        }
        Ok(())
    }

    /// Returns whether a file or folder exists at `path`; `*` stands for any part of one name.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if path.contains('*') {
            return self.paths.iter().any(|known| matches_pattern(known, path));
        }
        path.is_empty() || self.paths.contains(path) || self.is_ignored(path)
    }

    fn is_ignored(&self, path: &str) -> bool {
        self.ignored.iter().any(|folder| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Returns the lines of `.gitignore` that begin at the root (`/target`), without the slash.
fn ignored_paths(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().strip_prefix('/'))
        .map(|line| line.trim_end_matches('/').to_owned())
        .collect()
}

fn matches_pattern(path: &str, pattern: &str) -> bool {
    let names: Vec<&str> = path.split('/').collect();
    let patterns: Vec<&str> = pattern.split('/').collect();
    names.len() == patterns.len()
        && names.iter().zip(&patterns).all(|(name, pattern)| matches_name(name, pattern))
}

fn matches_name(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter_map(|at| rest.get(at..)).any(|rest| matches_name(rest, after))
        }),
    }
}

/// Marks test files: a file that is declared only under `#[cfg(test)]`, or by such a file, is a test
/// file as a whole.
fn mark_test_modules(sources: &mut [Source]) {
    let mut marked = 0;
    loop {
        let declared: BTreeSet<String> = sources.iter().flat_map(Source::test_module_files).collect();
        if declared.len() == marked {
            return;
        }
        marked = declared.len();
        for source in sources.iter_mut().filter(|source| declared.contains(&source.path)) {
            source.mark_as_test();
        }
    }
}
