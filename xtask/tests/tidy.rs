//! Each rule on a small planted tree: a problem, and the nearest thing that is allowed.

use std::fs;
use std::path::Path;

use xtask::tidy;

/// The files of a tree: path and text.
type Tree<'a> = &'a [(&'a str, &'a str)];

/// Plants `tree` with a workspace around it and expects exactly the problems `expected`, each as
/// `file:line: rule`.
#[track_caller]
fn check(tree: Tree<'_>, expected: &[&str]) {
    let problems = problems(tree);
    let found: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}:{}: {}", problem.file, problem.line, problem.rule))
        .collect();
    assert_eq!(found, expected, "{problems:#?}");
}

fn problems(tree: Tree<'_>) -> Vec<tidy::Problem> {
    let root = tempfile::tempdir().expect("a temporary folder");
    plant(root.path(), "Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
    plant(root.path(), ".gitignore", "/target\n/fuzz/corpus\n");
    // Every folder of crates needs a manifest; a manifest in the planted tree overwrites this one.
    plant_manifest(root.path(), "caching");
    for name in tree.iter().filter_map(|(path, _)| path.strip_prefix("crates/")?.split('/').next()) {
        plant_manifest(root.path(), name);
    }
    for (path, text) in tree {
        plant(root.path(), path, text);
    }
    tidy::check(root.path()).expect("the tree can be read")
}

fn plant(root: &Path, path: &str, text: &str) {
    let place = root.join(path);
    fs::create_dir_all(place.parent().expect("a file stands in a folder")).expect("a folder");
    fs::write(place, text).expect("a file");
}

fn plant_manifest(root: &Path, name: &str) {
    plant(root, &format!("crates/{name}/Cargo.toml"), &manifest(name, ""));
    plant(root, &format!("crates/{name}/src/lib.rs"), "");
}

fn manifest(name: &str, dependencies: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n{dependencies}")
}

/// Checks a workspace of crates, given as name and dependency tables, for the expected problems.
#[track_caller]
fn check_edges(crates: &[(&str, &str)], expected: &[&str]) {
    let files: Vec<(String, String)> = crates
        .iter()
        .flat_map(|(name, dependencies)| {
            let library = (format!("crates/{name}/src/lib.rs"), String::new());
            [(format!("crates/{name}/Cargo.toml"), manifest(name, dependencies)), library]
        })
        .collect();
    let tree: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    check(&tree, expected);
}

#[test]
fn edges_follow_the_table() {
    let store = ("store", "");
    let gateway = ("gateway", "[dependencies]\nstore = { path = \"../store\" }\n");
    check_edges(&[store, gateway], &[]);
    check_edges(
        &[("gateway", ""), ("store", "[dependencies]\ngateway = { path = \"../gateway\" }\n")],
        &["crates/store/Cargo.toml:7: edges"],
    );
    check_edges(
        &[
            ("gateway", ""),
            ("store", "[build-dependencies]\nbytes = \"1\"\ngateway = { path = \"../gateway\" }\n"),
        ],
        &["crates/store/Cargo.toml:8: edges"],
    );
}

#[test]
fn edges_see_through_new_names() {
    check_edges(
        &[
            ("gateway", ""),
            ("kv", "[dependencies]\nplane = { package = \"gateway\", path = \"../gateway\" }\n"),
        ],
        &["crates/kv/Cargo.toml:1: edges"],
    );
}

#[test]
fn edges_let_tests_use_the_testkit() {
    let testkit = ("testkit", "");
    check_edges(&[testkit, ("caching", "[dev-dependencies]\ntestkit = { path = \"../testkit\" }\n")], &[]);
    check_edges(
        &[testkit, ("larder", "[dependencies]\ntestkit = { path = \"../testkit\" }\n")],
        &["crates/larder/Cargo.toml:7: edges"],
    );
}

#[test]
fn edges_know_every_crate() {
    check_edges(&[("pantry", "")], &["crates/pantry/Cargo.toml:2: edges"]);
}

#[test]
fn pure_crates_depend_on_no_clock_or_socket() {
    check_edges(&[("http1", "[dependencies]\nhttparse = \"1\"\n")], &[]);
    check_edges(&[("http1", "[dependencies]\ntokio = \"1\"\n")], &["crates/http1/Cargo.toml:7: edges"]);
    check_edges(&[("http1", "[dev-dependencies]\nrand = \"0.9\"\n")], &[]);
}

/// Checks a crate for the expected problems, with the listed floors. Its room `above` uses `below`, and
/// `below/part.rs` has the text `part`.
#[track_caller]
fn check_floors(part: &str, written: &str, expected: &[&str]) {
    let files = [
        ("crates/store/src/above.rs", "use crate::below::Below;\npub struct Above(Below);\n"),
        ("crates/store/src/below/mod.rs", "pub struct Below;\n"),
        ("crates/store/src/below/part.rs", part),
        ("xtask/floors.txt", written),
    ];
    check(&files, expected);
}

#[test]
fn rooms_import_what_stands_below_them() {
    const FLOORS: &str = "[store]\nabove # a comment\nbelow lib\n";
    const UPWARDS: [&str; 3] = [
        "pub struct Part(crate::above::Above);\n",
        "use crate::above::Above;\npub struct Part(Above);\n",
        "use super::super::above::Above;\npub struct Part(Above);\n",
    ];
    check_floors("", FLOORS, &[]);
    for part in UPWARDS {
        check_floors(part, FLOORS, &["crates/store/src/below/part.rs:1: floors"]);
        check_floors(part, &format!("{FLOORS}up below above\n"), &[]);
    }
    // Rooms of one floor must not use each other.
    check_floors("", "[store]\nabove below lib\n", &["crates/store/src/above.rs:1: floors"]);
    check_floors(
        "",
        "[store]\nabove lib\n",
        &["crates/store/src/below/mod.rs:1: floors", "crates/store/src/below/part.rs:1: floors"],
    );
    check_floors(
        "",
        &format!("{FLOORS}up below above\ncellar\n"),
        &["xtask/floors.txt:4: floors", "xtask/floors.txt:5: floors"],
    );
    check_floors("", &format!("{FLOORS}[pantry]\n"), &["xtask/floors.txt:4: floors"]);
}

const CACHING: &str = "crates/caching/src/age.rs";

#[test]
fn pure_crates_read_no_clock_and_do_no_io() {
    let broken = [
        "use std::time::Instant;\nfn age() {\n    Instant::now();\n}\n",
        "use std::time as t;\nfn age() {\n\n    t::SystemTime::now();\n}\n",
        "\n\nuse std::{fmt, net::TcpStream};\n",
        "\n\nuse std::fs::{self, File};\n",
        "\n\nfn home() { std::env::var(\"HOME\"); }\n",
        "\n\nfn end() { ::std::process::exit(1) }\n",
        "\n\nuse std::thread::sleep as rest;\n",
        "\n\nasync fn wait() { tokio::time::sleep(d).await }\n",
    ];
    for text in broken {
        let problems = problems(&[(CACHING, text)]);
        assert!(!problems.is_empty(), "{text}");
        assert!(problems.iter().all(|problem| problem.rule == "pure" && problem.line >= 3), "{text}");
    }
}

#[test]
fn pure_files_of_crates_that_act_are_as_pure() {
    let decide = "crates/gateway/src/request/decide.rs";
    for text in ["\nuse crate::worker::Worker;\n", "\nfn now() { tokio::time::Instant::now() }\n"] {
        check(&[(decide, text)], &["crates/gateway/src/request/decide.rs:2: pure"]);
        check(&[("crates/gateway/src/request/lookup.rs", text)], &[]);
    }
}

#[test]
fn pure_crates_may_name_addresses_and_talk_about_clocks() {
    let fine = "use core::net::IpAddr;\nuse std::{collections, fmt};\nuse std::io;\n\
                /* Instant::now() is not called */\nconst A: &str = \"std::fs::read\";\nfn now() { clock.now() }\n";
    check(&[(CACHING, fine)], &[]);
    let test = "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
    check(&[(CACHING, test), ("crates/caching/tests/cases.rs", "use std::fs;\n")], &[]);
}

#[test]
fn only_the_binary_reads_the_environment() {
    let text = "\nfn home() { std::env::var(\"HOME\") }\n";
    check(&[("crates/store/src/disk.rs", text)], &["crates/store/src/disk.rs:2: environment"]);
    check(&[("crates/larder/src/main.rs", text), ("crates/store/tests/disk.rs", text)], &[]);
}

#[test]
fn unsafe_has_its_places() {
    let text = "fn f() {\n    unsafe { g() }\n}\n";
    check(&[("crates/store/src/memory.rs", text)], &["crates/store/src/memory.rs:2: unsafe"]);
    check(&[("crates/engine/src/index.rs", text)], &["crates/engine/src/index.rs:2: unsafe"]);
    let explained = "fn f() {\n    // SAFETY: g needs nothing.\n    unsafe { g() }\n}\n";
    check(
        &[("crates/engine/src/index.rs", explained), (CACHING, "/* unsafe */ const A: &str = \"unsafe\";\n")],
        &[],
    );
}

#[test]
fn files_have_at_most_800_production_lines() {
    let lines = |count: usize| "const A: u8 = 1;\n".repeat(count);
    let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(800), lines(100));
    check(&[(CACHING, &with_tests)], &[]);
    check(&[(CACHING, &lines(801))], &["crates/caching/src/age.rs:801: file-lines"]);
    check(
        &[("crates/caching/tests/age.rs", &lines(801)), ("crates/caching/src/age/tests.rs", &lines(801))],
        &[],
    );
    let declared = "#[cfg(test)]\nmod cases;\n";
    check(&[(CACHING, declared), ("crates/caching/src/age/cases.rs", &lines(801))], &[]);
}

