//! Whether a data set could be saved: asked when somebody reads the answer, because at the end it would be lost.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};

use super::Scope;
use crate::config::format_size;
use crate::config::tree::Table;

/// The path, whatever is wrong with it.
pub(super) fn save_file(scope: &mut Scope<'_>, table: &Table) -> Option<PathBuf> {
    let (node, path) = (table.node("save_file")?, scope.path(table, "save_file")?);
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    if let Err(message) = check_place(&path, folder) {
        scope.error(node, message);
        return Some(path);
    }
    let bytes_max = table.number("maxmemory");
    match free_bytes(folder) {
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

fn check_place(path: &Path, folder: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Err(format!("{} is a directory", path.display()));
    }
    if !folder.is_dir() {
        return Err(format!("the directory {} doesn't exist", folder.display()));
    }
    accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|error| format!("no file can be written in {}: {error}", folder.display()))
}

/// None where the system does not say.
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}
