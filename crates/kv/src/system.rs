//! Information from the system about this process.

use std::fs;

/// Resident memory of this process.
pub(crate) fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Resident memory without pages of files, such as those of the program, because the kernel decides how many of these stay in memory.
pub(crate) fn resident_data_bytes() -> Option<u64> {
    status_bytes("RssAnon:")
}

fn status_bytes(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Path of the running executable.
pub(crate) fn executable() -> Option<String> {
    Some(fs::read_link("/proc/self/exe").ok()?.display().to_string())
}

/// Release of the kernel.
pub(crate) fn release() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.trim().to_owned())
}

/// Memory of the machine.
pub(crate) fn total_memory_bytes() -> Option<u64> {
    let information = fs::read_to_string("/proc/meminfo").ok()?;
    let line = information.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// CPU time of this process in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

pub(crate) fn cpu_time_s() -> Option<CpuTime> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the process, in parentheses, may contain spaces.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok().map(|ticks| ticks / TICKS_PER_SECOND);
    Some(CpuTime { user: next()?, system: next()? })
}

/// Ticks per second in `/proc` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;
