//! Training: makes a profile of how often the code of the server runs under load, which the compiler uses to lay out
//! the code of a release.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::stage::empty;
use crate::tool::{execute, output};

/// Loads of the comparison that exercise the code for requests, each group with its seconds per load.
const LOADS: [(&str, &[&str]); 2] = [
    (
        "2",
        &[
            "hit",
            "vary",
            "304",
            "10k",
            "64k",
            "miss",
            "tls",
            "h2",
            "expiry",
            "rules",
            "gzip",
            "gzip-miss",
            "limit",
        ],
    ),
    ("1", &["kv-get", "kv-set", "kv-values"]),
];

/// Minimum number of calls of the most frequent function: two seconds of hits make more. A server that can't write
/// its counts, or is killed before that, leaves no counts or only those of its start.
const CALLS_MIN: u64 = 100_000;

/// Builds all programs into one folder; returns the server and its profile, which is given or made by training. The
/// load generator is built without a profile, because it uses different parts of the common code.
pub(super) fn build(
    root: &Path,
    target: &Path,
    profile: Option<&Path>,
) -> anyhow::Result<(PathBuf, PathBuf)> {
    let profile = match profile {
        Some(profile) => {
            fs::canonicalize(profile).with_context(|| format!("no profile {}", profile.display()))?
        }
        None => train(root, target)?,
    };
    let server = build_by(root, target, &profile)?;
    // Built separately; otherwise the server would get features of libraries that only this program needs.
    let arguments = ["build", "--release", "--locked", "--package", "larder-bench"];
    execute(Command::new("cargo").current_dir(root).args(arguments))?;
    fs::copy(target.join("release/larder-bench"), server.with_file_name("larder-bench"))?;
    Ok((server, profile))
}

/// Builds a server that counts its calls, puts loads on it, and writes the profile to a file.
fn train(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    // The tool is looked up first, because the build takes minutes.
    let merger = merger()?;
    let folder = target.join("training");
    let server = build_server(root, &folder, "-Cprofile-generate=", &folder.join("counts"))?;
    let tools = ["build", "--release", "--locked", "--package", "larder-bench", "--package", "compare"];
    execute(Command::new("cargo").current_dir(root).args(tools))?;
    let profiles = LOADS.iter().enumerate().map(|(number, (seconds, rows))| {
        let mut load = Command::new(target.join("release/compare"));
        load.arg("--larder").arg(&server).args(["--rounds", "1", "--seconds-each", seconds]);
        load.args(["--peers", "larder"]).args(*rows);
        let profile = folder.join(format!("{number}.profdata"));
        count(&mut load, &merger, &profile)?;
        Ok(profile)
    });
    let profiles = profiles.collect::<anyhow::Result<Vec<_>>>()?;
    let profile = folder.join("larder.profdata");
    merge(&merger, &profiles, &profile)?;
    Ok(profile)
}

/// Runs a load, and merges the counts of its servers.
fn count(load: &mut Command, merger: &Path, profile: &Path) -> anyhow::Result<()> {
    let counts = std::env::temp_dir().join(format!("larder-training-{}", std::process::id()));
    empty(&counts)?;
    // Servers run as a different user if this one is root.
    fs::set_permissions(&counts, Permissions::from_mode(0o1777))?;
    execute(load.env("LLVM_PROFILE_FILE", counts.join("%m.profraw")))?;
    merge(merger, &[&counts], profile)?;
    fs::remove_dir_all(&counts)?;
    let about = output(Command::new(merger).arg("show").arg(profile))?;
    let most = most_calls(&about).context("the output of llvm-profdata has no `Maximum function count`")?;
    ensure!(
        most >= CALLS_MIN,
        "{load:?} recorded only {most} calls of the most frequent function; expected at least {CALLS_MIN}, because such a profile makes the server slower"
    );
    Ok(())
}

fn merge(merger: &Path, profiles: &[impl AsRef<OsStr>], profile: &Path) -> anyhow::Result<()> {
    execute(Command::new(merger).args(["merge", "--output"]).arg(profile).args(profiles))
}

fn most_calls(about: &str) -> Option<u64> {
    about.lines().find_map(|line| line.strip_prefix("Maximum function count: "))?.trim().parse().ok()
}

/// Builds the server with the given profile.
fn build_by(root: &Path, target: &Path, profile: &Path) -> anyhow::Result<PathBuf> {
    build_server(root, &target.join("trained"), "-Cprofile-use=", profile)
}

fn build_server(root: &Path, target: &Path, flag: &str, path: &Path) -> anyhow::Result<PathBuf> {
    let mut flag = OsString::from(flag);
    flag.push(path);
    let mut cargo = Command::new("cargo");
    // This variable separates flags with a special character, so that a path may contain spaces.
    cargo.current_dir(root).env("CARGO_ENCODED_RUSTFLAGS", flag);
    cargo.args(["build", "--release", "--locked", "--package", "larder", "--target-dir"]).arg(target);
    // With a named target, the flags apply to that target only: calls of macros and build scripts are irrelevant to the
    // server.
    let host = host()?;
    execute(cargo.args(["--target", &host]))?;
    Ok(target.join(host).join("release/larder"))
}

fn host() -> anyhow::Result<String> {
    let about = output(Command::new("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc reports no host")?;
    Ok(host.to_owned())
}

/// Returns the `llvm-profdata` of the compiler: other versions can't read the output of its programs.
fn merger() -> anyhow::Result<PathBuf> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let merger = Path::new(&sysroot).join("lib/rustlib").join(host()?).join("bin/llvm-profdata");
    ensure!(
        merger.is_file(),
        "{} is missing: run `rustup component add llvm-tools`, or pass a profile with `--profile`",
        merger.display()
    );
    Ok(merger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_a_profile_are_read() {
        let about = "Instrumentation level: IR\nTotal functions: 103326\nMaximum function count: 301986\n";
        assert_eq!(most_calls(about), Some(301_986));
        assert_eq!(most_calls("Total functions: 3\n"), None);
    }
}
