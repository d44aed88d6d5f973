//! Tells the binary its version: that of the package and, where the build knows it, the commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=LARDER_COMMIT");
    // A path that is not there would make every build a new one, and in a second working tree `.git` is no folder.
    if let Some(head) = git(&["rev-parse", "--path-format=absolute", "--git-path", "HEAD"]) {
        println!("cargo:rerun-if-changed={head}");
    }
    let package = env!("CARGO_PKG_VERSION");
    // The commit that is checked out; none outside a repository, such as in a source archive.
    let commit = || git(&["rev-parse", "--short=12", "HEAD"]);
    let commit = std::env::var("LARDER_COMMIT").ok().or_else(commit).unwrap_or_default();
    let version = if commit.is_empty() { package.to_owned() } else { format!("{package} ({commit})") };
    println!("cargo:rustc-env=LARDER_VERSION={version}");
    println!("cargo:rustc-env=LARDER_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=LARDER_RUSTC={}", compiler().unwrap_or_default());
}

/// What git says in one line.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The version of the compiler: `rustc 1.90.0 (...)` without the rest.
fn compiler() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).split(' ').nth(1).map(str::to_owned)
}
