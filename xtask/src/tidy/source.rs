//! One Rust file as tokens, with its test lines.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::problem::Problem;

/// A token with its line. Groups are flattened, because the rules look for short sequences.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(super) kind: Kind,
    /// Line number, counted from 1.
    pub(super) line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Word(String),
    Mark(char),
    /// An opening delimiter and the index of its closing one.
    Open(char, usize),
    Close(char),
    Literal,
}

/// Whether a file is production code or a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Production,
    Test,
}

/// A function: its name and its lines from `fn` to the closing brace.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// One Rust file.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) purpose: Purpose,
    /// Set if the file has no tokens because it isn't valid Rust.
    pub(super) unreadable: Option<Problem>,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Source {
    pub(crate) fn parse(path: &str, text: String) -> Self {
        let mut tokens = Vec::new();
        let unreadable = match text.parse::<TokenStream>() {
            Ok(stream) => {
                flatten(stream, &mut tokens);
                None
            }
            Err(error) => Some(Problem {
                file: path.to_owned(),
                line: error.span().start().line.max(1),
                rule: "syntax",
                what: "the file isn't valid Rust".to_owned(),
                allowed: "delimiters and literals must close".to_owned(),
            }),
        };
        let test_lines = test_lines(&tokens);
        Self { path: path.to_owned(), text, tokens, purpose: purpose(path), unreadable, test_lines }
    }

    pub(super) fn problem(&self, line: usize, rule: &'static str, what: String, allowed: &str) -> Problem {
        Problem { file: self.path.clone(), line, rule, what, allowed: allowed.to_owned() }
    }

    pub(super) fn mark_as_test(&mut self) {
        self.purpose = Purpose::Test;
    }

    /// Returns the folder name of the crate: `caching` for `crates/caching/src/lib.rs`.
    pub(crate) fn crate_name(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or(""),
            Some(first) => first,
            None => "",
        }
    }

    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.purpose == Purpose::Test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Counts the lines outside of `#[cfg(test)]` items.
    pub(crate) fn production_line_count(&self) -> usize {
        (1..=self.text.lines().count()).filter(|line| !self.is_test_line(*line)).count()
    }

    pub(crate) fn word(&self, at: usize) -> Option<&str> {
        word(&self.tokens, at)
    }

    pub(super) fn is_mark(&self, at: usize, mark: char) -> bool {
        is_mark(&self.tokens, at, mark)
    }

    /// Returns the index of the delimiter that closes the one at `at`.
    pub(super) fn closing(&self, at: usize, delimiter: char) -> Option<usize> {
        closing(&self.tokens, at, delimiter)
    }

    /// Returns the last token of the item that begins at `at`: `;` or the closing brace of its body.
    pub(super) fn item_end(&self, at: usize) -> Option<usize> {
        item_end(&self.tokens, at)
    }

    /// Returns every function with a body, including those inside macros and functions.
    pub(crate) fn functions(&self) -> Vec<Function> {
        (0..self.tokens.len()).filter_map(|at| self.function(at)).collect()
    }

    fn function(&self, at: usize) -> Option<Function> {
        let name = (self.word(at)? == "fn").then(|| self.word(at + 1))??;
        let end = item_end(&self.tokens, at)?;
        let is_body = self.tokens[end].kind == Kind::Close('{');
        let line = self.tokens[at].line;
        is_body.then(|| Function { name: name.to_owned(), line, lines: self.tokens[end].line + 1 - line })
    }

    /// Returns the files that `#[cfg(test)] mod name;` declares.
    pub(super) fn test_module_files(&self) -> Vec<String> {
        let Some(folder) = self.module_folder() else { return Vec::new() };
        let declared =
            (0..self.tokens.len()).filter(|at| self.word(*at) == Some("mod") && self.is_mark(at + 2, ';'));
        declared
            .filter(|at| self.is_test_line(self.tokens[*at].line))
            .filter_map(|at| self.word(at + 1))
            .flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")])
            .collect()
    }

    /// Returns the folder of this file's modules.
    fn module_folder(&self) -> Option<String> {
        let (folder, name) = self.path.rsplit_once('/')?;
        let stem = name.strip_suffix(".rs")?;
        Some(if matches!(stem, "lib" | "main" | "mod") {
            folder.to_owned()
        } else {
            format!("{folder}/{stem}")
        })
    }
}

