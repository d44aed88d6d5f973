//! Memory and time used by a process, read from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::Service;

impl Service {
    /// Returns the resident memory in bytes, including anonymous files: they aren't mapped, so the resident size of the process
    /// doesn't include them, although they occupy memory.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[track_caller]
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:") + self.anonymous_file_bytes()
    }

    /// Returns the data of the process in memory, in bytes: pages that don't belong to a file, and anonymous files.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[track_caller]
    pub fn data_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:") + self.anonymous_file_bytes()
    }

    fn anonymous_file_bytes(&self) -> u64 {
        let open = fs::read_dir(format!("/proc/{}/fd", self.id())).expect("the process runs");
        let paths = open.filter_map(|entry| Some(entry.ok()?.path()));
        let is_anonymous =
            |path: &PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:"));
        // A file that was closed in between has no metadata.
        let files = paths.filter(is_anonymous).filter_map(|path| fs::metadata(path).ok());
        files.map(|file| file.blocks() * 512).sum()
    }

    /// Returns the peak of resident memory in bytes, without anonymous files.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[track_caller]
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// Returns the time that `done` takes, without the time in which a thread of the process, or the calling thread, was ready but had
    /// no core. So the load of the machine doesn't count, but sleeping or waiting for a lock does.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[track_caller]
    pub fn waited_for(&self, done: impl FnOnce()) -> Duration {
        let (begin, before) = (Instant::now(), self.delays());
        let own = delay(Path::new("/proc/thread-self/schedstat"));
        done();
        let (waited, after) = (begin.elapsed(), self.delays());
        let of_thread = |(thread, delay): (&PathBuf, &Duration)| {
            delay.saturating_sub(before.get(thread).copied().unwrap_or_default())
        };
        let longest = after.iter().map(of_thread).max().unwrap_or_default();
        let own = delay(Path::new("/proc/thread-self/schedstat")).saturating_sub(own);
        waited.saturating_sub(longest + own)
    }

    /// Returns, for each thread of the process, the total time for which it was ready but had no core.
    #[track_caller]
    fn delays(&self) -> BTreeMap<PathBuf, Duration> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.id())).expect("the process runs");
        let threads = threads.filter_map(|entry| Some(entry.ok()?.path().join("schedstat")));
        threads
            .map(|thread| {
                let waited = delay(&thread);
                (thread, waited)
            })
            .collect()
    }

    #[track_caller]
    fn status_bytes(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux says so");
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("it is a number");
        kibibytes << 10
    }
}

/// Returns the time for which a thread was ready without a core: the second field, in nanoseconds. Zero if the thread has ended.
fn delay(schedstat: &Path) -> Duration {
    let text = fs::read_to_string(schedstat).unwrap_or_default();
    let nanoseconds = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}
