//! An installation in a folder, laid out as below `/`: the common part of the archive and the package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::binary::PROGRAMS;
use super::documents;
use crate::tool::{execute, output};

/// Files of the repository, with their destinations.
const FILES: [(&str, &str); 12] = [
    ("deploy/systemd/larder.service", "usr/lib/systemd/system/larder.service"),
    ("deploy/systemd/larder.socket", "usr/lib/systemd/system/larder.socket"),
    ("deploy/systemd/larder-kv.service", "usr/lib/systemd/system/larder-kv.service"),
    ("deploy/debian/larder.toml", "etc/larder/larder.toml"),
    ("deploy/debian/kv.toml", "etc/larder/kv.toml"),
    ("deploy/logrotate/larder", "usr/share/doc/larder/examples/logrotate"),
    ("deploy/sysctl.d/larder.conf", "usr/share/doc/larder/examples/sysctl.conf"),
    ("README.md", "usr/share/doc/larder/README.md"),
    ("CHANGELOG.md", "usr/share/doc/larder/CHANGELOG.md"),
    ("SECURITY.md", "usr/share/doc/larder/SECURITY.md"),
    ("LICENSE-APACHE", "usr/share/doc/larder/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/larder/LICENSE-MIT"),
];

/// Shells, with the folder of completions and the suffix of the file.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/", ""),
    ("zsh", "usr/share/zsh/vendor-completions/_", ""),
    ("fish", "usr/share/fish/vendor_completions.d/", ".fish"),
];

/// Writes all files.
pub(super) fn lay_out(root: &Path, binaries: &[PathBuf], installation: &Path) -> anyhow::Result<()> {
    for (program, binary) in PROGRAMS.iter().zip(binaries) {
        lay_out_program(program, binary, installation)?;
    }
    let reference = installation.with_file_name("reference");
    execute(Command::new(&binaries[0]).args(["reference", "--out"]).arg(&reference))?;
    put(&reference.join("config.schema.json"), &installation.join(SCHEMA), 0o644)?;
    let places = documents::places(root, &FILES)?;
    for (from, to) in &places {
        let (file, place) = (root.join(from), installation.join(to));
        match from.ends_with(".md") {
            true => write(&place, &documents::relinked(from, &fs::read_to_string(file)?, &places), 0o644)?,
            false => put(&file, &place, 0o644)?,
        }
    }
    let pages = fs::read_dir(installation.join(MANUAL))?;
    pages.into_iter().try_for_each(|page| execute(Command::new("gzip").args(["-n", "-9"]).arg(page?.path())))
}

/// Lays out a binary, and the manual pages and completions that it writes itself.
fn lay_out_program(program: &str, binary: &Path, installation: &Path) -> anyhow::Result<()> {
    put(binary, &installation.join("usr/bin").join(program), 0o755)?;
    execute(Command::new(binary).args(["manual", "--out"]).arg(installation.join(MANUAL)))?;
    for (shell, before, behind) in COMPLETIONS {
        let text = output(Command::new(binary).args(["completions", shell]))? + "\n";
        write(&installation.join(format!("{before}{program}{behind}")), &text, 0o644)?;
    }
    Ok(())
}

/// JSON schema of the configuration, for editors.
pub(super) const SCHEMA: &str = "usr/share/larder/config.schema.json";

const MANUAL: &str = "usr/share/man/man1";

fn put(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(to.with_file_name(""))?;
    fs::copy(from, to).with_context(|| format!("{} can't be copied", from.display()))?;
    set_mode(to, mode)
}

/// Writes a file, and creates its folders.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(path.with_file_name(""))?;
    fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))?;
    set_mode(path, mode)
}

fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Creates an empty folder.
pub(super) fn empty(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}
