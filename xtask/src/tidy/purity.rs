//! Pure crates and files take `now` and bytes as arguments: no clock, no IO, no environment.

use super::paths::{NamedPath, named_paths};
use super::problem::Problem;
use super::source::{Purpose, Source};

/// Pure crates: they make decisions, and have no side effects.
pub(super) const PURE_CRATES: [&str; 5] = ["breaker", "caching", "http1", "option-table", "resp"];

/// Pure files in other crates.
const PURE_FILES: [&str; 4] = [
    "crates/gateway/src/request/decide.rs",
    "crates/gateway/src/request/steps/collapse/next_move.rs",
    "crates/cache/src/collapse/turns.rs",
    "crates/gateway/src/protection/rate.rs",
];

/// Dependencies that a pure crate must not have: each has a clock, a socket or randomness.
pub(super) const IMPURE_DEPENDENCIES: [&str; 7] =
    ["getrandom", "h2", "hyper", "mio", "rand", "socket2", "tokio"];

/// Impure paths, as words. Names below `core`, such as `core::net`, are only values, and allowed.
const IMPURE_PATHS: [&[&str]; 14] = [
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["Instant", "now"],
    &["SystemTime", "now"],
    &["getrandom"],
    &["hyper"],
    &["mio"],
    &["rand"],
    &["socket2"],
    &["tokio"],
];

/// Impure modules of the crates that contain pure files.
const ACTING_PATHS: [&[&str]; 1] = [&["crate", "worker"]];

/// Crates that may read the environment: the binaries, the crates that read it for them, the automation, and crates for
/// tests.
const ENVIRONMENT_CRATES: [&str; 6] = ["bench", "larder", "larder-bench", "terminal", "testkit", "xtask"];

pub(super) fn check(source: &Source) -> Vec<Problem> {
    if source.purpose == Purpose::Test {
        return Vec::new();
    }
    let paths = named_paths(&source.tokens);
    let outside_tests = paths.iter().filter(|path| !source.is_test_line(path.line));
    if PURE_CRATES.contains(&source.crate_name()) {
        let place = format!("crate `{}`", source.crate_name());
        outside_tests.filter_map(|path| impure(source, path, &IMPURE_PATHS, &place)).collect()
    } else if PURE_FILES.contains(&source.path.as_str()) {
        let sought = [&IMPURE_PATHS[..], &ACTING_PATHS[..]].concat();
        outside_tests.filter_map(|path| impure(source, path, &sought, "file")).collect()
    } else if ENVIRONMENT_CRATES.contains(&source.crate_name()) {
        Vec::new()
    } else {
        outside_tests.filter_map(|path| environment(source, path)).collect()
    }
}

fn impure(source: &Source, path: &NamedPath, sought: &[&[&str]], place: &str) -> Option<Problem> {
    let found = sought.iter().find(|sought| match sought {
        [name] => path.words.first().is_some_and(|first| first == name),
        words => path.contains(words),
    })?;
    Some(source.problem(
        path.line,
        "pure",
        format!("`{}` in the pure {place}", found.join("::")),
        "take times, bytes and settings as arguments (`core::net` addresses are fine)",
    ))
}

fn environment(source: &Source, path: &NamedPath) -> Option<Problem> {
    let reads = path.words.first().is_some_and(|first| first == "std") && path.contains(&["std", "env"]);
    reads.then(|| {
        let what = format!("`{}` in the crate `{}`", path.words.join("::"), source.crate_name());
        source.problem(path.line, "environment", what, "only the binaries read arguments and environment")
    })
}
