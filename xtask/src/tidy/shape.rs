//! Hygiene of code: long files, unfinished code, ignored tests, empty names.

use super::problem::Problem;
use super::source::{Kind, Purpose, Source};

/// Maximum length of a file in lines; a longer one should be split by concern.
const FILE_LINES_MAX: usize = 800;
const UNFINISHED_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];
/// Module names that say nothing about the contents.
const EMPTY_NAMES: [&str; 6] = ["common", "helper", "helpers", "misc", "util", "utils"];

pub(super) fn check(source: &Source) -> Vec<Problem> {
    let mut problems: Vec<Problem> = long_file(source).into_iter().collect();
    problems.extend((0..source.tokens.len()).filter_map(|at| {
        unfinished(source, at).or_else(|| ignored_test(source, at)).or_else(|| empty_name(source, at))
    }));
    problems.extend(ignored_examples(source));
    problems
}

fn long_file(source: &Source) -> Option<Problem> {
    let lines = source.production_line_count();
    (source.purpose == Purpose::Production && lines > FILE_LINES_MAX).then(|| {
        let what = format!("{lines} lines outside tests");
        source.problem(FILE_LINES_MAX + 1, "file-lines", what, "at most 800: split by concern")
    })
}

fn unfinished(source: &Source, at: usize) -> Option<Problem> {
    let name = source.word(at).filter(|name| UNFINISHED_MACROS.contains(name))?;
    let is_call = source.is_mark(at + 1, '!') && matches!(source.tokens.get(at + 2)?.kind, Kind::Open(..));
    is_call.then(|| {
        let what = format!("`{name}!` in the tree");
        source.problem(source.tokens[at].line, "unfinished", what, "finished code, or none")
    })
}

/// `#[ignore]`, `#[ignore = ".."]` and `#[cfg_attr(.., ignore)]`.
fn ignored_test(source: &Source, at: usize) -> Option<Problem> {
    let is_ignored = match source.word(at + 2).filter(|_| source.is_mark(at, '#'))? {
        "ignore" => true,
        "cfg_attr" => {
            let close = source.closing(at + 1, '[')?;
            (at + 3..close).any(|inside| source.word(inside) == Some("ignore"))
        }
        _ => false,
    };
    is_ignored.then(|| {
        let line = source.tokens[at].line;
        let allowed = "run it, remove it, or assert the wrong behaviour and give the reason";
        source.problem(line, "ignored-test", "an ignored test".to_owned(), allowed)
    })
}

fn ignored_examples(source: &Source) -> Vec<Problem> {
    let is_ignored = |line: &str| {
        let text = line.trim_start();
        let comment = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
        comment.is_some_and(|comment| {
            let fence = comment.trim_start().strip_prefix("```");
            fence.is_some_and(|words| words.split([',', ' ']).any(|word| word == "ignore"))
        })
    };
    let lines = source.text.lines().enumerate().filter(|(_, line)| is_ignored(line));
    let allowed = "an example that runs, `no_run`, or `text`";
    lines
        .map(|(at, _)| source.problem(at + 1, "ignored-test", "an ignored example".to_owned(), allowed))
        .collect()
}

fn empty_name(source: &Source, at: usize) -> Option<Problem> {
    let name = (source.word(at)? == "mod").then(|| source.word(at + 1))??;
    EMPTY_NAMES.contains(&name).then(|| {
        let what = format!("a module named `{name}`");
        source.problem(source.tokens[at].line, "module-name", what, "a noun for its contents")
    })
}
