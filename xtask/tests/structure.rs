//! Circles of imports in small planted crates: what makes an edge, and to which file.

use std::fs;

use xtask::structure;

/// Plants the files of crate `store` and expects these lines of `structure store`.
#[track_caller]
fn check(files: &[(&str, &str)], expected: &[&str]) {
    let root = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in files {
        let place = root.path().join("crates/store/src").join(path);
        fs::create_dir_all(place.parent().expect("a file stands in a folder")).expect("a folder");
        fs::write(place, text).expect("a file");
    }
    let lines = structure::circles_of(root.path(), "store").expect("the tree can be read");
    assert_eq!(lines, expected);
}

const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n");

#[test]
fn imports_and_paths_make_edges() {
    let circle = ["circle of 2", "  a.rs -> b.rs: crate::b::B", "  b.rs -> a.rs: super::a::A"];
    check(
        &[
            LIB,
            ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
            ("b.rs", "pub struct B;\nfn f() -> super::a::A {}\n"),
        ],
        &circle,
    );
}

#[test]
fn what_a_file_passes_on_is_an_edge_to_its_definer() {
    check(
        &[
            LIB,
            ("a.rs", "use crate::B;\npub struct A(B);\n"),
            ("b.rs", "use crate::A;\npub struct B(Box<A>);\n"),
        ],
        &["circle of 2", "  a.rs -> b.rs: crate::B", "  b.rs -> a.rs: crate::A"],
    );
    // The folder's module passes on what its file defines, and uses it not.
    check(
        &[
            ("lib.rs", "mod a;\n"),
            ("a/mod.rs", "mod deep;\npub(crate) use deep::Deep;\npub(crate) struct A;\n"),
            ("a/deep.rs", "use super::A;\npub(crate) struct Deep(A);\n"),
        ],
        &[],
    );
}

#[test]
fn new_names_and_modules_are_followed() {
    check(
        &[
            LIB,
            ("a.rs", "use crate::b::{self, B as Other};\npub struct A(Other);\nfn f() { b::g(); }\n"),
            ("b.rs", "use crate::*;\npub struct B;\nfn g(a: &A) {}\n"),
        ],
        &["circle of 2", "  a.rs -> b.rs: crate::b::B, crate::b::g", "  b.rs -> a.rs: crate::A"],
    );
}

#[test]
fn tests_make_no_edge() {
    check(
        &[
            LIB,
            ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
            (
                "b.rs",
                "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n    fn f(a: A) {}\n}\n",
            ),
        ],
        &[],
    );
}

#[test]
fn an_unknown_crate_is_an_error() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let error = structure::circles_of(root.path(), "store").expect_err("there is none");
    assert_eq!(error.to_string(), "no crate `store`");
}
