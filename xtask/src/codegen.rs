//! The generated pages of `docs/reference`.
//!
//! The tables stand in the binaries; `larder reference --out DIR` prints them into a folder, `larder-bench schema` prints its own. This
//! module builds the binaries, lets them print, and writes or compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use cargo_metadata::MetadataCommand;

use crate::tool::{execute, output};

/// What to do with the generated pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codegen {
    /// Compare with the tree.
    Check,
    /// Put them into the tree.
    Write,
}

const PAGES: &str = "docs/reference";

/// Generates the pages of the repository at `root`; answers with lines for people.
///
/// # Errors
///
/// When a binary does not build or run, and, for [`Codegen::Check`], when pages differ.
pub fn run(root: &Path, codegen: Codegen) -> anyhow::Result<Vec<String>> {
    let target = target_folder(root)?;
    let generated = target.join("codegen");
    empty_folder(&generated)?;
    execute(Command::new(build(root, &target, "larder")?).arg("reference").arg("--out").arg(&generated))?;
    let schema = output(Command::new(build(root, &target, "larder-bench")?).arg("schema"))?;
    fs::write(generated.join("bench-report.schema.json"), schema + "\n")?;
    let differing = differing_pages(&generated, &root.join(PAGES))?;
    match codegen {
        Codegen::Write => write(&generated, &root.join(PAGES), &differing),
        Codegen::Check if differing.is_empty() => Ok(vec![format!("codegen: {PAGES} is up to date")]),
        Codegen::Check => {
            let names: Vec<String> = differing.iter().map(|name| format!("{PAGES}/{name}")).collect();
            bail!("codegen: out of date: {}; run `cargo xtask codegen`", names.join(", "))
        }
    }
}

fn target_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let metadata =
        MetadataCommand::new().current_dir(root).no_deps().exec().context("cargo metadata failed")?;
    Ok(metadata.target_directory.into_std_path_buf())
}

fn build(root: &Path, target: &Path, binary: &str) -> anyhow::Result<PathBuf> {
    execute(Command::new("cargo").current_dir(root).args(["build", "--quiet", "--package", binary]))?;
    Ok(target.join("debug").join(binary))
}

fn empty_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    Ok(())
}

/// The generated pages that the tree lacks or has with other content, by name.
///
/// # Errors
///
/// When the folder of generated pages cannot be read or holds none.
pub fn differing_pages(generated: &Path, pages: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(generated)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    anyhow::ensure!(!names.is_empty(), "no pages were generated in {}", generated.display());
    names.sort();
    names.retain(|name| fs::read(generated.join(name)).ok() != fs::read(pages.join(name)).ok());
    Ok(names)
}

fn write(generated: &Path, pages: &Path, differing: &[String]) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(pages)?;
    for name in differing {
        fs::copy(generated.join(name), pages.join(name)).with_context(|| format!("cannot write {name}"))?;
    }
    let written = differing.iter().map(|name| format!("codegen: wrote {PAGES}/{name}")).collect();
    Ok(written)
}
