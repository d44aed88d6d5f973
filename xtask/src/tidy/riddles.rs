//! Sentences that begin with a riddle, such as "Who" or "What": in pages, comments, and texts for users.
//!
//! Questions and titles sometimes begin with these words, so the rule has a budget for the whole tree.

use super::layout::Layout;
use super::markdown::prose_lines;
use super::problem::Problem;
use super::source::Source;

const SENTENCES_MAX: usize = 20;
const OPENINGS: [&str; 8] = ["Of", "That it", "What", "Whatever", "Who", "Whoever", "Whom", "Whose"];
/// Comment markers, the longest first.
const MARKS: [&str; 8] = ["///", "//!", "/**", "//", "*", "#:", "##", "#"];
/// Generated files, whose texts are checked in their sources.
const GENERATED: [&str; 2] = ["docs/reference/", "npm/undici-cache/API.md"];

pub(super) fn check(layout: &Layout) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for (path, text) in layout.pages.iter().filter(|(path, _)| !is_generated(path)) {
        let lines = prose_lines(text).into_iter().map(|(line, prose)| (line, Some(prose)));
        problems.extend(found(path, lines));
    }
    for source in &layout.sources {
        problems.extend(found(&source.path, comments(&source.text)));
        problems.extend(texts(source));
    }
    for (path, text) in &layout.others {
        problems.extend(found(path, comments(text)));
    }
    let count = problems.len();
    for problem in &mut problems {
        problem.allowed = format!("name the subject first ({count} sentences don't, limit {SENTENCES_MAX})");
    }
    if count > SENTENCES_MAX { problems } else { Vec::new() }
}

fn is_generated(path: &str) -> bool {
    let is_written_by_hand = ["lexicon.md", "access-log.md", "admin-api.md", "redis-differences.md"];
    GENERATED.iter().any(|begin| path.starts_with(begin))
        && !is_written_by_hand.iter().any(|name| path.ends_with(name))
}

/// Returns the lines of a file with their numbers, and the text of each line that is only a comment.
fn comments(text: &str) -> impl Iterator<Item = (usize, Option<&str>)> {
    text.lines().enumerate().map(|(at, line)| {
        let line = line.trim_start();
        // An attribute, or the first line of a script, isn't a comment.
        let is_code = line.starts_with("#[") || line.starts_with("#!");
        (at + 1, MARKS.iter().find_map(|mark| line.strip_prefix(mark)).filter(|_| !is_code))
    })
}

/// Returns the problems of a block of lines, which ends at an empty line or one without a comment.
fn found<'a>(path: &str, lines: impl Iterator<Item = (usize, Option<&'a str>)>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut is_begin = true;
    for (line, text) in lines {
        let text = text.unwrap_or_default().trim();
        let openings = sentences(text, is_begin).filter_map(opening);
        problems.extend(openings.map(|opening| problem(path, line, opening)));
        is_begin = text.is_empty() || ends_sentence(text);
    }
    problems
}

fn problem(path: &str, line: usize, opening: &str) -> Problem {
    let what = format!("a sentence begins with \"{opening}\"");
    Problem { file: path.to_owned(), line, rule: "riddles", what, allowed: String::new() }
}

/// Returns the sentences of a line: after a full stop, in each cell of a table, in a list, and at the start of a block.
fn sentences(text: &str, is_begin: bool) -> impl Iterator<Item = &str> {
    let item = text.trim_start_matches(['-', '*', '|', '#', '>', ' ']);
    let is_item = item.len() < text.len();
    let first = (is_begin || is_item).then_some(item);
    let later = [". ", "? ", "! ", "| ", ".) "]
        .into_iter()
        .flat_map(move |end| text.match_indices(end).map(move |(at, end)| &text[at + end.len()..]));
    first.into_iter().chain(later.filter(move |rest| rest.len() < item.len()))
}

fn ends_sentence(text: &str) -> bool {
    text.ends_with(['.', ':', '?', '!', '|', ')'])
}

fn opening(sentence: &str) -> Option<&'static str> {
    let begins =
        |opening: &&str| sentence.strip_prefix(opening).is_some_and(|rest| rest.starts_with([' ', ',']));
    OPENINGS.into_iter().find(begins)
}

/// Finds texts for users that begin with a riddle, such as the help of an option.
fn texts(source: &Source) -> Vec<Problem> {
    let lines = source.text.lines().enumerate().filter(|(at, _)| !source.is_test_line(at + 1));
    let strings =
        lines.flat_map(|(at, line)| line.match_indices('"').map(move |(quote, _)| (at, &line[quote + 1..])));
    let begins = strings.filter_map(|(at, text)| Some((at, opening(text)?)));
    begins.map(|(at, opening)| problem(&source.path, at + 1, opening)).collect()
}
