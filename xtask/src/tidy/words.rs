//! Words: the first words of doc comments, names of predicates, and type names with three meanings in one crate.
//!
//! Each rule has a list of crates that follow it; lists only grow.

use std::collections::BTreeMap;

use super::problem::Problem;
use super::source::{Kind, Source};

/// Crates whose doc comments name the thing first.
const DOC_CRATES: [&str; 10] = [
    "breaker",
    "cache",
    "fleet",
    "gateway",
    "message",
    "mock-origin",
    "option-table",
    "origin",
    "store",
    "testkit",
];

/// First words of a riddle: a person, a pronoun, or a clause in place of a noun.
const RIDDLES: [&str; 8] = ["It", "Of", "That", "Those", "What", "Who", "Whoever", "Whose"];

/// Crates whose predicates return `bool` or an `Option`.
const PREDICATE_CRATES: [&str; 18] = [
    "admin",
    "breaker",
    "cache",
    "caching",
    "fleet",
    "gateway",
    "http1",
    "larder-bench",
    "message",
    "mock-origin",
    "option-table",
    "origin",
    "otlp",
    "resp",
    "store",
    "telemetry",
    "terminal",
    "testkit",
];

/// Beginnings of the names of predicates.
const PREDICATES: [&str; 3] = ["can_", "has_", "is_"];

/// Crates in which each type name has one meaning.
const TYPE_NAME_CRATES: [&str; 7] =
    ["cache", "fleet", "gateway", "message", "option-table", "origin", "store"];

/// A type and a part of it in a private module may share a name; a third type may not.
const DECLARATIONS_MAX: usize = 2;

pub(super) fn check(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    if DOC_CRATES.contains(&source.crate_name()) {
        problems.extend(riddles(source));
    }
    if PREDICATE_CRATES.contains(&source.crate_name()) {
        problems.extend((0..source.tokens.len()).filter_map(|at| predicate(source, at)));
    }
    problems
}

/// Checks the first line of each doc comment.
fn riddles(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut marker_before = None;
    for (index, line) in source.text.lines().enumerate() {
        let doc = doc_line(line);
        let marker = doc.map(|(marker, _)| marker);
        let opening = doc.filter(|_| marker != marker_before).and_then(|(_, text)| riddle(text));
        problems.extend(opening.map(|opening| {
            let what = format!("a doc comment begins with \"{opening}\"");
            source.problem(index + 1, "doc-words", what, "a noun phrase, or a verb in the present tense")
        }));
        marker_before = marker;
    }
    problems
}

/// Returns the marker of a line in a doc comment, and its text.
fn doc_line(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let found = ["///", "//!"].into_iter().find_map(|marker| Some((marker, line.strip_prefix(marker)?)));
    // Four slashes begin an ordinary comment.
    found.filter(|(_, text)| !text.starts_with('/'))
}

fn riddle(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let mut words = text.split(|letter: char| !letter.is_alphanumeric());
    let first = words.next()?;
    if first == "The" && words.next() == Some("same") {
        return Some("The same");
    }
    RIDDLES.contains(&first).then_some(first)
}

/// Returns a problem if the predicate that begins at `at` returns anything but `bool` or an `Option`. Ignores tests,
/// which are named by sentences.
fn predicate(source: &Source, at: usize) -> Option<Problem> {
    let name = (source.word(at)? == "fn").then(|| source.word(at + 1))??;
    let line = source.tokens[at].line;
    let is_predicate = PREDICATES.iter().any(|beginning| name.starts_with(beginning));
    if !is_predicate || source.is_test_line(line) || answers(source, at) {
        return None;
    }
    let what = format!("`{name}` returns neither `bool` nor an `Option`");
    Some(source.problem(line, "predicates", what, "a verb for an action, a noun for a returned value"))
}

/// Returns whether the function at `at` returns `bool` or an `Option`.
fn answers(source: &Source, at: usize) -> bool {
    let Some(parameters_end) = parameters_end(source, at) else { return false };
    if !source.is_mark(parameters_end + 1, '-') || !source.is_mark(parameters_end + 2, '>') {
        return false;
    }
    let path = (parameters_end + 3..source.tokens.len()).map(|at| &source.tokens[at].kind);
    let mut path = path.take_while(|kind| matches!(kind, Kind::Word(_) | Kind::Mark(':')));
    let last = path.by_ref().filter_map(|kind| match kind {
        Kind::Word(word) if word != "where" => Some(word.as_str()),
        _ => None,
    });
    matches!(last.last(), Some("bool" | "Option"))
}

/// Returns the parenthesis that closes the parameters of the function at `at`.
fn parameters_end(source: &Source, at: usize) -> Option<usize> {
    let mut generics = 0_usize;
    for next in at + 2..source.tokens.len() {
        match source.tokens[next].kind {
            Kind::Mark('<') => generics += 1,
            Kind::Mark('>') if !source.is_mark(next - 1, '-') => generics = generics.saturating_sub(1),
            Kind::Open('(', close) if generics == 0 => return Some(close),
            _ => {}
        }
    }
    None
}

/// Finds type names that are declared too often in one crate. Ignores tests.
pub(super) fn check_type_names(sources: &[Source]) -> Vec<Problem> {
    let mut declared: BTreeMap<(&str, &str), Vec<(&Source, usize)>> = BTreeMap::new();
    let ours = sources.iter().filter(|source| TYPE_NAME_CRATES.contains(&source.crate_name()));
    for source in ours {
        for (name, line) in type_names(source) {
            declared.entry((source.crate_name(), name)).or_default().push((source, line));
        }
    }
    declared.iter().flat_map(|((_, name), places)| repeated(name, places)).collect()
}

fn repeated(name: &str, places: &[(&Source, usize)]) -> Vec<Problem> {
    let (first, more) = places.split_at(places.len().min(DECLARATIONS_MAX));
    let others: Vec<String> = first.iter().map(|(source, line)| format!("{}:{line}", source.path)).collect();
    let what = format!("one more type named `{name}`, as at {}", others.join(" and "));
    let allowed = "at most two types of a crate share a name: choose a more specific name";
    more.iter().map(|(source, line)| source.problem(*line, "type-names", what.clone(), allowed)).collect()
}

/// Returns the names and lines of the declared types, without associated types.
fn type_names(source: &Source) -> Vec<(&str, usize)> {
    let mut names = Vec::new();
    let mut associated_until = 0;
    for at in 0..source.tokens.len() {
        let word = source.word(at).unwrap_or_default();
        if matches!(word, "impl" | "trait") {
            associated_until = source.item_end(at).map_or(at, |end| end + 1).max(associated_until);
        }
        let is_declaration =
            matches!(word, "struct" | "enum" | "trait") || word == "type" && at >= associated_until;
        let line = source.tokens[at].line;
        if is_declaration && !source.is_test_line(line) {
            names.extend(source.word(at + 1).map(|name| (name, line)));
        }
    }
    names
}
