//! Rules about where code may be: `unsafe`, and library crates in the tests of the binary.

use super::edges::ALLOWED_EDGES;
use super::paths::named_paths;
use super::problem::Problem;
use super::source::Source;

/// Files that may contain `unsafe`. The workspace lint denies it elsewhere; this rule also sees code that the lint
/// doesn't (other targets, features, macros).
const UNSAFE_PLACES: [&str; 4] =
    ["crates/engine/", "crates/resp/", "crates/kv/src/io.rs", "crates/kv/src/io/"];

/// Maximum number of lines between the reason and `unsafe` below it.
const SAFETY_DISTANCE_LINES: usize = 6;

pub(super) fn check(source: &Source) -> Vec<Problem> {
    let mut problems = unsafe_code(source);
    problems.extend(binary_tests(source));
    problems.extend(tiers(source));
    problems
}

fn unsafe_code(source: &Source) -> Vec<Problem> {
    let is_allowed = UNSAFE_PLACES.iter().any(|place| source.path.starts_with(place));
    let places = (0..source.tokens.len()).filter(|at| source.word(*at) == Some("unsafe"));
    let lines = places.map(|at| source.tokens[at].line);
    if is_allowed {
        return lines
            .filter(|line| !has_safety_sentence(source, *line))
            .map(|line| unexplained(source, line))
            .collect();
    }
    let allowed = "safe code, or unsafe code in `engine`, `resp` or the io loop of `kv`";
    lines
        .map(|line| source.problem(line, "unsafe", "`unsafe` is not allowed here".to_owned(), allowed))
        .collect()
}

fn has_safety_sentence(source: &Source, line: usize) -> bool {
    let first = line.saturating_sub(SAFETY_DISTANCE_LINES + 1);
    let near = source.text.lines().skip(first).take(line - first);
    near.map(str::trim_start).any(|text| text.contains("// SAFETY:") || text.contains("# Safety"))
}

fn unexplained(source: &Source, line: usize) -> Problem {
    source.problem(line, "unsafe", "`unsafe` without a reason".to_owned(), "write `// SAFETY: ...` above it")
}

/// The gateway accesses its cache only through the façade, so that further tiers can be added below it.
fn tiers(source: &Source) -> Vec<Problem> {
    let is_gateway = source.path.starts_with("crates/gateway/src/");
    if !is_gateway {
        return Vec::new();
    }
    let paths = named_paths(&source.tokens);
    let tier = ["store".to_owned(), "Memory".to_owned()];
    let used = paths.iter().filter(|path| path.words.starts_with(&tier));
    used.map(|path| {
        source.problem(path.line, "tiers", "`store::Memory` without the façade".to_owned(), "`cache::Cache`")
    })
    .collect()
}

/// Tests of binaries.
const BINARY_TESTS: [&str; 2] = ["crates/larder/tests/", "crates/larder-bench/tests/"];

/// Modules that are clients of `larder kv`, which treats them like any other client: `remote`, and `backing`, the contract that it
/// implements.
const CLIENTS: [(&str, &str); 2] = [("store", "remote"), ("store", "backing")];

/// Tests of a binary may do only what a user can.
fn binary_tests(source: &Source) -> Vec<Problem> {
    if !BINARY_TESTS.iter().any(|folder| source.path.starts_with(folder)) {
        return Vec::new();
    }
    let is_library = |name: &str| {
        let name = name.replace('_', "-");
        name != "testkit" && ALLOWED_EDGES.iter().any(|(library, _)| *library == name)
    };
    let is_client = |words: &[String]| {
        let mut words = words.iter().map(String::as_str);
        CLIENTS.contains(&(words.next().unwrap_or_default(), words.next().unwrap_or_default()))
    };
    let paths = named_paths(&source.tokens);
    let used = paths.iter().filter(|path| path.words.first().is_some_and(|first| is_library(first)));
    let used = used.filter(|path| !is_client(&path.words));
    used.map(|path| {
        let what = format!("`{}` in a test of the binary", path.words.join("::"));
        source.problem(path.line, "binary-tests", what, "run the binary; use only our crate `testkit`")
    })
    .collect()
}
