//! Passes the version (of the tag or of the package) and the commit, if known, to the binary.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=LARDER_COMMIT");
    let profile = std::env::var("PROFILE").unwrap_or_default();
    // A debug build has no commit: otherwise, each commit would require a rebuild, of all tests too, or leave an old
    // commit in the binary.
    let (tag, head) = if profile == "debug" { (None, None) } else { named_by_git() };
    let version = tag.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let commit = std::env::var("LARDER_COMMIT").ok().or(head).unwrap_or_default();
    let name = match (commit.as_str(), profile.as_str()) {
        ("", "debug") => format!("{version} (debug build)"),
        ("", _) => version.clone(),
        (commit, _) => format!("{version} ({commit})"),
    };
    println!("cargo:rustc-env=LARDER_VERSION={name}");
    println!("cargo:rustc-env=BUILD_VERSION={version}");
    println!("cargo:rustc-env=BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=BUILD_PROFILE={profile}");
    println!("cargo:rustc-env=BUILD_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    println!("cargo:rustc-env=BUILD_RUSTC={}", compiler().unwrap_or_default());
}

/// Returns the version in a tag such as `v1.2.3` of the checked-out commit, and the commit; none outside of a
/// repository, such as in a source archive.
fn named_by_git() -> (Option<String>, Option<String>) {
    watch_commits();
    let tag = git(&["describe", "--tags", "--exact-match", "--match", "v[0-9]*", "HEAD"]);
    let version = tag.map(|tag| tag.trim_start_matches('v').to_owned());
    (version, git(&["rev-parse", "--short=12", "HEAD"]))
}

/// Watches the checked-out commit. HEAD names a branch and doesn't change when the branch moves, but its log does.
/// Without a log, the branches are watched.
fn watch_commits() {
    let is_logged = watch("logs/HEAD");
    let rest: &[_] = if is_logged { &["HEAD", "refs/tags"] } else { &["HEAD", "refs"] };
    rest.iter().chain(&["packed-refs"]).for_each(|name| {
        watch(name);
    });
}

/// Makes cargo watch a path of the repository, if it exists: a missing path would cause a rebuild every time. In a
/// second working tree `.git` is not a folder.
fn watch(name: &str) -> bool {
    let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name]);
    let path = path.filter(|path| Path::new(path).exists());
    path.inspect(|path| println!("cargo:rerun-if-changed={path}")).is_some()
}

/// Returns the output of git in one line.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the version of the compiler: `rustc 1.90.0 (...)` without the rest.
fn compiler() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).split(' ').nth(1).map(str::to_owned)
}
