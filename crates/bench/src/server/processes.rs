//! Figures of processes and cores: pure arithmetic, no file access.

use std::collections::BTreeSet;

use procfs::CpuTime;
use procfs::process::Stat;

/// Figures of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// User and system time of the process and of the children that it waited for, in clock ticks.
    pub(crate) cpu_ticks: u64,
    /// Start time, in clock ticks after boot, which distinguishes processes that reuse a number.
    pub(crate) start_ticks: u64,
}

impl From<Stat> for ProcessStat {
    fn from(stat: Stat) -> Self {
        Self {
            pid: stat.pid.unsigned_abs(),
            parent: stat.ppid.unsigned_abs(),
            cpu_ticks: stat.utime + stat.stime + (stat.cutime + stat.cstime).unsigned_abs(),
            start_ticks: stat.starttime,
        }
    }
}

/// Clock ticks during which a core was not idle: all except `idle` and `iowait`. Guest time is already part of `user` and `nice`.
pub(crate) fn busy_ticks(core: &CpuTime) -> u64 {
    let interrupts = [core.irq, core.softirq, core.steal].into_iter().flatten().sum::<u64>();
    core.user + core.nice + core.system + interrupts
}

/// CPU time of processes that are neither in `own` nor descendants of `own`. The time of a process that ends between two readings
/// counts for the parent that waited for it.
pub(crate) fn others_ticks(processes: &[ProcessStat], own: &BTreeSet<u32>) -> u64 {
    let own = family(processes, own);
    let others = processes.iter().filter(|process| !own.contains(&process.pid));
    others.map(|process| process.cpu_ticks).sum()
}

/// `known`, and all descendants of its members.
pub(crate) fn family(processes: &[ProcessStat], known: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut family = known.clone();
    loop {
        let before = family.len();
        // A child may precede its parent, since process numbers wrap around: repeat until no new member is found.
        let children = processes.iter().filter(|process| family.contains(&process.parent));
        let children: Vec<u32> = children.map(|process| process.pid).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_is_found_in_any_order() {
        let process = |pid, parent| ProcessStat { pid, parent, cpu_ticks: 0, start_ticks: 0 };
        let processes = [process(3, 9), process(9, 5), process(5, 1), process(6, 1), process(7, 3)];
        assert_eq!(family(&processes, &BTreeSet::from([5])), BTreeSet::from([3, 5, 7, 9]));
        assert_eq!(family(&processes, &BTreeSet::from([6, 7])), BTreeSet::from([6, 7]));
        let spent = processes.map(|process| ProcessStat { cpu_ticks: 1 << process.pid, ..process });
        assert_eq!(others_ticks(&spent, &BTreeSet::from([5])), 1 << 6);
        assert_eq!(others_ticks(&spent, &BTreeSet::from([6, 9])), 1 << 5);
    }
}