pub(super) fn word(tokens: &[Token], at: usize) -> Option<&str> {
    match &tokens.get(at)?.kind {
        Kind::Word(word) => Some(word),
        _ => None,
    }
}

pub(super) fn is_mark(tokens: &[Token], at: usize, mark: char) -> bool {
    tokens.get(at).is_some_and(|token| token.kind == Kind::Mark(mark))
}

fn closing(tokens: &[Token], at: usize, delimiter: char) -> Option<usize> {
    match tokens.get(at)?.kind {
        Kind::Open(found, close) if found == delimiter => Some(close),
        _ => None,
    }
}

/// Returns the last token of the item that begins at `at`: `;` or the closing brace of its body.
fn item_end(tokens: &[Token], at: usize) -> Option<usize> {
    let is_import = word(tokens, at) == Some("use");
    let mut next = at;
    loop {
        match tokens.get(next)?.kind {
            Kind::Mark(';') => return Some(next),
            Kind::Open('{', close) if !is_import => return Some(close),
            Kind::Open(_, close) => next = close + 1,
            Kind::Close(_) => return None,
            _ => next += 1,
        }
    }
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(ident) => tokens.push(Token { kind: Kind::Word(ident.to_string()), line }),
            TokenTree::Punct(punct) => tokens.push(Token { kind: Kind::Mark(punct.as_char()), line }),
            TokenTree::Literal(_) => tokens.push(Token { kind: Kind::Literal, line }),
            TokenTree::Group(group) => {
                let delimiter = delimiter_char(group.delimiter());
                let open = tokens.len();
                tokens.push(Token { kind: Kind::Close(delimiter), line });
                flatten(group.stream(), tokens);
                tokens[open].kind = Kind::Open(delimiter, tokens.len());
                tokens.push(Token { kind: Kind::Close(delimiter), line: group.span_close().start().line });
            }
        }
    }
}

fn delimiter_char(delimiter: Delimiter) -> char {
    match delimiter {
        Delimiter::Parenthesis => '(',
        Delimiter::Brace => '{',
        Delimiter::Bracket => '[',
        Delimiter::None => ' ',
    }
}

fn purpose(path: &str) -> Purpose {
    let is_test_folder = |part: &str| matches!(part, "tests" | "benches" | "examples" | "fuzz");
    match path.rsplit_once('/') {
        Some((folder, name)) if folder.split('/').any(is_test_folder) || name == "tests.rs" => Purpose::Test,
        _ => Purpose::Production,
    }
}

/// Returns the line ranges of items after an attribute that names `test`, such as `#[cfg(test)]` and `#[test]`.
fn test_lines(tokens: &[Token]) -> Vec<RangeInclusive<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let end = test_attribute_end(tokens, at)
            .and_then(|close| item_end(tokens, after_attributes(tokens, close + 1)));
        match end {
            Some(end) => {
                ranges.push(tokens[at].line..=tokens[end].line);
                at = end + 1;
            }
            None => at += 1,
        }
    }
    ranges
}

/// Returns the closing bracket of a test attribute that begins at `at`.
fn test_attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    if !is_mark(tokens, at, '#') {
        return None;
    }
    let close = closing(tokens, at + 1, '[')?;
    let mut words = (at + 2..close).filter_map(|inside| word(tokens, inside));
    let is_condition = words.clone().next() == Some("cfg");
    let is_test = match is_condition {
        true => words.clone().any(|word| word == "test") && !words.any(|word| word == "not"),
        false => words.next() == Some("test"),
    };
    is_test.then_some(close)
}

fn after_attributes(tokens: &[Token], mut at: usize) -> usize {
    while is_mark(tokens, at, '#') {
        match closing(tokens, at + 1, '[') {
            Some(close) => at = close + 1,
            None => return at,
        }
    }
    at
}
