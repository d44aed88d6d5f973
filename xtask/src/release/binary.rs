//! The binaries of a release, and their version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::tool::{execute, output};

/// The server, which determines the version of the release, and the load generator.
pub(super) const PROGRAMS: [&str; 2] = ["larder", "larder-bench"];

/// Build information that a binary reports.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Build {
    version: String,
    commit: Option<String>,
    target: String,
}

/// Binaries to pack.
pub(super) struct Release {
    /// The version in names of files and packages.
    pub(super) version: String,
    pub(super) target: String,
    /// The binaries in the order of [`PROGRAMS`].
    pub(super) binaries: [PathBuf; PROGRAMS.len()],
    /// Time of the commit in seconds since 1970, so that later builds produce the same bytes.
    pub(super) made_at: String,
}

/// Copies a server and the programs in the same folder to `work`.
pub(super) fn prepare(
    root: &Path,
    server: &Path,
    given_version: Option<&str>,
    work: &Path,
) -> anyhow::Result<Release> {
    let build = described(server)?;
    for program in PROGRAMS {
        let beside = server.with_file_name(program);
        ensure!(beside.is_file(), "{} is missing: build {program} too", beside.display());
        ensure!(
            described(&beside)? == build,
            "{} and {program} in the same folder are from different builds",
            server.display()
        );
    }
    let version = match given_version {
        Some(version) => labelled(version, &build, server)?,
        None => version(root, &build)?,
    };
    let binaries = PROGRAMS.map(|program| work.join(program));
    for (program, binary) in PROGRAMS.iter().zip(&binaries) {
        // Debug information is nine tenths of the file, so it is removed.
        execute(Command::new("strip").arg("-o").arg(binary).arg(server.with_file_name(program)))?;
    }
    let made_at = output(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]))?;
    Ok(Release { version, target: build.target, binaries, made_at })
}

fn described(binary: &Path) -> anyhow::Result<Build> {
    let told = output(Command::new(binary).args(["version", "--json"]))?;
    serde_json::from_str(&told)
        .with_context(|| format!("`{} version --json` printed unexpected output", binary.display()))
}

/// Returns the requested version if it belongs to this binary: its own, or its own with a package suffix (`0.1.0-1`,
/// `0.1.0~rc1`, `0.1.0+local`).
fn labelled(version: &str, build: &Build, binary: &Path) -> anyhow::Result<String> {
    let added = version.strip_prefix(build.version.as_str());
    let is_own = added.is_some_and(|added| added.is_empty() || added.starts_with(['-', '~', '+']));
    ensure!(
        is_own,
        "`--version` says {version}, and `{} version` says {}: leave `--version` out, or build a binary of that version \
         (`version` in Cargo.toml, or a tag)",
        binary.display(),
        build.version
    );
    Ok(version.to_owned())
}

/// Returns the version of the binary if its commit has a tag. Otherwise returns a pre-release version, which is older
/// than the next release.
fn version(root: &Path, build: &Build) -> anyhow::Result<String> {
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(root).args(arguments));
    let describe = ["describe", "--tags", "--exact-match", "--match", "v[0-9]*", "HEAD"];
    if let Ok(tag) = git(&describe) {
        let tagged = tag.trim_start_matches('v');
        ensure!(tagged == build.version, "the tag is {tagged}, but the binary is {}", build.version);
        let package = package_version(root)?;
        ensure!(
            tagged == package,
            "the tag is {tagged}, but Cargo.toml has {package}, which source archives use"
        );
        return Ok(build.version.clone());
    }
    let commits = git(&["rev-list", "--count", "HEAD"])?;
    let commit = build.commit.as_deref().unwrap_or("debug");
    Ok(format!("{}~{commits}.{commit}", build.version))
}

fn package_version(root: &Path) -> anyhow::Result<String> {
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.context("the workspace has no version")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: &str, is_own: bool) {
        let build = Build {
            version: "0.1.0".to_owned(),
            commit: None,
            target: "x86_64-unknown-linux-gnu".to_owned(),
        };
        let outcome = labelled(asked, &build, Path::new("bin/larder"));
        assert_eq!(outcome.is_ok(), is_own, "{asked}");
        if let Err(error) = outcome {
            let expected = format!("`--version` says {asked}, and `bin/larder version` says 0.1.0: ");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_version_that_is_asked_for_is_one_of_the_binary() {
        ["0.1.0", "0.1.0-1", "0.1.0~rc1", "0.1.0+local"].into_iter().for_each(|asked| check(asked, true));
        ["0.2.0", "0.1.01", "0.1.0.1", "0.1", "9:0.1.0", ""]
            .into_iter()
            .for_each(|asked| check(asked, false));
    }
}
