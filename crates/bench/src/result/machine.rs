//! What the system says about the machine.

use std::fs;

use super::Machine;

impl Machine {
    /// The machine that this runs on. What the system does not tell stays empty.
    #[must_use]
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            cpu: cpu(&cpuinfo),
            cores: cores(&cpuinfo),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: kernel(&read("/proc/version")),
        }
    }
}

fn cpu(cpuinfo: &str) -> String {
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    name.map(|name| name.trim_start_matches([' ', '\t', ':']).trim().to_owned()).unwrap_or_default()
}

/// All of the machine, not only those that this process may use.
fn cores(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count()
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix("kB")).and_then(|kib| kib.trim().parse().ok());
    kib.unwrap_or(0_u64) * 1024
}

fn kernel(version: &str) -> String {
    version.split_whitespace().filter(|word| *word != "version").take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_understood() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: Example CPU @ 2.1GHz\n"), "Example CPU @ 2.1GHz");
        assert_eq!(cores("processor\t: 0\nprocessor\t: 1\n"), 2);
        assert_eq!(memory_bytes("MemTotal:        2048 kB\nMemFree: 1 kB\n"), 2048 * 1024);
        assert_eq!(kernel("Linux version 6.1.0-32-amd64 (someone) #1 SMP"), "Linux 6.1.0-32-amd64");
        assert_eq!((cpu(""), memory_bytes(""), kernel("")), (String::new(), 0, String::new()));
    }
}
