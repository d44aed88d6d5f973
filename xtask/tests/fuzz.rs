//! The fuzz crate, which is not a member of the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the names of Larder's crates among the dependencies in a manifest.
fn ours(manifest: &str, is_ours: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(manifest);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let dependencies = text.split("[dependencies]").nth(1).expect("it has dependencies");
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let names = dependencies.lines().filter_map(|line| line.split_once([' ', '.']));
    names.map(|(name, _)| name.to_owned()).filter(|name| is_ours(name)).collect()
}

/// Some targets include sources of the binary, whose dependencies cargo knows only for the workspace.
#[test]
fn fuzz_targets_have_the_crates_of_the_sources_that_they_include() {
    let workspace = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml")).unwrap();
    let is_ours = |name: &str| {
        workspace.lines().any(|line| line.starts_with(&format!("{name} = {{")) && line.contains("path = "))
    };
    let used = ours("crates/larder/Cargo.toml", is_ours);
    let known = ours("fuzz/Cargo.toml", |_| true);
    assert!(used.len() > 5, "{used:?}");
    // No target includes the command that serves the mock origin.
    let missing: Vec<_> = used.difference(&known).filter(|name| *name != "mock-origin").collect();
    assert!(missing.is_empty(), "fuzz/Cargo.toml lacks {missing:?}");
}