#[test]
fn unfinished_code_stays_out() {
    for name in ["todo", "dbg", "unimplemented"] {
        let text = format!("fn f() {{\n    {name}!()\n}}\n");
        check(&[(CACHING, &text)], &["crates/caching/src/age.rs:2: unfinished"]);
        check(&[("crates/caching/tests/age.rs", &text)], &["crates/caching/tests/age.rs:2: unfinished"]);
    }
    check(&[(CACHING, "/* todo!() */ const A: &str = \"dbg!()\"; fn todo() {}\n")], &[]);
}

#[test]
fn tests_are_not_ignored() {
    let attributes = ["#[ignore]", "#[ignore = \"slow\"]", "#[cfg_attr(windows, ignore)]"];
    for attribute in attributes {
        let text = format!("#[test]\n{attribute}\nfn slow() {{}}\n");
        check(&[("crates/caching/tests/age.rs", &text)], &["crates/caching/tests/age.rs:2: ignored-test"]);
    }
    let fence = "`".repeat(3);
    let example = |word: &str| format!("/// {fence}{word}\n/// x\n/// {fence}\nfn f() {{}}\n");
    check(&[(CACHING, &example("ignore"))], &["crates/caching/src/age.rs:1: ignored-test"]);
    check(&[(CACHING, &example("no_run"))], &[]);
}

