//! Joins requirements and citations on small planted trees.

use std::fs;
use std::path::Path;

use xtask::requirements::{self, Mode, Report};

/// The files of a tree: path and text.
type Tree<'a> = &'a [(&'a str, &'a str)];

const LIST: &str = r#"title = "HTTP Caching"
[[section]]
number = "4.2.3"
title = "Calculating Age"
line = [
  { title = "current age", level = "MUST", requirement = "It is a | sum." },
  { title = "a clock", level = "MAY", requirement = "Have one.", exception = "role: sundial" },
]
[[section]]
number = "4.2.10"
title = "Later"
line = [{ title = "later", level = "ought", requirement = "It comes later." }]
"#;

const LIST_PATH: &str = "conformance/requirements/rfc9111.toml";

fn plant(root: &Path, tree: Tree<'_>) {
    for (path, text) in tree {
        let place = root.join(path);
        fs::create_dir_all(place.parent().expect("a file stands in a folder")).expect("a folder");
        fs::write(place, text).expect("a file");
    }
}

fn report(tree: Tree<'_>) -> Report {
    let root = tempfile::tempdir().expect("a temporary folder");
    plant(root.path(), &[(LIST_PATH, LIST)]);
    plant(root.path(), tree);
    requirements::report(root.path()).expect("the tree can be read")
}

/// Plants `tree` beside the list and expects exactly these problems, each as `file:line: what; allowed`.
#[track_caller]
fn check_problems(tree: Tree<'_>, expected: &[&str]) {
    let problems = report(tree).problems;
    let found: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}:{}: {}; {}", problem.file, problem.line, problem.what, problem.allowed))
        .collect();
    assert_eq!(found, expected);
}

/// Plants `tree` and expects these cells after the level, in the row of the current age.
#[track_caller]
fn check_row(tree: Tree<'_>, expected: &str) {
    let page = report(tree).page;
    let row = page.lines().find(|line| line.contains("**current age**")).expect("the row is there");
    assert_eq!(
        row,
        format!("| 4.2.3: Calculating Age | **current age**: It is a \\| sum. | MUST | {expected} |")
    );
}

#[test]
fn code_and_tests_are_told_apart() {
    let code = "//= RFC 9111 section 4.2.3: current age\n#[must_use]\npub fn sum() {}\n";
    check_row(&[("crates/caching/src/age.rs", code)], "`crates/caching/src/age.rs` `sum` |  | ");
    let inside = "fn around() {\n    let inner = 1;\n    //= RFC 9111 section 4.2.3: current age\n    sum(inner);\n}\n";
    check_row(&[("crates/caching/src/age.rs", inside)], "`crates/caching/src/age.rs` `around` |  | ");
    let tests = "#[cfg(test)]\nmod tests {\n    //= RFC 9111 section 4.2.3: current age\n    #[test]\n    fn adds() {}\n}\n";
    check_row(&[("crates/caching/src/age.rs", tests)], " | `crates/caching/src/age.rs` `adds` | ");
    check_row(&[("crates/caching/tests/age.rs", code)], " | `crates/caching/tests/age.rs` `sum` | ");
    let constant = "//= RFC 9111 section 4.2.3: current age\nconst A: u8 = 1;\n";
    check_row(&[("crates/caching/src/age.rs", constant)], "`crates/caching/src/age.rs` |  | ");
}

#[test]
fn tools_prove_nothing() {
    let code = "//= RFC 9111 section 4.2.3: current age\nfn sum() {}\n";
    for path in ["crates/mock-origin/src/age.rs", "crates/caching/tests/model/mod.rs"] {
        check_row(&[(path, code)], " |  | ");
    }
}

