//! Settings of the system. A fact is absent if its file doesn't exist, as in a container or with another kernel.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Settings of the system that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) somaxconn: Option<u64>,
    pub(crate) syn_backlog: Option<u64>,
    /// Limit of this process; `None` means no limit.
    pub(crate) open_files_max: Option<u64>,
    pub(crate) receive_buffer_bytes_max: Option<u64>,
    pub(crate) send_buffer_bytes_max: Option<u64>,
    /// The selected mode of transparent huge pages.
    pub(crate) huge_pages: Option<String>,
    pub(crate) overcommit: Option<u64>,
    /// Memory of the machine, or of the control group if that has less.
    pub(crate) memory_bytes: Option<u64>,
}

impl Facts {
    /// Reads all facts.
    pub(crate) fn read() -> Self {
        let number = |name: &str| last_number(&text(&format!("/proc/sys/{name}"))?);
        Self {
            somaxconn: number("net/core/somaxconn"),
            syn_backlog: number("net/ipv4/tcp_max_syn_backlog"),
            open_files_max: getrlimit(Resource::Nofile).maximum,
            receive_buffer_bytes_max: number("net/ipv4/tcp_rmem"),
            send_buffer_bytes_max: number("net/ipv4/tcp_wmem"),
            huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled").as_deref().and_then(chosen),
            overcommit: number("vm/overcommit_memory"),
            memory_bytes: memory_bytes(),
        }
    }
}

/// Raises the soft limit of open files to the hard limit.
pub(crate) fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

/// Returns the number of files that this process may still open, or `None` if there is no limit or the system doesn't
/// report it.
pub(crate) fn open_files_left() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile).current?;
    match std::fs::read_dir("/proc/self/fd") {
        // The open folder itself takes one descriptor.
        Ok(open) => Some(limit.saturating_sub(open.count() as u64 - 1)),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::MFILE) => Some(0),
        Err(_) => None,
    }
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns the last of the three sizes of a buffer (minimum, default, maximum), or the only number.
fn last_number(text: &str) -> Option<u64> {
    text.split_whitespace().next_back()?.parse().ok()
}

/// Returns the word in brackets.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn memory_bytes() -> Option<u64> {
    let machine = text("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim();
        Some(line.trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
    });
    let group = text("/proc/self/cgroup").as_deref().and_then(group_limit_bytes);
    machine.into_iter().chain(group).min()
}

/// Returns the lowest limit of the control group and its ancestors (version 2).
fn group_limit_bytes(groups: &str) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(path);
    let folders = folder.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    folders
        .filter_map(|folder| std::fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(last_number("4096\n"), Some(4096));
        assert_eq!(last_number("4096\t131072\t6291456\n"), Some(6_291_456));
        assert_eq!(last_number(""), None);
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("none"), None);
    }
}