#[test]
fn modules_have_a_noun() {
    check(&[(CACHING, "mod date;\npub mod helpers;\n")], &["crates/caching/src/age.rs:2: module-name"]);
    check(
        &[("crates/caching/tests/age.rs", "mod common;\n")],
        &["crates/caching/tests/age.rs:1: module-name"],
    );
}

const ANSWER: &str = "crates/mock-origin/src/answer.rs";

#[test]
fn doc_comments_name_the_thing() {
    for opening in
        ["Of", "Who", "Whoever", "What", "That", "Those", "Whose", "It", "It's", "The same", "  What"]
    {
        let text = format!(
            "//! {opening} is here.\n\n    /// {opening}, and more.\n    /// A second line.\nfn f() {{}}\n"
        );
        check(
            &[(ANSWER, &text)],
            &[
                "crates/mock-origin/src/answer.rs:1: doc-words",
                "crates/mock-origin/src/answer.rs:3: doc-words",
            ],
        );
        check(&[("crates/kv/src/answer.rs", &text)], &[]);
    }
    let fine = "//! Its answers.\n//! What follows is a second line.\n\n/// Often empty.\n/// It has no end.\n\
                // What is no doc comment.\n//// Of four slashes.\n/// The sameness of `What`.\nfn f() {}\n";
    check(&[(ANSWER, fine)], &[]);
}

