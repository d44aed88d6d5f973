//! The package for Debian and Ubuntu, made with `dpkg-deb`, which every Debian system has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::binary::Release;
use super::stage;
use crate::tool::execute;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Files that operators edit: an upgrade asks before it replaces one.
const CONFIGURATION: &str = "/etc/larder/kv.toml\n/etc/larder/larder.toml\n";

/// Packs the installation; returns the name of the file.
pub(super) fn pack(
    root: &Path,
    release: &Release,
    installation: &Path,
    out: &Path,
) -> anyhow::Result<String> {
    let architecture = architecture(&release.target)?;
    let folder = installation.with_file_name("debian");
    execute(Command::new("cp").arg("-a").arg(installation).arg(&folder))?;
    let control = folder.join("DEBIAN");
    stage::write(&folder.join("usr/share/doc/larder/copyright"), COPYRIGHT, 0o644)?;
    stage::write(&control.join("conffiles"), CONFIGURATION, 0o644)?;
    for script in SCRIPTS {
        let text = fs::read_to_string(root.join("deploy/debian").join(script))?;
        stage::write(&control.join(script), &text, 0o755)?;
    }
    let facts = Facts {
        version: &release.version,
        architecture,
        libc: newest_libc(&release.binaries)?,
        size_kib: size_bytes(&folder)? / 1024,
    };
    stage::write(&control.join("control"), &facts.control(), 0o644)?;
    let name = format!("larder_{}_{architecture}.deb", release.version);
    let mut pack = Command::new("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", &release.made_at).args(["--root-owner-group", "-Zgzip", "-z6", "--build"]);
    execute(pack.arg(&folder).arg(out.join(&name)))?;
    Ok(name)
}

struct Facts<'a> {
    version: &'a str,
    architecture: &'a str,
    libc: String,
    size_kib: u64,
}

impl Facts<'_> {
    fn control(&self) -> String {
        let Self { version, architecture, libc, size_kib } = self;
        format!(
            "Package: larder\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: Larder <maintainers@larder.invalid>\n\
             Installed-Size: {size_kib}\nDepends: libc6 (>= {libc}), libgcc-s1, passwd\nRecommends: ca-certificates\n\
             Section: web\nPriority: optional\nDescription: shared HTTP cache, and Redis-compatible cache server\n{DESCRIPTION}"
        )
    }
}

const DESCRIPTION: &str = " larder serve stands in front of origin servers and answers from memory where\n \
                           RFC 9111 allows it. larder kv keeps strings in memory for clients that speak\n \
                           the Redis protocol; both have units for systemd. larder-bench puts load on\n \
                           servers and reports the results.\n";

/// Returns Debian's name for the architecture of a target.
fn architecture(target: &str) -> anyhow::Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => bail!("no Debian package can be made for {target}"),
    }
}

/// Returns the newest version of the C library that one of the programs needs.
fn newest_libc(programs: &[PathBuf]) -> anyhow::Result<String> {
    let wanted =
        programs.iter().map(|program| libc_of(&fs::read(program)?)).collect::<anyhow::Result<Vec<_>>>()?;
    let newest = wanted.into_iter().max().context("there are programs")?;
    Ok(newest.iter().map(ToString::to_string).collect::<Vec<_>>().join("."))
}

/// Returns the newest version that a program needs, according to the version names in it.
fn libc_of(program: &[u8]) -> anyhow::Result<Vec<u32>> {
    let wanted = program.windows(LIBC.len()).enumerate().filter(|(_, window)| *window == LIBC);
    let versions = wanted.filter_map(|(at, _)| {
        let rest = &program[at + LIBC.len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let numbers: Option<Vec<u32>> = rest[..end]
            .split(|byte| *byte == b'.')
            .map(|part| str::from_utf8(part).ok()?.parse().ok())
            .collect();
        numbers
    });
    versions.max().context("the program doesn't name a version of the C library")
}

const LIBC: &[u8] = b"GLIBC_";

fn size_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() { size_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: larder

Files: *
Copyright: the authors of Larder
License: MIT or Apache-2.0
 The texts are LICENSE-MIT and LICENSE-APACHE in /usr/share/doc/larder. What is linked into the binaries, and under which licences, is in the
 lists of components (CycloneDX) that come with each release.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_by_number() {
        let program = b"..GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0GLIBC_2.17.1\0";
        assert_eq!(libc_of(program).expect("there are some"), [2, 34]);
        assert!(libc_of(b"GLIBC_PRIVATE\0").is_err());
    }

    #[test]
    fn processors_have_names_of_debian() {
        assert_eq!(architecture("aarch64-unknown-linux-gnu").expect("it is known"), "arm64");
        assert!(architecture("riscv64gc-unknown-linux-gnu").is_err());
    }
}
