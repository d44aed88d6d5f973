//! Which configuration file a command reads: the one that is named, or that of an installed server.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use terminal::output;

/// The configuration file, as the commands that run or check it take it.
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
    /// The file that the command line names.
    pub(crate) fn named(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }

    /// The file that is named, else the first default one that is there: said, because it is easily forgotten.
    pub(crate) fn or_default(&self, names: &[&str]) -> Option<PathBuf> {
        let found =
            || find(names).inspect(|file| output::note(&format!("configuration: {}", file.display())));
        self.named().map(Path::to_owned).or_else(found)
    }
}

/// What the gateway reads.
pub(crate) const OF_GATEWAY: &[&str] = &["larder.toml"];

/// What the cache server reads: its own file, as the package has it, goes before one that is perhaps that of a gateway beside it.
pub(crate) const OF_KV: &[&str] = &["kv.toml", "larder.toml"];

/// The first of these files that is there. One that nobody may look for is told of by who reads it.
pub(crate) fn find(names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| path(name)).find(|file| file.try_exists().unwrap_or(true))
}

/// In the folder of the service, where a service manager says which that is.
pub(crate) fn path(name: &str) -> PathBuf {
    folder(env::var_os("CONFIGURATION_DIRECTORY")).join(name)
}

/// The first of a list.
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
