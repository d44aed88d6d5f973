//! Time and machine of a comparison.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Date, commit, hardware and software of a run.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) date: String,
    /// Commit of Larder, with `+` if there are uncommitted changes.
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) system: String,
    /// Title and first line of the version output of each program.
    pub(crate) versions: Vec<(String, String)>,
}

impl Machine {
    /// Reads the facts. A value that can't be determined is empty.
    pub(crate) fn look(repository: &Path, versions: Vec<(String, Command)>) -> Self {
        let bench::result::Machine { cpu, cores, kernel, .. } = bench::result::Machine::this();
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        Self {
            date: printed("date", &["--utc", "+%Y-%m-%d %H:%M UTC"]),
            commit: commit(repository),
            processor: cpu,
            cores,
            kernel,
            system: value(&release, "PRETTY_NAME").unwrap_or_default(),
            versions: versions.into_iter().map(|(title, command)| (title, first_line(command))).collect(),
        }
    }
}

fn commit(repository: &Path) -> String {
    let folder = repository.display().to_string();
    let commit = printed("git", &["-C", &folder, "rev-parse", "--short=12", "HEAD"]);
    // Ignores changes in `compare/results`: the comparison itself writes them, and they don't affect the measurements.
    let status = ["-C", &folder, "status", "--porcelain", "--", ".", ":!compare/results"];
    let changes = printed("git", &status);
    if changes.is_empty() { commit } else { format!("{commit}+") }
}

/// The first line of a program's output.
fn printed(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    first_line(command)
}

fn first_line(mut command: Command) -> String {
    command.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
    let Ok(output) = command.output() else { return String::new() };
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned()
}

/// The value of the first `name=value`.
fn value(text: &str, name: &str) -> Option<String> {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(found.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn values_by_name() {
        let release = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian 12\"\n";
        assert_eq!(value(release, "PRETTY_NAME").as_deref(), Some("Debian 12"));
        assert_eq!(value("", "x"), None);
    }
}
