//! The server under load: started where it is asked for, and watched.

use std::net::SocketAddr;

use bench::server::{Measuring, Ready, ServerCommand, ServerProbe, ServerProcess};

/// What of the server is to be watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched<'a> {
    pub(super) pid: Option<u32>,
    /// Starts the server.
    pub(super) command: Option<&'a str>,
    pub(super) core: Option<usize>,
}

/// Stops what it started when it is dropped.
pub(super) struct Server {
    _process: Option<ServerProcess>,
    probe: Option<ServerProbe>,
}

impl Server {
    /// Starts the server, if there is a command for it, and waits until it listens there.
    pub(super) fn start(
        watched: &Watched<'_>,
        address: impl FnOnce() -> anyhow::Result<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let process = match watched.command {
            Some(line) => {
                let command = ServerCommand::shell(line, Ready::Listens(address()?));
                Some(command.on_core(watched.core).start()?)
            }
            None => None,
        };
        let pid = process.as_ref().map(ServerProcess::pid).or(watched.pid);
        let probe = match (pid, watched.core) {
            (None, None) => None,
            (pid, core) => Some(ServerProbe::new(pid.as_slice(), core)?),
        };
        Ok(Self { _process: process, probe })
    }

    /// Begins to count what the server spends, if that was asked for.
    pub(super) fn begin(&self) -> anyhow::Result<Option<Measuring>> {
        Ok(self.probe.as_ref().map(ServerProbe::begin).transpose()?)
    }
}
