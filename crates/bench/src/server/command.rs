//! A server started from a command.

use std::collections::BTreeSet;
use std::io;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::probe::all_processes;
use super::{ServerError, processes};
use crate::interrupt;

/// The command of a server, and how to start it.
#[derive(Debug)]
pub struct ServerCommand {
    command: Command,
    /// The command as text, for messages.
    text: String,
    /// The allowed core. `None` means any core.
    core: Option<usize>,
    ready: Ready,
    patience: Duration,
}

/// Sign that a server is ready.
#[derive(Clone, Debug)]
pub enum Ready {
    /// It accepts connections on the address.
    Listens(SocketAddr),
    /// A line with this text appears on its standard output or standard error.
    Prints(String),
}

/// A running server. It is killed with all its descendants on drop, or if Ctrl-C ends the generator.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    group: Pid,
    output: Output,
}

impl ServerCommand {
    /// Creates a server command from a program with its arguments.
    #[must_use]
    pub fn new(command: Command, ready: Ready) -> Self {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let text = words.join(" ");
        Self { command, text, core: None, ready, patience: PATIENCE }
    }

    /// Creates a server command from a line for the shell, as in `--server-cmd`.
    #[must_use]
    pub fn shell(line: &str, ready: Ready) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        Self { text: line.to_owned(), ..Self::new(command, ready) }
    }

    /// Restricts the server, with all its processes and threads, to this core.
    #[must_use]
    pub fn on_core(self, core: Option<usize>) -> Self {
        Self { core, ..self }
    }

    /// Sets the time in which the server must become ready. The default is 30 seconds.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if the server can't be started, ends, or doesn't become ready in time. All of its processes have then ended.
    pub fn start(mut self) -> Result<ServerProcess, ServerError> {
        self.refuse_taken()?;
        self.command.process_group(0);
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn_on(&mut self.command, self.core)
            .map_err(|source| ServerError::Start { command: self.text.clone(), source })?;
        let output = Output::of(&mut child);
        let group = Pid::from_child(&child);
        let mut server = ServerProcess { child, group, output };
        interrupt::watch(group).map_err(ServerError::Own)?;
        self.wait_until_ready(&mut server)?;
        Ok(server)
    }

    /// Refuses an address in use: the server there would be mistaken for this one.
    fn refuse_taken(&self) -> Result<(), ServerError> {
        match self.ready {
            Ready::Listens(address) if listens(&address) => {
                Err(ServerError::Taken { command: self.text.clone(), address })
            }
            _ => Ok(()),
        }
    }

    fn wait_until_ready(&self, server: &mut ServerProcess) -> Result<(), ServerError> {
        let end = Instant::now() + self.patience;
        while !self.is_ready(server) {
            if let Some(status) = server.child.try_wait().map_err(ServerError::Own)? {
                let (command, output) = (self.text.clone(), server.output.settled());
                return Err(ServerError::Ended { command, status: status.to_string(), output });
            }
            if Instant::now() > end {
                let (command, output) = (self.text.clone(), server.output.tail());
                return Err(ServerError::NotReady { command, after: self.patience, output });
            }
            pause();
        }
        Ok(())
    }

    fn is_ready(&self, server: &ServerProcess) -> bool {
        match &self.ready {
            Ready::Listens(address) => listens(address),
            Ready::Prints(text) => server.output.tail().contains(text),
        }
    }
}

fn listens(address: &SocketAddr) -> bool {
    TcpStream::connect_timeout(address, POLL_TIMEOUT).is_ok()
}

const PATIENCE: Duration = Duration::from_secs(30);
const END_PATIENCE: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

impl ServerProcess {
    /// The process that was started. In some servers, its descendants do the work.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of its standard output and standard error.
    #[must_use]
    pub fn output(&self) -> String {
        self.output.tail()
    }
}

