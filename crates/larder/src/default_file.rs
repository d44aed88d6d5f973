//! The configuration file of a command: the one that the command line names, or that of an installed server.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use terminal::output;

/// The configuration file argument of commands that run or check it.
#[derive(Args, Debug)]
#[group(id = "configuration", multiple = false)]
pub(crate) struct FileArguments {
    /// Configuration file (TOML)
    file: Option<PathBuf>,

    /// Configuration file, in place of FILE
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl FileArguments {
    /// Returns the file that the command line names.
    pub(crate) fn named(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }

    /// Returns the file that the command line names, else the first default file that exists. Logs the use of a default
    /// file, which is easy to overlook.
    pub(crate) fn or_default(&self, names: &[&str]) -> Option<PathBuf> {
        let found =
            || find(names).inspect(|file| output::note(&format!("configuration: {}", file.display())));
        self.named().map(Path::to_owned).or_else(found)
    }
}

/// Default file of the gateway.
pub(crate) const OF_GATEWAY: &[&str] = &["larder.toml"];

/// Default files of the cache server: its own file, as the package installs it, before one that may belong to a gateway
/// on the same machine.
pub(crate) const OF_KV: &[&str] = &["kv.toml", "larder.toml"];

/// Returns the first of these files that exists. A file in an unreadable folder counts as existing: reading it then
/// reports the error.
pub(crate) fn find(names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| path(name)).find(|file| file.try_exists().unwrap_or(true))
}

/// Returns the path in the service's configuration folder, if the service manager sets one.
pub(crate) fn path(name: &str) -> PathBuf {
    folder(env::var_os("CONFIGURATION_DIRECTORY")).join(name)
}

/// Returns the first folder of the list in the variable.
fn folder(variable: Option<OsString>) -> PathBuf {
    let first = variable.and_then(|list| env::split_paths(&list).next());
    first.filter(|folder| folder.is_absolute()).unwrap_or_else(|| PathBuf::from("/etc/larder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_service_goes_first() {
        #[track_caller]
        fn check(variable: Option<&str>, expected: &str) {
            assert_eq!(folder(variable.map(OsString::from)), Path::new(expected), "{variable:?}");
        }
        check(None, "/etc/larder");
        check(Some(""), "/etc/larder");
        check(Some("/srv/larder"), "/srv/larder");
        check(Some("/srv/larder:/srv/other"), "/srv/larder");
        check(Some("larder"), "/etc/larder");
    }
}