#[test]
fn cases_are_named_and_counted() {
    let case = |name: &str| {
        format!(r#"{{"name":"{name}","steps":[{{"cites":["RFC 9111 section 4.2.3: current age"]}}]}}"#)
    };
    let cases: Vec<String> = ["a", "b", "c", "d|d", "e", "f"].map(case).into();
    let text = format!("[{}]", cases.join(","));
    check_row(
        &[("conformance/caching/age.json", &text)],
        " | `conformance/caching/age.json` `a`, `b`, `c`, `d\\|d` and 2 more | ",
    );
}

#[test]
fn a_citation_of_nothing_is_told_what_is_near() {
    let code = "//= RFC 9111 section 4.2.10: current age\n//= RFC 9112 section 1: no list\nfn f() {}\n";
    check_problems(
        &[("crates/caching/src/age.rs", code)],
        &["crates/caching/src/age.rs:1: no requirement `RFC 9111 section 4.2.10: current age`; nearest are \
           `section 4.2.10: later`, `section 4.2.3: current age`, `section 4.2.3: a clock`"],
    );
    check_problems(
        &[("conformance/caching/a.json", "[\n{\"name\":\"a\",\"cites\":[\"4.2.3\"]}]")],
        &["conformance/caching/a.json:2: `4.2.3` is no citation; `RFC <number> section <number>: <title>`"],
    );
}

#[test]
fn lists_have_order_and_no_double_titles() {
    let list = LIST.replace("4.2.10", "4.2.1").replace("a clock", "current age");
    check_problems(
        &[(LIST_PATH, &list)],
        &[
            "conformance/requirements/rfc9111.toml:6: section 4.2.3 has two lines `current age`; a title names one \
             requirement of its section",
            "conformance/requirements/rfc9111.toml:10: section 4.2.1 comes after 4.2.3; each section appears once, \
             in order",
        ],
    );
}

#[test]
fn what_is_not_used_says_so_and_exceptions_name_a_role() {
    let list = LIST.replace("It is a | sum.\"", "It is a | sum.\", unused = \"nobody adds\"");
    check_row(&[(LIST_PATH, &*list)], " |  | **not used**: nobody adds");
    let list = LIST.replace("It is a | sum.\"", "It is a | sum.\", exception = \"nobody adds\"");
    check_problems(
        &[(LIST_PATH, &list)],
        &[
            "conformance/requirements/rfc9111.toml:6: the exception of `current age` names no role; exceptions \
           begin with `role: `",
        ],
    );
}

#[test]
fn a_deviation_stands_beside_code_and_tests() {
    let list = LIST.replace("It is a | sum.\"", "It is a | sum.\", deviation = \"a guess\"");
    let code = "//= RFC 9111 section 4.2.3: current age\nfn sum() {}\n";
    let tree =
        [(LIST_PATH, &*list), ("crates/caching/src/age.rs", code), ("crates/caching/tests/age.rs", code)];
    let code_and_test = "`crates/caching/src/age.rs` `sum` | `crates/caching/tests/age.rs` `sum`";
    check_row(&tree, &format!("{code_and_test} | **deviation**: a guess"));
    let gaps = report(&tree).gaps;
    assert_eq!(gaps, ["RFC 9111 section 4.2.10: later: no code and no test"]);
}

#[test]
fn gaps_are_lines_without_code_test_or_exception() {
    let citing = "//= RFC 9111 section 4.2.3: current age\n//= RFC 9111 section 4.2.10: later\nfn f() {}\n";
    let code = ("crates/caching/src/age.rs", citing);
    let test = ("crates/caching/tests/age.rs", citing);
    for (tree, missing) in [(vec![], "code and no test"), (vec![code], "test"), (vec![test], "code")] {
        let expected = [
            format!("RFC 9111 section 4.2.3: current age: no {missing}"),
            format!("RFC 9111 section 4.2.10: later: no {missing}"),
        ];
        assert_eq!(report(&tree).gaps, expected);
    }
    assert_eq!(report(&[code, test]).gaps, Vec::<String>::new());
    let excepted = "//= RFC 9111 section 4.2.3: a clock\nfn g() {}\n";
    let more = [("crates/caching/src/clock.rs", excepted), ("crates/caching/tests/clock.rs", excepted)];
    let gaps = report(&[[code, test], more].concat()).gaps;
    assert_eq!(gaps, ["RFC 9111 section 4.2.3: a clock: an exception despite code and test"]);
}

#[test]
fn the_page_is_written_once_and_compared() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let citing = "//= RFC 9111 section 4.2.3: current age\n//= RFC 9111 section 4.2.10: later\nfn f() {}\n";
    plant(
        root.path(),
        &[(LIST_PATH, LIST), ("docs/reference/rfc9111.md", "old"), ("crates/a/src/age.rs", citing)],
    );
    let run = |mode| requirements::run(root.path(), mode).map_err(|error| error.to_string());
    assert!(run(Mode::Check).is_err_and(|error| error.contains("2 gaps")));
    plant(root.path(), &[("crates/a/tests/age.rs", citing)]);
    assert!(run(Mode::Check).is_err_and(|error| error.contains("out of date")));
    assert!(run(Mode::Write).is_ok());
    assert!(run(Mode::Check).is_ok());
    plant(root.path(), &[("crates/a/src/age.rs", "//= RFC 9111 section 1: nothing\nfn f() {}\n")]);
    assert!(run(Mode::Write).is_err_and(|error| error.contains("1 problems")));
}
