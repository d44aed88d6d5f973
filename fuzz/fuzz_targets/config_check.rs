//! Checks any bytes as a configuration file: every problem has a position in the file and can be shown there,
//! settings are returned exactly if no problem is an error, and no text of the file can control the reader's
//! terminal.

#![no_main]
#![expect(dead_code, reason = "the binary uses more of its configuration than its checks")]

#[path = "../../crates/larder/src/certificate.rs"]
mod certificate;
#[path = "../../crates/larder/src/config/mod.rs"]
#[expect(unused_imports, reason = "names for the rest of the binary")]
mod config;

/// Replaces the binary's module `tier`, which the configuration uses.
mod tier {
    pub(crate) fn of_machine() -> String {
        "fuzzed:1".to_owned()
    }
}

use std::path::PathBuf;
use std::sync::LazyLock;

use config::{Input, Overrides, Severity};
use libfuzzer_sys::fuzz_target;

/// Each process has its own file, so that several processes can run in parallel.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("larder-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    directory.join("larder.toml")
});

fuzz_target!(|bytes: &[u8]| {
    if may_leave(bytes) {
        return;
    }
    std::fs::write(&*FILE, bytes).expect("a file in the temporary directory");
    let checked = config::check(Some(Input::of_file(&FILE)), &Overrides::default());
    let has_errors = checked.problems.iter().any(|problem| problem.severity == Severity::Error);
    assert_eq!(checked.settings.is_none(), has_errors);
    let text = String::from_utf8_lossy(bytes);
    let line_count = text.matches('\n').count() + 1;
    for problem in &checked.problems {
        let shown = problem.line(&checked.sources);
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        let place = shown.strip_prefix(&*FILE.to_string_lossy()).and_then(|rest| rest.strip_prefix(':'));
        if let Some(place) = place {
            check_place(place, line_count);
        }
        let excerpt = checked.sources.excerpt(&problem.place);
        assert!(!excerpt.chars().any(|character| character.is_control() && character != '\n'), "{excerpt:?}");
    }
});

/// Returns whether the configuration may name files outside of its directory that never end or block their reader.
fn may_leave(bytes: &[u8]) -> bool {
    let has = |word: &[u8]| bytes.windows(word.len()).any(|found| found == word);
    let names_device = has(b"/dev") || has(b"/proc") || has(b"/sys");
    names_device || (has(b"include") && (has(b"\"/") || has(b"'/") || has(b"..")))
}

/// Checks `line:column: ...`, both counted from 1.
fn check_place(place: &str, line_count: usize) {
    let mut numbers = place.split(':').map(|number| number.parse::<usize>().expect("a number"));
    let (line, column) = (numbers.next(), numbers.next());
    assert!(line.is_some_and(|line| (1..=line_count).contains(&line)), "{place}");
    assert!(column.is_some_and(|column| column >= 1), "{place}");
}
