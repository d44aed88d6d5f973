//! Checks that the data set can be saved: a failure at shutdown would lose it.

use std::error::Error as _;
use std::path::{Path, PathBuf};

use kv::SaveFile;
use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};

use super::scope::Scope;
use crate::config::format_size;
use crate::config::tree::Table;

/// Returns the path, even with problems; `None` if it is `off`.
pub(super) fn save_file(scope: &mut Scope<'_>, table: &Table) -> Option<PathBuf> {
    if table.text("save_file") == Some("off") {
        return None;
    }
    let node = table.node("save_file")?;
    let path = scope.path(node);
    let folder = match check_place(&path) {
        Ok(folder) => folder,
        Err(message) => {
            scope.error(node, message);
            return Some(path);
        }
    };
    let bytes_max = table.get("maxmemory");
    match free_bytes(&folder) {
        Some(0) => scope.error(node, format!("{} has no room left", folder.display())),
        Some(free) if free < bytes_max => {
            let free = format_size(free >> 20 << 20);
            let most = format_size(bytes_max);
            let message = format!(
                "{} has room for {free}: a save fails if the data needs more, and `maxmemory` allows {most}",
                folder.display()
            );
            scope.warning(node, message);
        }
        _ => {}
    }
    Some(path)
}

/// Returns the folder of the file if a file can be written there.
fn check_place(path: &Path) -> Result<PathBuf, String> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(format!("the directory {} doesn't exist", folder.display()));
    }
    let place = SaveFile::resolve(path).map_err(|error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })?;
    let folder = folder_of(&place).to_owned();
    accessat(CWD, &folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(|error| {
        format!("no file can be written in {}: {error}; `off` keeps nothing on disk", folder.display())
    })?;
    Ok(folder)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Returns the free space, or `None` if the system doesn't report it.
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}
