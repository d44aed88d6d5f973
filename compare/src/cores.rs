//! The time that a core was not idle, from `/proc/stat`.
//!
//! Not the CPU time of the server's process: part of the work for its packets is done by the kernel on its behalf,
//! in soft interrupts, and is in nobody's account.

use std::fs;

use anyhow::Context as _;

/// A reading of `/proc/stat`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Busy {
    jiffies: u64,
}

/// One jiffy of `/proc/stat` (USER_HZ is 100 on every Linux).
const JIFFY_US: u64 = 10_000;

impl Busy {
    /// # Errors
    /// When the system has no such core.
    pub(crate) fn now(core: usize) -> anyhow::Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let jiffies = busy_jiffies(&text, core)
            .with_context(|| format!("no core {core} in /proc/stat: the comparison needs two cores"))?;
        Ok(Self { jiffies })
    }

    /// Microseconds of work since this reading.
    ///
    /// # Errors
    /// As [`Busy::now`].
    pub(crate) fn elapsed_us(self, core: usize) -> anyhow::Result<f64> {
        let jiffies = Self::now(core)?.jiffies.saturating_sub(self.jiffies);
        Ok((jiffies * JIFFY_US) as f64)
    }
}

/// user, nice, system, irq, softirq and steal; not idle and iowait. Steal is what the host took: the server did not get
/// it, but wanted it, and without it a round on a busy host would look fast.
fn busy_jiffies(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    [0, 1, 2, 5, 6, 7].iter().map(|index| fields.get(*index)).sum()
}

#[cfg(test)]
mod tests {
    use super::busy_jiffies;

    #[test]
    fn idle_and_waiting_are_not_work() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 20 300 4000 50000 600000 7000000 80000000 0 0\ncpu10 1 0 0 0 0 0 0 0\n";
        assert_eq!(busy_jiffies(stat, 0), Some(87_600_321));
        assert_eq!(busy_jiffies(stat, 10), Some(1));
        assert_eq!(busy_jiffies(stat, 1), None);
    }
}
