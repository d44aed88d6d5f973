//! The server under load: started on request, and watched.

use std::net::SocketAddr;

use bench::interrupt::Interruptible;
use bench::observe::Observer;
use bench::progress::Progress;
use bench::result::Run;
use bench::server::{Ready, ServerCommand, ServerProbe, ServerProcess};
use clap::Args;

#[derive(Args, Debug)]
#[command(next_help_heading = "Server under load")]
pub(super) struct ServerArguments {
    /// Report CPU time and memory of this process and its children
    #[arg(long, value_name = "PID", conflicts_with = "server_cmd")]
    server_pid: Option<u32>,

    /// Start this shell command first, wait until it listens, report what it uses, and stop it
    #[arg(long, value_name = "COMMAND")]
    server_cmd: Option<String>,

    /// Report how long this core was busy; a server started by --server-cmd runs on it
    #[arg(long, value_name = "N")]
    server_core: Option<usize>,
}

/// The server under load. If this program has started it, dropping this value stops it.
pub(super) struct Server {
    _process: Option<ServerProcess>,
    probe: Option<ServerProbe>,
}

impl Server {
    /// Starts the server, if there is a command for it, and waits until it listens on the address.
    pub(super) fn start(
        arguments: &ServerArguments,
        address: impl FnOnce() -> anyhow::Result<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let process = match &arguments.server_cmd {
            Some(line) => {
                let command = ServerCommand::shell(line, Ready::Listens(address()?));
                Some(command.on_core(arguments.server_core).start()?)
            }
            None => None,
        };
        let pid = process.as_ref().map(ServerProcess::pid).or(arguments.server_pid);
        let probe = match (pid, arguments.server_core) {
            (None, None) => None,
            (pid, core) => Some(ServerProbe::new(pid.as_slice(), core)?),
        };
        Ok(Self { _process: process, probe })
    }

    /// Runs a load with progress, which Ctrl-C ends early, and adds the server's cost, if requested.
    pub(super) fn under(
        &self,
        progress: Progress,
        load: impl FnOnce(&mut dyn Observer) -> anyhow::Result<Run>,
    ) -> anyhow::Result<Run> {
        let measuring = self.probe.as_ref().map(ServerProbe::begin).transpose()?;
        let interruptible = Interruptible::begin()?;
        let mut run = load(&mut interruptible.ending(&mut progress.observer()))?;
        progress.finish();
        let spent = measuring.map(|measuring| measuring.end()).transpose()?;
        run.server = spent.map(|spent| spent.per_request(run.requests));
        Ok(run)
    }
}
