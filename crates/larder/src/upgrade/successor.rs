//! The old process's side of an upgrade.

use std::io::{self, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command as StdCommand, ExitStatus};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use command_fds::{CommandFdExt, FdMapping};
use gateway::SocketOwner;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use terminal::output;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::{COMPLAINT_BYTES_MAX, Predecessor, VARIABLE, complaints_to};

/// Time within which a new process must serve. The admin client waits longer than this.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// The first inherited descriptor, by the protocol of socket activation (sd_listen_fds(3)).
const FIRST_DESCRIPTOR: i32 = 3;

/// An operator's request for an upgrade, answered with the id of the new process or the reason of the failure.
pub(crate) type Order = oneshot::Sender<Result<u32, String>>;

/// The resources for starting a successor.
pub(crate) struct Succession {
    /// Path of the program at the start of this process: another version may be installed there by now.
    program: PathBuf,
    orders: mpsc::Receiver<Order>,
    /// Owner of the passed sockets.
    owner: SocketOwner,
}

impl Succession {
    /// Returns the succession, and the sender for orders to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the system doesn't report the path of the program.
    pub(crate) fn new(owner: SocketOwner) -> io::Result<(Self, mpsc::Sender<Order>)> {
        let (ask, orders) = mpsc::channel(1);
        Ok((Self { program: std::env::current_exe()?, orders, owner }, ask))
    }

    /// Returns the next order.
    pub(crate) async fn ordered(&mut self) -> Order {
        match self.orders.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    /// Starts a process that takes over the sockets, and returns its id once it serves. Dropping the future kills the
    /// new process.
    ///
    /// # Errors
    ///
    /// Returns an error if the process doesn't start, exits, or doesn't serve in time.
    pub(crate) async fn start(&mut self, sockets: io::Result<Vec<OwnedFd>>) -> anyhow::Result<u32> {
        let no_socket = "the new process could not report: no socket for it";
        let name = unpredictable_name().context(no_socket)?;
        let reports = listen(&name).context(no_socket)?;
        let complaints = listen(&complaints_to(&name)).context(no_socket)?;
        let mut command =
            self.command(&name, sockets.context("the listening sockets can't be passed on")?)?;
        let mut child =
            command.spawn().with_context(|| format!("{} can't be started", self.program.display()))?;
        let id = child.id().context("the new process exited immediately")?;
        let process = Pid::from_raw(id.cast_signed());
        let newborn = Newborn(process);
        let ready = tokio::select! {
            ready = reported(&reports, process) => ready,
            ended = child.wait() => {
                // The process id may have been reused by now.
                newborn.grow_up();
                let said = complaint(&complaints, process).unwrap_or_default();
                let why = said.unwrap_or_else(|| "see this process's log".to_owned());
                bail!("the new process {}: {why}", ending(ended?))
            }
        };
        ready?;
        newborn.grow_up();
        Ok(id)
    }

    fn command(&self, report_to: &str, sockets: Vec<OwnedFd>) -> anyhow::Result<Command> {
        let mut command = StdCommand::new(&self.program);
        command
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, Predecessor::named(report_to, self.owner))
            .env("LISTEN_FDS", sockets.len().to_string())
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES")
            .env_remove("WATCHDOG_PID");
        let mappings = (FIRST_DESCRIPTOR..)
            .zip(sockets)
            .map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd })
            .collect();
        command.fd_mappings(mappings).context("two sockets have one descriptor")?;
        Ok(command.into())
    }
}

/// Describes the exit status of a process.
fn ending(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => format!("ended ({status})"),
    }
}

/// Returns a name that no other user of this machine can bind in advance.
fn unpredictable_name() -> anyhow::Result<String> {
    let mut random = [0; 16];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut random).map_err(|_| anyhow!("the system gives no random numbers"))?;
    Ok(format!("larder-upgrade-{:032x}", u128::from_be_bytes(random)))
}

/// Binds a name of the abstract namespace, which leaves no file behind.
fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Resolves when the new process serves.
///
/// The limit is a number of checks, not a time. So a process that was suspended, for example with its machine, checks
/// again before it gives up on a successor that may serve clients by now.
async fn reported(reports: &UnixListener, newborn: Option<Pid>) -> anyhow::Result<()> {
    for _ in 0..READY_LIMIT.as_millis() / LOOK_INTERVAL.as_millis() {
        sleep(LOOK_INTERVAL).await;
        if has_reported(reports, newborn)? {
            return Ok(());
        }
    }
    bail!("the new process did not serve within {READY_LIMIT:?}");
}

const LOOK_INTERVAL: Duration = Duration::from_millis(20);

fn has_reported(reports: &UnixListener, newborn: Option<Pid>) -> io::Result<bool> {
    Ok(connected(reports, newborn)?.is_some())
}

/// Accepts the connection of the process with this id. Any process on this machine can connect, but no other process
/// has its id.
fn connected(listener: &UnixListener, process: Option<Pid>) -> io::Result<Option<UnixStream>> {
    loop {
        match listener.accept() {
            Ok((stream, _)) if Some(socket_peercred(&stream)?.pid) == process => return Ok(Some(stream)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the error message of a process that has ended, in one line. The message has arrived in full, so this doesn't
/// wait for the end of the stream: a child of that process may still hold the connection open.
fn complaint(complaints: &UnixListener, process: Option<Pid>) -> io::Result<Option<String>> {
    let Some(stream) = connected(complaints, process)? else { return Ok(None) };
    stream.set_nonblocking(true)?;
    let mut said = Vec::new();
    let read = stream.take(COMPLAINT_BYTES_MAX as u64).read_to_end(&mut said);
    read.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(0) } else { Err(error) })?;
    let said = String::from_utf8_lossy(&said);
    let said = said.trim().replace(output::is_control, " ");
    Ok((!said.is_empty()).then_some(said))
}

/// A process that doesn't serve yet. Dropping it kills it: otherwise two processes would serve, because the predecessor
/// continues.
struct Newborn(Option<Pid>);

impl Newborn {
    fn grow_up(mut self) {
        self.0 = None;
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if let Some(process) = self.0 {
            // The call fails if the process has already exited.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}