#[test]
fn predicates_answer_yes_or_no() {
    let broken = [
        "fn is_called(&self, name: &str) {}\n",
        "async fn has_answered() -> Result<bool, Error> { f() }\n",
        "trait Peer {\n    fn can_wait(&self) -> usize;\n}\n",
        "fn is_open<F: Fn(u8) -> bool>(f: F) where F: Clone {}\n",
    ];
    for text in broken {
        let line = if text.starts_with("trait") { 2 } else { 1 };
        check(&[(ANSWER, text)], &[&format!("{ANSWER}:{line}: predicates")]);
        check(&[("crates/kv/src/answer.rs", text)], &[]);
    }
    let fine = "fn is_open(&self) -> bool { true }\nfn has_room<F: Fn(u8) -> u8>(f: F) -> Option<u8> where F: Clone { None }\n\
                trait Peer { async fn can_wait(&self) -> bool; }\nfn issue() {}\n#[test]\nfn is_empty_at_first() {}\n";
    check(&[(ANSWER, fine)], &[]);
}

#[test]
fn type_names_of_a_crate_mean_one_thing() {
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("crates/message/src/{name}.rs"));
    let first = "struct Place;\nimpl Iterator for Place {\n    type Item = u8;\n}\n";
    let second = "pub enum Place {}\nimpl Iterator for Place {\n    type Item = u8;\n}\n";
    let third =
        "impl Iterator for T {\n    type Item = u8;\n}\n#[cfg(test)]\nmod tests {\n    struct Place;\n}\n";
    let message = ("crates/message/Cargo.toml", &*manifest("larder-message", ""));
    check(&[message, (&a, first), (&b, second), (&c, third)], &[]);
    for third in ["\ntype Place = u8;\n", "\ntrait Place {}\n", "\nfn f() -> impl Copy {}\nstruct Place;"] {
        let line = if third.contains("fn") { 3 } else { 2 };
        check(&[message, (&a, first), (&b, second), (&c, third)], &[&format!("{c}:{line}: type-names")]);
        check(&[message, (&a, first), (&b, second), ("crates/gateway/src/c.rs", third)], &[]);
    }
}

#[test]
fn tests_of_the_binary_use_the_binary() {
    let text = "use testkit::Origin;\nuse gateway::Exchange;\nfn f() { store::open() }\n";
    check(
        &[("crates/larder/tests/serve.rs", text)],
        &["crates/larder/tests/serve.rs:2: binary-tests", "crates/larder/tests/serve.rs:3: binary-tests"],
    );
    check(
        &[("crates/larder/tests/serve.rs", "use mock_origin::run;\n")],
        &["crates/larder/tests/serve.rs:1: binary-tests"],
    );
    check(
        &[("crates/larder-bench/tests/http.rs", "use bench::http::Url;\n")],
        &["crates/larder-bench/tests/http.rs:1: binary-tests"],
    );
    check(&[("crates/gateway/tests/serve.rs", text)], &[]);
}

#[test]
fn tiers_stand_behind_the_facade() {
    let text = "use store::{Budget, Memory};\nfn f(memory: &store::Memory<u8>, budget: &Budget) {}\n";
    let outside = "crates/gateway/src/request/steps/look_up.rs";
    check(&[(outside, text)], &[&format!("{outside}:1: tiers"), &format!("{outside}:2: tiers")]);
    check(&[("crates/store/src/lib.rs", text)], &[]);
}

