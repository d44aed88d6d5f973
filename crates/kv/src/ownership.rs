//! Owner and permissions of files. A save replaces a file with a new one, which gets the owner of the old
//! file: otherwise, one save by a server started as root would lock out a server that runs as another user.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use rustix::process::{getegid, geteuid};

/// Only the user of the server may read the data, unless the file's mode was changed on purpose.
pub(crate) const MODE: u32 = 0o600;
/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o777;
const ROOT: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    user: u32,
    group: u32,
    mode: u32,
}

impl Ownership {
    fn of(found: &Metadata) -> Self {
        Self { user: found.uid(), group: found.gid(), mode: found.mode() & PERMISSIONS }
    }

    /// Ownership of an existing file.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().filter(Metadata::is_file).map(|found| Self::of(&found))
    }

    /// Ownership for a file that root creates: that of the folder, because the folder's owner will use the
    /// file.
    fn of_new(folder: &Path) -> Option<Self> {
        fs::metadata(folder).ok().map(|found| Self { mode: MODE, ..Self::of(&found) })
    }

    /// Gives a new file to its owner; returns whether that was possible. Permissions for other users are set
    /// only if the file has the right owner.
    pub(crate) fn give(self, file: &File) -> io::Result<bool> {
        let own = Self::of(&file.metadata()?);
        let is_whose = (own.user, own.group) == (self.user, self.group);
        if !is_whose && fchown(file, Some(self.user), Some(self.group)).is_err() {
            return Ok(false);
        }
        if own.mode != self.mode {
            file.set_permissions(Permissions::from_mode(self.mode))?;
        }
        Ok(true)
    }

    /// Shell commands that restore the ownership of a replaced file. With the same owner and mode, the same
    /// users can read the new file.
    pub(crate) fn commands(self, path: &Path) -> String {
        let path = for_shell(&path.to_string_lossy());
        let chown = format!("sudo chown {}:{} {path}", self.user, self.group);
        if self.mode == MODE { chown } else { format!("{chown} && sudo chmod {:o} {path}", self.mode) }
    }

    /// Advice for a file whose permissions keep this process out.
    pub(crate) fn advice(self, path: &Path) -> String {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let path = for_shell(&path.to_string_lossy());
        if user == self.user {
            return format!("run `chmod u+rw {path}`");
        }
        let of = self.user;
        format!(
            "it belongs to user {of}, and this process runs as user {user}: \
            run larder as user {of}, change its owner with `sudo chown {user}:{group} {path}`"
        )
    }
}

/// Gives a file created by root to the owner of its folder. No other user may be able to replace the file
/// meanwhile.
pub(crate) fn give_to_user_of_folder(file: &File, folder: &Path) -> io::Result<()> {
    if file.metadata()?.uid() == ROOT
        && let Some(ownership) = Ownership::of_new(folder)
    {
        // Root may change the owner, except on file systems without owners.
        let _ = ownership.give(file)?;
    }
    Ok(())
}

/// Quotes a text as one word of a shell command.
fn for_shell(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        for (path, word) in [
            ("/var/lib/larder/kv.saved", "/var/lib/larder/kv.saved"),
            ("/srv/my cache/kv", "'/srv/my cache/kv'"),
            ("/srv/it's", r"'/srv/it'\''s'"),
            ("/srv/$(reboot);`id`", "'/srv/$(reboot);`id`'"),
            ("/srv/~a*\n", "'/srv/~a*\n'"),
            ("", "''"),
        ] {
            assert_eq!(for_shell(path), word);
        }
    }
}
