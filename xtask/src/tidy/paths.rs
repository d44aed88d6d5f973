//! The paths that a file names (`std::fs::read`), with imports and renames resolved.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Kind, Token, is_mark, word};

/// A path as written, or prefixed with the import of its first word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) words: Vec<String>,
    pub(crate) line: usize,
}

impl NamedPath {
    /// Returns whether the words of `sought` occur in this path, one after the other.
    pub(super) fn contains(&self, sought: &[&str]) -> bool {
        self.words
            .windows(sought.len())
            .any(|words| words.iter().zip(sought).all(|(word, sought)| word == sought))
    }
}

/// One name that a `use` imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The name in this file; `*` for a glob import.
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) line: usize,
    pub(crate) reach: Reach,
}

/// The visibility of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only this file can use the name.
    Own,
    /// Other files can use it too: `pub use`, `pub(crate) use`.
    Others,
}

/// The imports, paths and words of a file.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) imports: Vec<Import>,
    /// Paths outside of imports, as written.
    paths: Vec<NamedPath>,
    /// Words outside of imports.
    pub(crate) words: BTreeSet<String>,
}

impl Names {
    pub(crate) fn read(tokens: &[Token]) -> Self {
        let mut names = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            at = match word(tokens, at) {
                Some("use") => names.read_import(tokens, at),
                Some(_) => names.read_path(tokens, at),
                None => at + 1,
            };
        }
        names
    }

    /// Returns the paths outside of imports, as written, and again prefixed with the import of their first word.
    pub(crate) fn paths(&self) -> impl Iterator<Item = NamedPath> {
        let imported: BTreeMap<&str, &Import> =
            self.imports.iter().map(|import| (import.name.as_str(), import)).collect();
        let expanded = move |path: &NamedPath| {
            let (first, rest) = path.words.split_first()?;
            let words = imported.get(first.as_str())?.words.iter().chain(rest).cloned().collect();
            Some(NamedPath { words, line: path.line })
        };
        self.paths.iter().cloned().chain(self.paths.iter().filter_map(expanded))
    }

    fn read_import(&mut self, tokens: &[Token], at: usize) -> usize {
        let is_public = at > 0
            && (word(tokens, at - 1) == Some("pub") || matches!(tokens[at - 1].kind, Kind::Close('(')));
        let reach = if is_public { Reach::Others } else { Reach::Own };
        read_tree(tokens, at + 1, &[], &mut |words, name, line| {
            self.imports.push(Import { name: name.to_owned(), words, line, reach });
        })
    }

    /// Reads `a::b::c` and returns the index after it.
    fn read_path(&mut self, tokens: &[Token], at: usize) -> usize {
        let mut words = Vec::new();
        let mut next = at;
        while let Some(part) = word(tokens, next) {
            words.push(part.to_owned());
            next += 1;
            if !is_separator(tokens, next) {
                break;
            }
            next += 2;
        }
        self.words.extend(words.iter().cloned());
        if words.len() > 1 {
            self.paths.push(NamedPath { words, line: tokens[at].line });
        }
        next
    }
}

/// Returns all paths of a file, including imports.
pub(super) fn named_paths(tokens: &[Token]) -> Vec<NamedPath> {
    let names = Names::read(tokens);
    let imports =
        names.imports.iter().map(|import| NamedPath { words: import.words.clone(), line: import.line });
    names.paths().chain(imports).collect()
}

fn is_separator(tokens: &[Token], at: usize) -> bool {
    is_mark(tokens, at, ':') && is_mark(tokens, at + 1, ':')
}

/// Reads one branch of a `use` tree below `prefix`, reports each name that it imports, and returns the index after it.
fn read_tree(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    tell: &mut impl FnMut(Vec<String>, &str, usize),
) -> usize {
    let mut words = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Word(name) if name == "as" => {
                tell_name(words, word(tokens, at + 1), token.line, tell);
                return at + 2;
            }
            Kind::Word(name) => words.push(name.clone()),
            Kind::Open('{', close) => {
                read_group(tokens, at + 1, *close, &words, tell);
                return close + 1;
            }
            Kind::Mark(':') => {}
            Kind::Mark('*') => words.push("*".to_owned()),
            _ => {
                tell_name(words, None, token.line, tell);
                return at;
            }
        }
        at += 1;
    }
    at
}

fn read_group(
    tokens: &[Token],
    mut at: usize,
    close: usize,
    prefix: &[String],
    tell: &mut impl FnMut(Vec<String>, &str, usize),
) {
    while at < close {
        at = read_tree(tokens, at, prefix, tell);
        while is_mark(tokens, at, ',') {
            at += 1;
        }
    }
}

fn tell_name(
    mut words: Vec<String>,
    new_name: Option<&str>,
    line: usize,
    tell: &mut impl FnMut(Vec<String>, &str, usize),
) {
    if words.last().is_some_and(|last| last == "self") {
        words.pop();
    }
    let Some(name) = new_name.or_else(|| words.last().map(String::as_str)).map(str::to_owned) else { return };
    tell(words, &name, line);
}
