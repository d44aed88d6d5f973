//! An installation in a folder, as it stands below `/`: what the archive and the package have in common.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::tool::{execute, output};

/// Files of the repository, where they go, and their mode.
const FILES: [(&str, &str, u32); 12] = [
    ("deploy/systemd/larder.service", "usr/lib/systemd/system/larder.service", 0o644),
    ("deploy/systemd/larder.socket", "usr/lib/systemd/system/larder.socket", 0o644),
    ("deploy/systemd/larder-kv.service", "usr/lib/systemd/system/larder-kv.service", 0o644),
    ("deploy/debian/larder.toml", "etc/larder/larder.toml", 0o644),
    ("deploy/debian/kv.toml", "etc/larder/kv.toml", 0o644),
    ("deploy/sysctl.d/larder.conf", "usr/share/doc/larder/examples/sysctl.conf", 0o644),
    ("config/larder.toml", "usr/share/doc/larder/examples/larder.toml", 0o644),
    ("README.md", "usr/share/doc/larder/README.md", 0o644),
    ("CHANGELOG.md", "usr/share/doc/larder/CHANGELOG.md", 0o644),
    ("SECURITY.md", "usr/share/doc/larder/SECURITY.md", 0o644),
    ("LICENSE-APACHE", "usr/share/doc/larder/LICENSE-APACHE", 0o644),
    ("LICENSE-MIT", "usr/share/doc/larder/LICENSE-MIT", 0o644),
];

/// Shells, and where they look for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/larder"),
    ("zsh", "usr/share/zsh/vendor-completions/_larder"),
    ("fish", "usr/share/fish/vendor_completions.d/larder.fish"),
];

/// Puts everything in its place. The binary writes its manual pages and completions itself.
pub(super) fn lay_out(root: &Path, binary: &Path, installation: &Path) -> anyhow::Result<()> {
    put(binary, &installation.join("usr/bin/larder"), 0o755)?;
    for (from, to, mode) in FILES {
        put(&root.join(from), &installation.join(to), mode)?;
    }
    let pages = installation.join("usr/share/man/man1");
    execute(Command::new(binary).args(["manual", "--out"]).arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        execute(Command::new("gzip").args(["-n", "-9"]).arg(page?.path()))?;
    }
    for (shell, to) in COMPLETIONS {
        let text = output(Command::new(binary).args(["completions", shell]))? + "\n";
        write(&installation.join(to), &text, 0o644)?;
    }
    Ok(())
}

fn put(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(to.with_file_name(""))?;
    fs::copy(from, to).with_context(|| format!("{} can't be copied", from.display()))?;
    set_mode(to, mode)
}

/// Writes a file, and the folders that lead to it.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(path.with_file_name(""))?;
    fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))?;
    set_mode(path, mode)
}

fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// A folder with nothing in it.
pub(super) fn empty(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}