impl Drop for ServerProcess {
    /// Sends SIGTERM first, so that the server can write its counters, for example, before it exits. Remaining processes are killed.
    fn drop(&mut self) {
        // Collected first: descendants that have left the group can't be found once their parent has ended.
        let family = family(self.group);
        let _ = kill_process(self.group, Signal::TERM);
        let end = Instant::now() + END_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            pause();
        }
        kill(self.group, &family);
        interrupt::forget(self.group);
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing tells us when another process listens or ends")]
fn pause() {
    thread::sleep(POLL_INTERVAL);
}

/// Kills a process group, and the descendants that left the group.
pub(crate) fn kill_tree(group: Pid) {
    kill(group, &family(group));
}

/// The descendants of a process.
fn family(root: Pid) -> BTreeSet<u32> {
    let root = root.as_raw_nonzero().get().unsigned_abs();
    let mut family = all_processes()
        .map(|processes| processes::family(&processes, &BTreeSet::from([root])))
        .unwrap_or_default();
    family.remove(&root);
    family
}

fn kill(group: Pid, family: &BTreeSet<u32>) {
    // A server that has ended may have left processes in its group.
    let _ = kill_process_group(group, Signal::KILL);
    for pid in family.iter().filter_map(|pid| Pid::from_raw((*pid).try_into().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Starts a command on a core. The affinity is set on a new thread, from which the child inherits it, so the calling
/// thread keeps its own. taskset(1) may not be installed.
fn spawn_on(command: &mut Command, core: Option<usize>) -> io::Result<Child> {
    let Some(core) = core else { return command.spawn() };
    let spawn = || {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no core {core}")));
        }
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set)?;
        command.spawn()
    };
    thread::scope(|scope| scope.spawn(spawn).join()).expect("it does not panic")
}

/// The end of a server's output. Read continuously, so that a server with much output isn't blocked.
#[derive(Clone, Debug, Default)]
struct Output {
    lines: Arc<Mutex<String>>,
    readers: Arc<()>,
}

impl Output {
    fn of(child: &mut Child) -> Self {
        let output = Self::default();
        if let Some(pipe) = child.stdout.take() {
            output.clone().read(pipe);
        }
        if let Some(pipe) = child.stderr.take() {
            output.clone().read(pipe);
        }
        output
    }

    fn read(self, pipe: impl Read + Send + 'static) {
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            // A line without an end is read in pieces.
            while let Ok(1..) = pipe.by_ref().take(TAIL_BYTES as u64).read_until(b'\n', &mut line) {
                self.add(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
    }

    fn add(&self, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(text);
        let surplus = lines.len().saturating_sub(TAIL_BYTES);
        let cut = (surplus..).find(|&at| lines.is_char_boundary(at)).unwrap_or(0);
        lines.drain(..cut);
    }

    fn tail(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the last output of a server that has ended, which may still be in the pipe. The wait is limited,
    /// because a surviving descendant keeps the pipe open.
    fn settled(&self) -> String {
        let end = Instant::now() + POLL_TIMEOUT;
        while Arc::strong_count(&self.readers) > 1 && Instant::now() < end {
            pause();
        }
        self.tail()
    }
}

const TAIL_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn prints(line: &str) -> ServerCommand {
        ServerCommand::shell(line, Ready::Prints("ready".to_owned())).patience(Duration::from_secs(20))
    }

    fn is_gone(pid: u32) -> bool {
        let processes = all_processes().expect("/proc can be read");
        !processes.iter().any(|process| process.pid == pid)
    }

    #[test]
    fn descendants_end_with_the_server() {
        // One process in the group, and one that leaves it.
        let server = prints("sleep 600 & echo $!; setsid sh -c 'echo $$; echo ready; sleep 600' & wait");
        let server = server.start().expect("it prints that it is ready");
        let output = server.output();
        let pids: Vec<u32> = output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert_eq!(pids.len(), 2, "{output}");
        assert!(pids.iter().all(|&pid| !is_gone(pid)));
        let own = server.pid();
        drop(server);
        assert!(is_gone(own));
        let end = Instant::now() + Duration::from_secs(20);
        while !pids.iter().all(|&pid| is_gone(pid)) {
            assert!(Instant::now() < end, "{pids:?} still run");
            thread::yield_now();
        }
    }

    #[test]
    fn early_end_is_told_with_the_last_words() {
        let error = prints("echo no such file >&2; exit 3").start().expect_err("it ends");
        let ServerError::Ended { status, output, .. } = error else { panic!("{error}") };
        assert_eq!((status.as_str(), output.as_str()), ("exit status: 3", "no such file\n"));
    }

    #[test]
    fn server_that_is_never_ready_is_given_up() {
        let server = prints("echo busy; sleep 600").patience(Duration::from_millis(300));
        let error = server.start().expect_err("it is never ready");
        assert!(matches!(&error, ServerError::NotReady { output, .. } if output == "busy\n"), "{error}");
    }

    #[test]
    fn unknown_program_is_told() {
        let command = Command::new("/no/such/program");
        let error =
            ServerCommand::new(command, Ready::Prints(String::new())).start().expect_err("there is none");
        assert!(matches!(error, ServerError::Start { .. }), "{error}");
    }

    #[test]
    fn server_stays_on_its_core() {
        let server =
            prints("grep Cpus_allowed_list /proc/self/status; echo ready; sleep 600").on_core(Some(0));
        let server = server.start().expect("there is a core 0");
        assert!(server.output().contains("Cpus_allowed_list:\t0\n"), "{}", server.output());
    }

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let output = Output::default();
        (0..3000).for_each(|_| output.add("é\n"));
        assert!(output.tail().len() <= TAIL_BYTES);
        assert!(output.tail().ends_with("é\n"));
    }
}
