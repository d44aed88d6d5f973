//! The context of all checks: values, files that keys name, and the list of problems.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use terminal::input_file::{self, Kind, SECRET_BYTES_MAX};

use crate::config::locate::Sources;
use crate::config::overrides::Purpose;
use crate::config::problem::Problems;
use crate::config::tree::{Node, Table};

/// The context of a check.
pub(super) struct Scope<'a> {
    pub(super) sources: &'a Sources,
    pub(super) problems: &'a mut Problems,
    pub(super) purpose: Purpose,
    pub(super) now: SystemTime,
}

impl Scope<'_> {
    pub(super) fn error(&mut self, node: &Node, message: impl Into<String>) {
        self.problems.error(&node.place, &node.path, message);
    }

    pub(super) fn warning(&mut self, node: &Node, message: impl Into<String>) {
        self.problems.warning(&node.place, &node.path, message);
    }

    /// Adds an error about a table as a whole.
    pub(super) fn error_in(&mut self, table: &Table, message: impl Into<String>) {
        self.problems.error(&table.place, &table.path, message);
    }

    pub(super) fn warning_in(&mut self, table: &Table, message: impl Into<String>) {
        self.problems.warning(&table.place, &table.path, message);
    }

    /// Adds an error for each of these keys that is given.
    pub(super) fn refuse(&mut self, table: &Table, keys: &[&str], message: &str) {
        keys.iter().filter_map(|key| table.given(key)).for_each(|node| self.error(node, message));
    }

    /// Reads two durations, of which the first must not be longer than the second. If only one of them is given, the default of the other
    /// is adjusted.
    pub(super) fn ordered(&mut self, table: &Table, shorter: &str, longer: &str) -> (Duration, Duration) {
        let (first, second) = (table.duration(shorter), table.duration(longer));
        match (table.given(shorter), table.given(longer)) {
            _ if first <= second => (first, second),
            (Some(node), Some(_)) => {
                self.error(node, format!("`{shorter}` must not be longer than `{longer}`"));
                (first, second)
            }
            (Some(_), None) => (first, first),
            (None, _) => (second, second),
        }
    }

    /// Returns the value, or adds a problem at `node`.
    pub(super) fn take<T>(&mut self, node: &Node, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.error(node, message)).ok()
    }

    /// Parses the text of a key, if the key has a value.
    pub(super) fn parsed<T>(
        &mut self,
        table: &Table,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let node = table.node(key)?;
        self.take(node, parse(node.as_text()))
    }

    /// Parses the texts in a list.
    pub(super) fn parsed_list<T>(
        &mut self,
        table: &Table,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        table.list(key).iter().filter_map(|node| self.take(node, parse(node.as_text()))).collect()
    }

    /// Parses the keys and texts in a map.
    pub(super) fn parsed_map<T>(
        &mut self,
        table: &Table,
        key: &str,
        parse: impl Fn(&str, &str) -> Result<T, String>,
    ) -> Vec<T> {
        let entries = table.map(key).iter();
        entries.filter_map(|(name, node)| self.take(node, parse(name, node.as_text()))).collect()
    }

    /// Returns the path in a value.
    pub(super) fn path(&self, node: &Node) -> PathBuf {
        self.sources.resolve(&node.place, node.as_text())
    }

    /// Warns of a secret file that everyone on the machine can read. Only `larder check` warns: the files of a running process may be on a
    /// file system without modes.
    pub(super) fn check_mode(&mut self, node: &Node) {
        let path = self.path(node);
        let mode = std::fs::metadata(&path).map(|metadata| metadata.permissions().mode());
        if self.purpose == Purpose::Look && mode.is_ok_and(|mode| mode & EVERYBODY_READS != 0) {
            let path = path.display();
            self.warning(node, format!("every user of this machine can read {path}: run `chmod o-r` on it"));
        }
    }

    /// Reads the file that a value names.
    pub(super) fn bytes(&mut self, node: &Node) -> Option<Vec<u8>> {
        self.read(node, FILE_BYTES_MAX)
    }

    fn read(&mut self, node: &Node, bytes_max: u64) -> Option<Vec<u8>> {
        let path = self.path(node);
        let bytes = input_file::read(&path, Kind::Regular, bytes_max);
        self.take(node, bytes.map_err(|error| format!("{} can't be read: {error}", path.display())))
    }

    /// Reads the secret in the first line of the file that a value names.
    pub(super) fn secret(&mut self, node: &Node) -> Option<Secret> {
        let bytes = self.read(node, SECRET_BYTES_MAX)?;
        self.check_mode(node);
        let path = self.path(node);
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().next().unwrap_or_default().trim_end();
        let visible = !line.is_empty() && line.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let secret = if visible {
            Ok(Secret(line.to_owned()))
        } else {
            Err(format!("the first line of {} must be the secret, in visible ASCII", path.display()))
        };
        self.take(node, secret)
    }
}

/// Text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    /// Returns the text itself, for the code that compares or sends it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Maximum size of a file. The certificates of all authorities that a system trusts are much smaller.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// `S_IROTH`.
const EVERYBODY_READS: u32 = 0o004;
