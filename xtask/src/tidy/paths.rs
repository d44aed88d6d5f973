//! The paths that a file names (`std::fs::read`), with imports and their new names followed.

use std::collections::BTreeMap;

use super::source::{Kind, Token, is_mark, word};

/// A path as written, with the import that gave its first word put in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPath {
    pub(super) words: Vec<String>,
    pub(super) line: usize,
}

impl NamedPath {
    /// Whether the words of `sought` stand in this path, one after the other.
    pub(super) fn contains(&self, sought: &[&str]) -> bool {
        self.words
            .windows(sought.len())
            .any(|words| words.iter().zip(sought).all(|(word, sought)| word == sought))
    }
}

/// All paths of a file, imports included.
pub(super) fn named_paths(tokens: &[Token]) -> Vec<NamedPath> {
    let mut imports = Imports::default();
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at = match word(tokens, at) {
            Some("use") => imports.read(tokens, at + 1, &[]),
            Some(_) => read_path(tokens, at, &mut paths),
            None => at + 1,
        };
    }
    let expanded = paths.iter().filter_map(|path| imports.expand(path));
    let expanded: Vec<NamedPath> = expanded.collect();
    paths.into_iter().chain(expanded).chain(imports.paths).collect()
}

/// Reads `a::b::c` and answers where to go on.
fn read_path(tokens: &[Token], at: usize, paths: &mut Vec<NamedPath>) -> usize {
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
    if words.len() > 1 {
        paths.push(NamedPath { words, line: tokens[at].line });
    }
    next
}

fn is_separator(tokens: &[Token], at: usize) -> bool {
    is_mark(tokens, at, ':') && is_mark(tokens, at + 1, ':')
}

#[derive(Default)]
struct Imports {
    paths: Vec<NamedPath>,
    names: BTreeMap<String, Vec<String>>,
}

impl Imports {
    /// Reads one branch of a `use` tree below `prefix` and answers where to go on.
    fn read(&mut self, tokens: &[Token], mut at: usize, prefix: &[String]) -> usize {
        let mut words = prefix.to_vec();
        while let Some(token) = tokens.get(at) {
            match &token.kind {
                Kind::Word(name) if name == "as" => {
                    self.add(words, word(tokens, at + 1), token.line);
                    return at + 2;
                }
                Kind::Word(name) => words.push(name.clone()),
                Kind::Open('{', close) => {
                    self.read_group(tokens, at + 1, *close, &words);
                    return close + 1;
                }
                Kind::Mark(':') => {}
                Kind::Mark('*') => words.push("*".to_owned()),
                _ => {
                    self.add(words, None, token.line);
                    return at;
                }
            }
            at += 1;
        }
        at
    }

    fn read_group(&mut self, tokens: &[Token], mut at: usize, close: usize, prefix: &[String]) {
        while at < close {
            at = self.read(tokens, at, prefix);
            while is_mark(tokens, at, ',') {
                at += 1;
            }
        }
    }

    fn add(&mut self, mut words: Vec<String>, new_name: Option<&str>, line: usize) {
        if words.last().is_some_and(|last| last == "self") {
            words.pop();
        }
        let Some(name) = new_name.or_else(|| words.last().map(String::as_str)) else { return };
        self.names.insert(name.to_owned(), words.clone());
        self.paths.push(NamedPath { words, line });
    }

    fn expand(&self, path: &NamedPath) -> Option<NamedPath> {
        let (first, rest) = path.words.split_first()?;
        let imported = self.names.get(first)?;
        let words = imported.iter().chain(rest).cloned().collect();
        Some(NamedPath { words, line: path.line })
    }
}
