//! The server under load: started where it is asked for, and watched.

use std::net::ToSocketAddrs as _;

use anyhow::Context as _;
use bench::http::{HttpLoad, Target};
use bench::server::{Measuring, Ready, ServerCommand, ServerProbe, ServerProcess};

use super::arguments::ServerArguments;

/// Stops what it started when it is dropped.
pub(super) struct Server {
    _process: Option<ServerProcess>,
    probe: Option<ServerProbe>,
}

impl Server {
    pub(super) fn start(arguments: &ServerArguments, load: &HttpLoad) -> anyhow::Result<Self> {
        let process = match (&arguments.server_cmd, load.targets.first()) {
            (Some(line), Some(target)) => Some(start(line, arguments.server_core, target)?),
            _ => None,
        };
        let pid = process.as_ref().map(ServerProcess::pid).or(arguments.server_pid);
        let probe = match (pid, arguments.server_core) {
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

fn start(line: &str, core: Option<usize>, target: &Target) -> anyhow::Result<ServerProcess> {
    let host = target.url.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = (host, target.url.port).to_socket_addrs().with_context(|| host.to_owned())?;
    let address = addresses.next().with_context(|| format!("{host} has no address"))?;
    Ok(ServerCommand::shell(line, Ready::Listens(address)).on_core(core).start()?)
}
