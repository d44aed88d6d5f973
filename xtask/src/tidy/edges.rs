//! Allowed dependencies between Larder's crates.
//!
//! The table is the architecture: a new row or entry is a separate commit, with its reason. A crate may be in the
//! table before it is in the tree.

use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{Dependency, DependencyKind, MetadataCommand, Package};

use super::problem::Problem;
use super::purity::{IMPURE_DEPENDENCIES, PURE_CRATES};

/// Every crate of the workspace by the name of its folder, with the crates that it may use.
pub(super) const ALLOWED_EDGES: [(&str, &[&str]); 24] = [
    ("breaker", &[]),
    ("caching", &[]),
    ("http1", &[]),
    ("resp", &[]),
    ("engine", &[]),
    ("telemetry", &[]),
    ("terminal", &[]),
    ("option-table", &[]),
    ("otlp", &["telemetry"]),
    ("store", &["breaker", "resp", "telemetry"]),
    ("message", &["caching", "http1", "store", "telemetry"]),
    ("origin", &["breaker", "caching", "http1", "message", "store", "telemetry"]),
    ("cache", &["caching", "http1", "message", "origin", "store", "telemetry"]),
    ("fleet", &["caching", "cache", "message", "store", "telemetry"]),
    (
        "gateway",
        &["caching", "http1", "cache", "fleet", "message", "origin", "option-table", "store", "telemetry"],
    ),
    ("kv", &["resp", "engine", "telemetry"]),
    ("admin", &["caching", "gateway", "kv", "store", "telemetry"]),
    ("bench", &["resp", "telemetry"]),
    ("mock-origin", &[]),
    (
        "larder",
        &[
            "caching",
            "http1",
            "resp",
            "engine",
            "telemetry",
            "terminal",
            "option-table",
            "breaker",
            "cache",
            "fleet",
            "message",
            "origin",
            "store",
            "gateway",
            "kv",
            "otlp",
            "admin",
            "mock-origin",
        ],
    ),
    ("larder-bench", &["bench", "terminal"]),
    ("testkit", &["caching", "http1", "resp", "engine", "telemetry", "store"]),
    ("compare", &["bench"]),
    ("xtask", &[]),
];

pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Problem>> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .other_options(vec!["--offline".to_owned()])
        .exec()
        .context("cargo metadata failed")?;
    Ok(metadata.packages.iter().flat_map(|package| check_package(root, package)).collect())
}

fn check_package(root: &Path, package: &Package) -> Vec<Problem> {
    let manifest = Manifest::read(root, package);
    let name = package.manifest_path.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
    let Some((_, allowed)) = ALLOWED_EDGES.iter().find(|(known, _)| *known == name) else {
        let what = format!("`{name}` is not in the table of crates");
        return vec![manifest.problem("name", what, "add it to the table first, with its edges".to_owned())];
    };
    let dependencies = package.dependencies.iter();
    dependencies.filter_map(|dependency| check_dependency(&manifest, name, allowed, dependency)).collect()
}

fn check_dependency(
    manifest: &Manifest,
    name: &str,
    allowed: &[&str],
    dependency: &Dependency,
) -> Option<Problem> {
    if let Some(used) = dependency.path.as_ref().and_then(|folder| folder.file_name()) {
        let for_tests = dependency.kind == DependencyKind::Development && used == "testkit";
        let is_allowed = for_tests || allowed.contains(&used);
        let what = format!("`{name}` may not use `{used}`");
        return (!is_allowed).then(|| manifest.problem(used, what, allowed_sentence(allowed)));
    }
    let used = dependency.name.as_str();
    let is_impure = PURE_CRATES.contains(&name)
        && dependency.kind != DependencyKind::Development
        && IMPURE_DEPENDENCIES.contains(&used);
    is_impure.then(|| {
        let what = format!("the pure crate `{name}` depends on `{used}`");
        manifest.problem(used, what, "a pure crate has no clock, socket or randomness".to_owned())
    })
}

fn allowed_sentence(allowed: &[&str]) -> String {
    match allowed {
        [] => "allowed: none of our crates (testkit for tests)".to_owned(),
        some => format!("allowed: {} (testkit for tests)", some.join(", ")),
    }
}

/// A `Cargo.toml`, in which problems name the line of a dependency.
struct Manifest {
    path: String,
    text: String,
}

impl Manifest {
    fn read(root: &Path, package: &Package) -> Self {
        let full = package.manifest_path.as_std_path();
        // Cargo returns the real path; the given root may contain a symbolic link.
        let real_root = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        let path = full.strip_prefix(&real_root).or_else(|_| full.strip_prefix(root)).unwrap_or(full);
        let text = std::fs::read_to_string(full).unwrap_or_default();
        Self { path: path.display().to_string(), text }
    }

    fn problem(&self, key: &str, what: String, allowed: String) -> Problem {
        let is_key = |line: &str| {
            let rest = line.trim_start().strip_prefix(key);
            rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        };
        let line = self.text.lines().position(is_key).map_or(1, |index| index + 1);
        Problem { file: self.path.clone(), line, rule: "edges", what, allowed }
    }
}
