//! Targets of the generators: the same servers for all.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use bench::server::{Ready, ServerCommand, ServerProcess, free_address};

use crate::stage::SERVER_CORE;

/// A kind of server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    NullHttp,
    /// Stalls for 100 ms in each second.
    StallingNullHttp,
    Redis,
}

/// A server on the server's core. Stopped on drop.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    _process: ServerProcess,
}

impl Target {
    pub(super) fn start(self, bench: &Path) -> anyhow::Result<Running> {
        match self {
            Self::NullHttp => null_http(bench, &[]),
            Self::StallingNullHttp => null_http(bench, &["--stall-ms", "100", "--stall-every", "1000"]),
            Self::Redis => redis(),
        }
    }
}

fn null_http(bench: &Path, arguments: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(bench);
    // ab uses HTTP/1.0, and keeps a connection only if the response says so.
    command.args(["null-http", "--header", "Connection: keep-alive"]).args(arguments);
    let ready = Ready::Prints("127.0.0.1:".to_owned());
    let process = ServerCommand::new(command, ready).on_core(Some(SERVER_CORE)).start()?;
    let address = process.output().trim().parse().context("the null server prints its address")?;
    Ok(Running { address, _process: process })
}

fn redis() -> anyhow::Result<Running> {
    let address = free_address().context("no free port on this machine")?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""]);
    let ready = Ready::Listens(address);
    let process = ServerCommand::new(command, ready).on_core(Some(SERVER_CORE)).start()?;
    Ok(Running { address, _process: process })
}
