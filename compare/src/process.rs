//! Peers as processes: pinned to a core, as an ordinary user, and never left behind.
//!
//! Each is the leader of a process group. It is stopped with all that descends from it when its [`Running`] is
//! dropped, when this program is interrupted ([`stop_on_signals`]), and by the kernel when this program is killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

use crate::output;
use crate::pause::pause;

/// The user that peers run as when this program runs as root: some refuse to be root, and what is measured should not
/// depend on it.
pub(crate) const USER: (&str, u32) = ("nobody", 65_534);

/// The processes that run now, and the folder of all their files.
pub(crate) struct Processes {
    leaders: Mutex<Vec<u32>>,
    folder: PathBuf,
}

/// How a program is started.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a str,
    pub(crate) arguments: &'a [String],
    pub(crate) core: usize,
    pub(crate) folder: &'a Path,
}

/// A process that is stopped when dropped.
pub(crate) struct Running {
    child: Child,
    processes: Arc<Processes>,
    log: PathBuf,
}

impl Processes {
    pub(crate) fn new(folder: &Path) -> Arc<Self> {
        Arc::new(Self { leaders: Mutex::default(), folder: folder.to_owned() })
    }

    /// # Errors
    /// When the program can't be started at all; whether it then works is seen by asking it.
    pub(crate) fn start(self: &Arc<Self>, launch: &Launch<'_>) -> anyhow::Result<Running> {
        let log = launch.folder.join("output.log");
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new("taskset");
        command.args(["-c", &launch.core.to_string(), "setpriv", "--pdeathsig", "KILL"]);
        if rustix::process::geteuid().is_root() {
            command.args([&format!("--reuid={}", USER.1), &format!("--regid={}", USER.1), "--clear-groups"]);
        }
        command.arg(launch.program).args(launch.arguments);
        command.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
        command.current_dir(launch.folder).process_group(0);
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
        let child = command.spawn().context("cannot start taskset (package util-linux)")?;
        self.leaders.lock().push(child.id());
        Ok(Running { child, processes: Arc::clone(self), log })
    }

    fn stop_all(&self) {
        let leaders = self.leaders.lock();
        leaders.iter().for_each(|leader| signal_all(&tree(*leader), Signal::KILL));
        // The folder goes with the processes; when it is gone already, that is fine.
        fs::remove_dir_all(&self.folder).ok();
    }
}

impl Running {
    /// What it printed, to explain why it doesn't answer.
    pub(crate) fn log(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let members = tree(self.child.id());
        signal_all(&members, Signal::TERM);
        let end = Instant::now() + STOP_LIMIT;
        while Instant::now() < end && !self.has_ended() {
            pause(Duration::from_millis(10));
        }
        // Also what its leader has left behind.
        signal_all(&members, Signal::KILL);
        self.child.wait().ok();
        let leader = self.child.id();
        self.processes.leaders.lock().retain(|known| *known != leader);
    }
}

const STOP_LIMIT: Duration = Duration::from_secs(3);

/// From now on Ctrl-C and SIGTERM stop every process first, and then this program.
///
/// # Errors
/// When the system refuses the thread or the signal handlers.
pub(crate) fn stop_on_signals(processes: &Arc<Processes>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let processes = Arc::clone(processes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = runtime.block_on(async {
        anyhow::Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    })?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let (mut interrupt, mut terminate) = signals;
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        output::progress("interrupted: stopping all servers");
        processes.stop_all();
        std::process::exit(130);
    })?;
    Ok(())
}

/// The process and all that descends from it.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut members = vec![root];
    let mut next = 0;
    while let Some(parent) = members.get(next).copied() {
        members.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    members
}

/// The parent of every process.
fn parents() -> BTreeMap<u32, u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parent_in(&stat)?))
    })
    .collect()
}

/// The fourth field; the second is a name in parentheses that may contain anything.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn signal_all(members: &[u32], signal: Signal) {
    let pids = members.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
    for pid in pids {
        // A process that is gone needs no signal.
        rustix::process::kill_process(pid, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::parent_in;

    #[test]
    fn a_name_may_contain_parentheses_and_spaces() {
        assert_eq!(parent_in("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("12 (nginx) S 1 12"), Some(1));
        assert_eq!(parent_in("nonsense"), None);
    }
}
