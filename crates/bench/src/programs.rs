//! Locations of programs: Larder's own, which are installed in one directory, and third-party programs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Errors of finding `larder`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The variable doesn't name a file.
    #[error("LARDER names {}, which isn't a program", path.display())]
    Named { path: PathBuf },
    #[error("`larder` is neither in the directory of {} nor on the path: install it, or name it with LARDER=FILE", program.display())]
    Missing { program: PathBuf },
}

/// Finds `larder`: the program named by the variable `LARDER`, or else one in this program's directory, or else one on the path.
///
/// # Errors
/// Returns an error if none of these exists.
pub fn larder() -> Result<PathBuf, ProgramError> {
    larder_by(env::var_os("LARDER"), &own())
}

fn larder_by(named: Option<OsString>, own: &Path) -> Result<PathBuf, ProgramError> {
    let Some(path) = named.filter(|name| !name.is_empty()).map(PathBuf::from) else {
        return near(own, "larder").ok_or_else(|| ProgramError::Missing { program: own.to_owned() });
    };
    let found = if path.components().count() > 1 { Some(path.clone()) } else { on_path(&path) };
    found.filter(|found| found.is_file()).ok_or(ProgramError::Named { path })
}

/// Finds `larder-bench`: the program in this program's directory, or else one on the path. Falls back to the bare name, so that
/// starting it fails.
#[must_use]
pub fn larder_bench() -> PathBuf {
    let name = "larder-bench";
    near(&own(), name).unwrap_or_else(|| name.into())
}

fn own() -> PathBuf {
    env::current_exe().unwrap_or_default()
}

fn near(own: &Path, name: &str) -> Option<PathBuf> {
    Some(own.with_file_name(name)).filter(|file| file.is_file()).or_else(|| on_path(Path::new(name)))
}

/// Finds a program on the path or in the directories for daemons, which aren't on the path of every user.
pub(crate) fn on_path(name: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larder_is_named_or_beside() {
        #[track_caller]
        fn check(named: &str, own: &str, expected: Result<&str, &str>) {
            let found = larder_by(Some(named.into()), Path::new(own)).map_err(|error| error.to_string());
            match (&found, expected) {
                (Ok(path), Ok(end)) => assert!(path.ends_with(end), "{found:?}"),
                (Err(told), Err(part)) => assert!(told.contains(part), "{told}"),
                _ => panic!("{named}: {found:?}"),
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("larder-bench").display().to_string();
        check("sh", &own, Ok("sh"));
        check("/bin/sh", &own, Ok("/bin/sh"));
        check("/no/such/program", &own, Err("LARDER names /no/such/program, which isn't a program"));
        check("no-such-program", &own, Err("LARDER names no-such-program"));
        check("/bin", &own, Err("LARDER names /bin"));
        std::fs::write(folder.path().join("larder"), "").expect("a file");
        check("", &own, Ok(&folder.path().join("larder").display().to_string()));
    }
}
