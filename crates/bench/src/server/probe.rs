//! The cost of a server's processes and core during a load.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use procfs::process::{self, Process};
use procfs::{CurrentSI as _, KernelStats};
use rustix::param::clock_ticks_per_second;

use super::ServerError;
use super::processes::{self, ProcessStat};
use crate::result::ServerCost;

/// The server to watch: processes with all their descendants, and a core.
#[derive(Clone, Debug, Default)]
pub struct ServerProbe {
    pids: Vec<u32>,
    core: Option<usize>,
}

/// A running measurement.
#[derive(Debug)]
pub struct Measuring {
    core: Option<usize>,
    core_ticks: u64,
    others_ticks: u64,
    family: Option<Watched>,
}

/// The cost between the beginning and the end of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// User and system time of the processes.
    pub process_cpu_us: Option<f64>,
    /// Time during which the core wasn't idle.
    pub core_busy_us: Option<f64>,
    /// Sum of the peak resident memory of each process.
    pub peak_rss_bytes: Option<u64>,
    /// Time of processes that are neither watched nor descendants of this one, plus time stolen by the host.
    pub others_cpu_us: Option<f64>,
}

impl ServerProbe {
    /// Watches these processes with all their descendants, and this core. Both are optional.
    ///
    /// # Errors
    /// Returns an error if there is no such process or core.
    pub fn new(pids: &[u32], core: Option<usize>) -> Result<Self, ServerError> {
        for &pid in pids {
            process(pid).ok_or(ServerError::NoProcess { pid })?;
        }
        core.map_or(Ok(0), core_ticks)?;
        Ok(Self { pids: pids.to_vec(), core })
    }

    /// Begins the measurement.
    ///
    /// # Errors
    /// Returns an error if a process has ended.
    pub fn begin(&self) -> Result<Measuring, ServerError> {
        let family = if self.pids.is_empty() { None } else { Some(Watched::begin(&self.pids)?) };
        let others_ticks = family.as_ref().map_or(Ok(0), |watched| others_ticks(&watched.roots))?;
        let core_ticks = self.core.map_or(Ok(0), core_ticks)?;
        Ok(Measuring { core: self.core, core_ticks, others_ticks, family })
    }
}

impl Measuring {
    /// Ends the measurement.
    ///
    /// # Errors
    /// Returns an error if a process ended during the measurement, since its cost is then unknown.
    pub fn end(self) -> Result<Spent, ServerError> {
        // Read first, since reading the other figures costs CPU time, possibly on this core.
        let core_busy_us =
            self.core.map(core_ticks).transpose()?.map(|ticks| us(ticks.saturating_sub(self.core_ticks)));
        let others = self.family.as_ref().map(|watched| others_ticks(&watched.roots)).transpose()?;
        let family = self.family.map(Watched::end).transpose()?;
        Ok(Spent {
            process_cpu_us: family.map(|(cpu_us, _)| cpu_us),
            core_busy_us,
            peak_rss_bytes: family.map(|(_, peak_bytes)| peak_bytes),
            others_cpu_us: others.map(|ticks| us(ticks.saturating_sub(self.others_ticks))),
        })
    }
}

impl Spent {
    /// Returns the cost per request. All figures are absent if there were no requests.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no run has 2^52 requests")]
    pub fn per_request(self, requests: u64) -> ServerCost {
        let share =
            |total_us: Option<f64>| total_us.filter(|_| requests > 0).map(|total| total / requests as f64);
        ServerCost {
            process_cpu_us_per_request: share(self.process_cpu_us),
            core_busy_us_per_request: share(self.core_busy_us),
            peak_rss_bytes: self.peak_rss_bytes,
        }
    }
}

/// Watched processes.
#[derive(Debug)]
struct Watched {
    roots: Vec<u32>,
    /// Figures of each process when the watch began. Processes that start later aren't in the map, and count from zero.
    begin: BTreeMap<u32, ProcessStat>,
}

impl Watched {
    fn begin(roots: &[u32]) -> Result<Self, ServerError> {
        let begin = members(all_processes()?, &roots.iter().copied().collect());
        let begin = begin.into_iter().map(|process| (process.pid, process)).collect();
        Ok(Self { roots: roots.to_vec(), begin })
    }

    /// Returns CPU time in microseconds and peak memory in bytes.
    fn end(self) -> Result<(f64, u64), ServerError> {
        let processes = all_processes()?;
        // The number of an ended process may have been reused.
        let start_of = |pid| self.begin.get(&pid).map(|process| process.start_ticks);
        let still = processes.iter().filter(|process| start_of(process.pid) == Some(process.start_ticks));
        let known: BTreeSet<u32> = still.map(|process| process.pid).collect();
        if let Some(&pid) = self.roots.iter().find(|pid| !known.contains(pid)) {
            return Err(ServerError::NoProcess { pid });
        }
        let end = members(processes, &known);
        let peak_bytes = end.iter().filter_map(|process| high_water_bytes(process.pid)).sum();
        Ok((us(spent_ticks(&self.begin, &end)), peak_bytes))
    }
}

/// The known processes and all their descendants.
fn members(mut processes: Vec<ProcessStat>, known: &BTreeSet<u32>) -> Vec<ProcessStat> {
    let family = processes::family(&processes, known);
    processes.retain(|process| family.contains(&process.pid));
    processes
}

/// CPU time of a family between two readings. The time of an ended child counts for the parent that waited for it, so sums are
/// compared instead of single processes.
fn spent_ticks(begin: &BTreeMap<u32, ProcessStat>, end: &[ProcessStat]) -> u64 {
    let sum_begin: u64 = begin.values().map(|process| process.cpu_ticks).sum();
    let sum_end: u64 = end.iter().map(|process| process.cpu_ticks).sum();
    sum_end.saturating_sub(sum_begin)
}

