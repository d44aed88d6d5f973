//! Builds a release: the binaries with their files, as an archive and as a Debian package, lists of components, and
//! checksums.
//!
//! `binary` finds the programs and their version; `stage` lays out an installation in a folder, with `documents`;
//! `debian` and the archive pack it; `sbom` lists the crates. A binary reports its own version. `training` makes the
//! profile for the build of the server.

mod binary;
mod debian;
mod documents;
pub mod sbom;
mod stage;
mod training;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use cargo_metadata::MetadataCommand;

use crate::tool::{execute, output};
use binary::{PROGRAMS, Release};

/// Options of a release.
#[derive(Debug, Default)]
pub struct Options {
    /// A server that is already built and, for example, tested; the other programs are in the same folder. If absent,
    /// all programs are built.
    pub binary: Option<PathBuf>,
    /// The profile for the build of the server. If absent, training makes one.
    pub profile: Option<PathBuf>,
    /// The version of the packages: the binary's version, optionally with a suffix.
    pub version: Option<String>,
    /// Folder of the artefacts; by default `release` in the target folder.
    pub out: Option<PathBuf>,
}

impl Options {
    /// Parses the arguments of `cargo xtask release`.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is unknown, or lacks its value.
    pub fn parse(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { anyhow::bail!("{} lacks its value", pair[0]) };
            match *name {
                "--binary" => options.binary = Some(PathBuf::from(value)),
                "--profile" => options.profile = Some(PathBuf::from(value)),
                "--version" => options.version = Some((*value).to_owned()),
                "--out" => options.out = Some(PathBuf::from(value)),
                name => anyhow::bail!("{name} is unknown: use --binary, --profile, --version or --out"),
            }
        }
        let is_clear = options.binary.is_none() || options.profile.is_none();
        anyhow::ensure!(is_clear, "`--profile` has no effect on a built `--binary`: leave one of them out");
        Ok(options)
    }
}

/// Makes all artefacts; returns lines to print.
///
/// # Errors
///
/// Returns an error if the release doesn't build, a tool is missing, or the version of a tag differs from the
/// package's.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<Vec<String>> {
    let metadata =
        MetadataCommand::new().current_dir(root).no_deps().exec().context("cargo metadata failed")?;
    let target = metadata.target_directory.as_std_path();
    let out = options.out.clone().unwrap_or_else(|| target.join("release-artefacts"));
    let out = std::path::absolute(out)?;
    fs::create_dir_all(&out)?;
    let work = target.join("release-work");
    stage::empty(&work)?;
    let (server, profile) = match &options.binary {
        Some(binary) => (std::path::absolute(binary)?, None),
        None => training::build(root, target, options.profile.as_deref())
            .map(|(server, by)| (server, Some(by)))?,
    };
    let release = binary::prepare(root, &server, options.version.as_deref(), &work)?;
    let installation = work.join(format!("larder-{}-{}", release.version, release.target));
    stage::lay_out(root, &release.binaries, &installation)?;
    let mut files =
        vec![archive(&release, &installation, &out)?, debian::pack(root, &release, &installation, &out)?];
    for program in PROGRAMS {
        files.push(bill(root, program, &release, &out)?);
    }
    let schema = format!("larder-{}-config.schema.json", release.version);
    fs::copy(installation.join(stage::SCHEMA), out.join(&schema))?;
    files.push(schema);
    if let Some(profile) = profile {
        let name = format!("larder-{}-{}.profdata", release.version, release.target);
        fs::copy(&profile, out.join(&name)).with_context(|| format!("cannot copy {}", profile.display()))?;
        files.push(name);
    }
    let sums = checksums(&out, &files)?;
    Ok(files.iter().chain([&sums]).map(|name| format!("release: {}", out.join(name).display())).collect())
}

/// Packs the installation as an archive with one top-level folder. The archive is reproducible from the same commit,
/// compiler and profile.
fn archive(release: &Release, installation: &Path, out: &Path) -> anyhow::Result<String> {
    let folder = installation.file_name().context("it has a name")?.to_string_lossy().into_owned();
    let name = format!("{folder}.tar.gz");
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--use-compress-program=gzip -n -6",
    ]);
    tar.arg(format!("--mtime=@{}", release.made_at)).arg("-cf").arg(out.join(&name));
    tar.arg("-C").arg(installation.with_file_name("")).arg(&folder);
    execute(&mut tar)?;
    Ok(name)
}

fn bill(root: &Path, program: &str, release: &Release, out: &Path) -> anyhow::Result<String> {
    let name = format!("{program}-{}-{}.cdx.json", release.version, release.target);
    let bill = sbom::of_binary(root, program, &release.version, &release.target)?;
    fs::write(out.join(&name), serde_json::to_string_pretty(&bill)? + "\n")?;
    Ok(name)
}

fn checksums(out: &Path, files: &[String]) -> anyhow::Result<String> {
    let sums = output(Command::new("sha256sum").current_dir(out).args(files))?;
    fs::write(out.join(CHECKSUMS), sums + "\n")?;
    Ok(CHECKSUMS.to_owned())
}

const CHECKSUMS: &str = "SHA256SUMS";
