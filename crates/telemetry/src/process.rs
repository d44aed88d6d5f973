//! Values about the process, read from `/proc` at scrape time. Unreadable values are left out.

use std::fs;

use crate::declarations::Metric;
use crate::exposition::Sample;

/// Ticks per second of the times in `/proc`: fixed by the kernel's interface, independent of its clock.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) fn collect(sample: &mut Sample) {
    if let Some(bytes) = read("/proc/self/status").as_deref().and_then(resident_bytes) {
        sample.add(Metric::ProcessResidentMemoryBytes, &[], bytes);
    }
    if let Some(seconds) = read("/proc/self/stat").as_deref().and_then(cpu_seconds) {
        sample.add(Metric::ProcessCpuSecondsTotal, &[], seconds);
    }
    if let Some(files) = read("/proc/self/limits").as_deref().and_then(files_max) {
        sample.add(Metric::ProcessMaxFds, &[], files);
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // One of the descriptors belongs to the listing of the directory itself.
        sample.add(Metric::ProcessOpenFds, &[], entries.count().saturating_sub(1) as u64);
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the soft limit, or `None` if there is none.
fn files_max(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Reads fields 14 and 15, counted after the program name, which may contain spaces and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11).map(|ticks| ticks.parse::<u64>().ok());
    let (user, system) = (times.next()??, times.next()??);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_cannot_shift_the_fields() {
        let stat = "7 (a ) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (x) S 1"), None);
    }

    #[test]
    fn the_soft_limit_of_files_counts() {
        let limits =
            "Limit  Soft Limit\nMax open files            1024                 524288               files\n";
        assert_eq!(files_max(limits), Some(1024));
        assert_eq!(files_max("Max open files            unlimited  unlimited  files\n"), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t  12 kB\n"), Some(12 * 1024));
        assert_eq!(resident_bytes("VmRSS: x kB"), None);
    }
}