/// Returns the ticks of all other processes, plus the ticks stolen by the host.
fn others_ticks(roots: &[u32]) -> Result<u64, ServerError> {
    let own = roots.iter().copied().chain([std::process::id()]).collect();
    let others = processes::others_ticks(&all_processes()?, &own);
    Ok(others + kernel_stats()?.total.steal.unwrap_or(0))
}

/// All visible processes. A process that ends during the scan is left out.
pub(super) fn all_processes() -> Result<Vec<ProcessStat>, ServerError> {
    let processes = process::all_processes();
    let processes = processes.map_err(|error| unreadable("/proc", io::Error::other(error)))?;
    Ok(processes.filter_map(|process| Some(process.ok()?.stat().ok()?.into())).collect())
}

/// The process with this number, if it exists.
fn process(pid: u32) -> Option<Process> {
    Process::new(pid.try_into().ok()?).ok()
}

/// Peak resident memory of a process. `None` for a zombie, which has no memory.
fn high_water_bytes(pid: u32) -> Option<u64> {
    Some(process(pid)?.status().ok()?.vmhwm? * 1024)
}

/// Memory of a process and its descendants. Memory that they share is counted once.
///
/// # Errors
/// Returns an error if the process doesn't exist, or its memory isn't readable.
pub fn memory_bytes(pid: u32) -> Result<u64, ServerError> {
    let family = processes::family(&all_processes()?, &BTreeSet::from([pid]));
    let of_one = |pid| {
        let maps = process(pid)?.smaps_rollup().ok()?.memory_map_rollup;
        maps.iter().map(|map| map.extension.map.get("Pss")).sum::<Option<u64>>()
    };
    family.into_iter().map(|pid| of_one(pid).ok_or(ServerError::NoProcess { pid })).sum()
}

fn core_ticks(core: usize) -> Result<u64, ServerError> {
    let cores = kernel_stats()?.cpu_time;
    let last = cores.len().saturating_sub(1);
    cores.get(core).map(processes::busy_ticks).ok_or(ServerError::NoCore { core, last })
}

fn kernel_stats() -> Result<KernelStats, ServerError> {
    KernelStats::current().map_err(|error| unreadable("/proc/stat", io::Error::other(error)))
}

fn unreadable(path: impl AsRef<Path>, source: io::Error) -> ServerError {
    ServerError::Proc { path: path.as_ref().to_owned(), source }
}

#[expect(clippy::cast_precision_loss, reason = "no process runs for 2^52 ticks")]
fn us(ticks: u64) -> f64 {
    ticks as f64 * 1e6 / clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn own_work_is_measured() {
        let probe = ServerProbe::new(&[std::process::id()], Some(0)).expect("we run");
        let measuring = probe.begin().expect("we run");
        let before = own_ticks();
        wait_until(|| own_ticks() >= before + 10);
        let spent = measuring.end().expect("we still run");
        assert!(spent.process_cpu_us >= Some(us(10)), "{spent:?}");
        assert!(spent.core_busy_us.is_some());
        assert!(spent.peak_rss_bytes > Some(1 << 20), "{spent:?}");
        assert!(spent.others_cpu_us.is_some());
        let cost = spent.per_request(10);
        assert_eq!(cost.process_cpu_us_per_request, spent.process_cpu_us.map(|us| us / 10.0));
        assert_eq!(spent.per_request(0).process_cpu_us_per_request, None);
    }

    #[test]
    fn children_count_while_they_run_and_after() {
        let member = |pid, cpu_ticks| ProcessStat { pid, parent: 1, cpu_ticks, start_ticks: 0 };
        let begin = BTreeMap::from([(2, member(2, 50)), (3, member(3, 10))]);
        assert_eq!(spent_ticks(&begin, &[member(2, 60), member(3, 30)]), 30);
        assert_eq!(spent_ticks(&begin, &[member(2, 90)]), 30, "its parent waited for 3, which had 30");
        assert_eq!(spent_ticks(&begin, &[member(2, 60), member(3, 10), member(4, 5)]), 15, "4 came later");
    }

    #[test]
    fn memory_is_that_of_all_descendants() {
        // Children of other tests may end while they are measured.
        wait_until(|| memory_bytes(std::process::id()).is_ok_and(|bytes| bytes > 1 << 20));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("it starts");
        wait_until(|| memory_bytes(child.id()).is_ok_and(|bytes| bytes > 0));
        let family =
            processes::family(&all_processes().expect("/proc"), &BTreeSet::from([std::process::id()]));
        assert!(family.contains(&child.id()));
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(matches!(memory_bytes(u32::MAX), Err(ServerError::NoProcess { .. })));
    }

    #[test]
    fn nothing_is_asked_for_nothing_is_measured() {
        let probe = ServerProbe::new(&[], None).expect("nothing is looked for");
        let spent = probe.begin().expect("nothing").end().expect("nothing");
        assert_eq!(spent, Spent::default());
    }

    #[test]
    fn unknown_process_and_core_are_named() {
        let error = ServerProbe::new(&[u32::MAX], None).expect_err("numbers end before that");
        assert_eq!(error.to_string(), format!("there is no process {}", u32::MAX));
        let error = ServerProbe::new(&[], Some(9999)).expect_err("not that many");
        assert!(
            error.to_string().starts_with("there is no core 9999; this machine has the cores 0 to "),
            "{error}"
        );
    }

    fn own_ticks() -> u64 {
        let stat = process(std::process::id()).and_then(|process| process.stat().ok()).expect("we run");
        ProcessStat::from(stat).cpu_ticks
    }

    /// Spins, so that CPU time is spent.
    fn wait_until(condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < Duration::from_secs(30), "no time is spent");
        }
    }
}
