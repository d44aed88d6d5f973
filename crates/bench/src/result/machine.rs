//! Facts about the machine, as the system reports them.

use procfs::{CpuInfo, Current as _, Meminfo};
use rustix::system::uname;

use super::Machine;

impl Machine {
    /// The machine that this program runs on. Facts that the system doesn't report stay empty.
    #[must_use]
    pub fn this() -> Self {
        let (cpus, kernel) = (CpuInfo::current().ok(), uname());
        Self {
            cpu: cpus.as_ref().and_then(|cpus| cpus.model_name(0)).unwrap_or_default().to_owned(),
            // All cores of the machine, not only those that this process may use.
            cores: cpus.as_ref().map_or(0, CpuInfo::num_cores),
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
            kernel: [kernel.sysname(), kernel.release()].map(|name| name.to_string_lossy()).join(" "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_where_it_runs() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }
}