#[test]
fn links_lead_somewhere() {
    let page = "# Words\n\n[here](lexicon.md#five-verbs) [there](../README.md) [self](#words)\n\n\
                [a](gone.md)\n[b](lexicon.md#no-such)\n[c]: ./gone.svg\n<img src=\"gone.png\">\n[d](#nowhere)\n";
    let lexicon = "## Five verbs\n\n[out](https://example.com/x) `[not](a link)`\n\n```\n[nor](this)\n```\n";
    check(
        &[("docs/README.md", page), ("docs/lexicon.md", lexicon), ("README.md", "")],
        &[
            "docs/README.md:5: links",
            "docs/README.md:6: links",
            "docs/README.md:7: links",
            "docs/README.md:8: links",
            "docs/README.md:9: links",
        ],
    );
}

#[test]
fn anchors_are_named_as_the_forge_names_them() {
    let page = "# `larder serve`: the *gateway*\n## Twice\n## Twice\n<a id=\"own\"></a>\n\n\
                [a](#larder-serve-the-gateway) [b](#twice) [c](#twice-1) [d](#own)\n[e](#twice-2)\n";
    check(&[("README.md", page)], &["README.md:7: links"]);
}

#[test]
fn named_paths_exist() {
    let page = "`crates/caching/src/lib.rs` `crates/caching/` `crates/*/src/lib.rs` `docs/{lexicon,guide}.md`\n\
                `fuzz/corpus/age` `cargo run -- --config config/larder.toml` `crates/<name>/src`\n\n\
                `crates/caching/src/gone.rs`\n`larder check config/gone.toml`\n`docs/{lexicon,gone}.md`\n";
    check(
        &[
            ("README.md", page),
            ("docs/lexicon.md", ""),
            ("docs/guide.md", ""),
            ("config/larder.toml", ""),
            (CACHING, "//! See `docs/lexicon.md`.\n/// See `docs/gone.md`.\nfn f() {}\n"),
        ],
        &[
            "README.md:4: links",
            "README.md:5: links",
            "README.md:6: links",
            "crates/caching/src/age.rs:2: links",
        ],
    );
}

#[test]
fn a_file_that_is_no_rust_is_a_problem() {
    check(&[(CACHING, "fn f() {\n")], &["crates/caching/src/age.rs:1: syntax"]);
}

#[test]
fn problems_read_as_one_line() {
    let problems = problems(&[(CACHING, "\nfn f() { todo!() }\n")]);
    let line = "crates/caching/src/age.rs:2: unfinished: `todo!` in the tree; finished code, or none";
    assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [line]);
}

/// Checks the lines in `text` at which sentences begin with a riddle; another page uses up the budget of the tree.
fn check_riddles(path: &str, text: &str, expected: &[usize]) {
    let full = "Who waits?\n\n".repeat(20);
    let found = problems(&[("full.md", &full), (path, text)]);
    let lines: Vec<usize> = found
        .iter()
        .filter(|problem| problem.rule == "riddles" && problem.file == path)
        .map(|problem| problem.line)
        .collect();
    assert_eq!(lines, expected, "{path}");
}

#[test]
fn at_most_20_sentences_of_the_tree_begin_with_a_riddle() {
    check(&[("full.md", &"Who waits?\n\n".repeat(20))], &[]);
    let page = "# Page\n\n- What it costs\n\n| key | Whoever asks |\n|---|---|\n\nThe rest. Of those, one. That it ends is so.\n\
                A line goes on, and\nWhat follows belongs to it.\n\n```sh\nWho\n```\n";
    check_riddles("docs/page.md", page, &[3, 5, 8, 8]);
    let rust = "//! Ends. What for?\n//! Who knows.\n\nconst A: &str = \"Who waits\";\n// Office, Whatnot\n/// Says and\n/// What goes on.\n";
    check_riddles(CACHING, rust, &[1, 2, 4]);
    check_riddles("scripts/run", "#!/bin/sh\n# Of a shell.\nWho=1\n", &[2]);
    check_riddles("docs/reference/config.md", "Who waits?\n", &[]);
    check_riddles("docs/reference/lexicon.md", "Who waits?\n", &[1]);
}
