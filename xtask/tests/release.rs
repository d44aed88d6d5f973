//! Releases: versions, the list of components, the changelog.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use xtask::release::sbom;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate stands in the repository").to_owned()
}

/// A package in a repository of its own, built by Larder's build script.
struct Package(tempfile::TempDir);

impl Package {
    fn new() -> Self {
        let package = Self(tempfile::tempdir().expect("a folder"));
        let script = root().join("crates/terminal/build.rs");
        let manifest = format!(
            "[package]\nname = \"built\"\nversion = \"1.2.3\"\nedition = \"2024\"\nbuild = {script:?}\n[workspace]\n"
        );
        let path = package.0.path();
        fs::create_dir(path.join("src")).expect("a folder");
        fs::write(path.join("Cargo.toml"), manifest).expect("a file");
        fs::write(path.join(".gitignore"), "/target\n").expect("a file");
        let program = "fn main() { println!(\"{}\", env!(\"LARDER_VERSION\")) }\n";
        fs::write(path.join("src/main.rs"), program).expect("a file");
        package.run("git init --quiet --initial-branch main");
        package.run("git config user.name nobody");
        package.run("git config user.email nobody@example.org");
        package.run("git add .");
        package
    }

    #[track_caller]
    fn run(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).current_dir(self.0.path());
        let here = ["LARDER_COMMIT", "CARGO_TARGET_DIR", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"];
        here.iter().for_each(|name| {
            command.env_remove(name);
        });
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn commit(&self) -> String {
        self.run("git commit --quiet --allow-empty --message change");
        self.run("git rev-parse --short=12 HEAD")
    }
}

/// A bug from practice: a fast-forward moves the branch without changing HEAD, so the version was that of the
/// previous commit.
#[test]
fn a_version_follows_the_commit() {
    let package = Package::new();
    let built = || package.run("cargo run --quiet --release --offline");
    let first = package.commit();
    assert_eq!(built(), format!("1.2.3 ({first})"));
    package.run("git checkout --quiet -b next");
    let second = package.commit();
    package.run("git checkout --quiet main");
    assert_eq!(built(), format!("1.2.3 ({first})"));
    package.run("git merge --quiet --ff-only next");
    assert_eq!(built(), format!("1.2.3 ({second})"));
    package.run("git tag v1.3.0");
    assert_eq!(built(), format!("1.3.0 ({second})"));
    let third = package.commit();
    assert_eq!(built(), format!("1.2.3 ({third})"));
    assert_eq!(package.run("cargo run --quiet --offline"), "1.2.3 (debug build)");
}

/// Dependencies of the load generator alone stay out of the server.
#[test]
fn the_server_has_nothing_of_what_measures_it() {
    let names = |program: &str| -> BTreeSet<String> {
        let bill =
            sbom::of_binary(&root(), program, "9.9.9", "x86_64-unknown-linux-gnu").expect("cargo knows it");
        let components = bill["components"].as_array().expect("a list").iter();
        components.filter_map(|component| component["name"].as_str().map(str::to_owned)).collect()
    };
    let (server, bench) = (names("larder"), names("larder-bench"));
    for measuring in ["larder-bench-core", "hdrhistogram", "indicatif", "maud", "plotters"] {
        assert!(bench.contains(measuring) && !server.contains(measuring), "{measuring}");
    }
    for serving in ["larder-engine", "larder-gateway", "larder-kv", "larder-store"] {
        assert!(server.contains(serving) && !bench.contains(serving), "{serving}");
    }
}

/// The list has everything that the binary is linked with, and no build and test dependencies.
#[test]
fn the_list_of_components_is_that_of_the_binary() {
    let bill =
        sbom::of_binary(&root(), "larder", "9.9.9", "x86_64-unknown-linux-gnu").expect("cargo knows it");
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(text(&bill["metadata"]["component"], "version"), "9.9.9");
    let components = bill["components"].as_array().expect("a list");
    let names: BTreeSet<_> = components.iter().map(|component| text(component, "name")).collect();
    for linked in ["larder-gateway", "larder-kv", "tokio", "rustls", "h2", "tikv-jemallocator"] {
        assert!(names.contains(linked), "{linked} is linked");
    }
    for other in ["larder", "testkit", "proptest", "xtask", "winapi", "cc"] {
        assert!(!names.contains(other), "{other} is not linked");
    }
    let tokio = components.iter().find(|component| component["name"] == "tokio").expect("it is there");
    assert_eq!(text(&tokio["licenses"][0], "expression"), "MIT");
    assert_eq!(text(&tokio["hashes"][0], "content").len(), 64);
    assert!(text(tokio, "purl").starts_with("pkg:cargo/tokio@1."));
    let references: BTreeSet<_> = components
        .iter()
        .chain([&bill["metadata"]["component"]])
        .map(|component| text(component, "bom-ref"))
        .collect();
    assert_eq!(references.len(), components.len() + 1, "each is there once");
    for entry in bill["dependencies"].as_array().expect("a list") {
        let named = entry["dependsOn"].as_array().expect("a list").iter().chain([&entry["ref"]]);
        named.for_each(|name| assert!(references.contains(name.as_str().expect("a text")), "{name}"));
    }
}
