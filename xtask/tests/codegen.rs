//! Drift of generated pages is found by name.

use std::fs;

use xtask::codegen::differing_pages;

#[test]
fn drift_names_the_pages() {
    let generated = tempfile::tempdir().expect("a temporary folder");
    let pages = tempfile::tempdir().expect("a temporary folder");
    for (name, tree) in [("config.md", Some("same")), ("metrics.md", Some("old")), ("status.md", None)] {
        fs::write(generated.path().join(name), "same").expect("a file");
        if let Some(text) = tree {
            fs::write(pages.path().join(name), text).expect("a file");
        }
    }
    fs::write(pages.path().join("by-hand.md"), "pages written by hand stay").expect("a file");
    let differing = differing_pages(generated.path(), pages.path()).expect("readable folders");
    assert_eq!(differing, ["metrics.md", "status.md"]);
}

#[test]
fn an_empty_folder_is_no_proof() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    assert!(differing_pages(empty.path(), empty.path()).is_err());
}
