//! The servers of the kv rows, as processes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use bench::programs::larder_bench;
use bench::resp::{Protocol, RespLoad, Values};
use bench::server::{Ready, ServerCommand, ServerProcess, free_address};
use tempfile::TempDir;

use crate::output;
use crate::stage::SERVER_CORE;

/// A key-value server, or the null server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Store {
    /// Counts commands and writes prepared replies: the upper bound.
    Null,
    Larder,
    Redis,
    Memcached,
}

/// Memory limit of each server: enough for all keys of a row, so that no key is evicted.
const MEMORY_MIB: u32 = 4096;

/// A server that accepts commands. Dropping it stops the process and removes its files.
pub(crate) struct Running {
    pub(crate) store: Store,
    pub(crate) address: SocketAddr,
    process: ServerProcess,
    _folder: TempDir,
}

impl Store {
    pub(crate) const ALL: [Self; 4] = [Self::Null, Self::Larder, Self::Redis, Self::Memcached];

    /// The servers that store data.
    pub(crate) const KEEPING: [Self; 3] = [Self::Larder, Self::Redis, Self::Memcached];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Null => "null RESP server",
            Self::Larder => "Larder kv",
            Self::Redis => "Redis",
            Self::Memcached => "memcached",
        }
    }

    /// The program, and the argument that prints its version.
    pub(crate) fn version(self, larder: &Path) -> (String, &'static str) {
        let program = match self {
            Self::Null => larder_bench().display().to_string(),
            Self::Larder => larder.display().to_string(),
            Self::Redis => "redis-server".to_owned(),
            Self::Memcached => "memcached".to_owned(),
        };
        (program, "--version")
    }

    /// Starts the server with one worker on the server's core. The null server answers with values of `value_bytes`.
    ///
    /// # Errors
    /// Returns an error if the server isn't installed, or doesn't listen.
    pub(crate) fn start(self, larder: &Path, value_bytes: usize) -> anyhow::Result<Running> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let address = free_address().context("no free port on this machine")?;
        let command = self.command(larder, value_bytes, address, folder.path());
        let process = ServerCommand::new(command, Ready::Listens(address)).on_core(Some(SERVER_CORE)).start();
        let process = process.with_context(|| self.title())?;
        Ok(Running { store: self, address, process, _folder: folder })
    }

    fn command(self, larder: &Path, value_bytes: usize, address: SocketAddr, folder: &Path) -> Command {
        let (host, port, bench) = (address.ip(), address.port(), larder_bench());
        let (program, arguments) = match self {
            Self::Null => (&*bench, format!("null-resp --listen {address} --value-size {value_bytes}")),
            Self::Larder => {
                (larder, format!("kv --listen {address} --maxmemory {MEMORY_MIB}MiB --workers 1"))
            }
            // Redis without disk, with one thread, its default.
            Self::Redis => (
                Path::new("redis-server"),
                format!("--bind {host} --port {port} --save --appendonly no --maxmemory {MEMORY_MIB}mb"),
            ),
            Self::Memcached => (
                Path::new("memcached"),
                format!("-l {host} -p {port} -U 0 -t 1 -m {MEMORY_MIB} -c 4096 -u nobody"),
            ),
        };
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).current_dir(folder);
        command
    }
}

/// Starts every installed server of `stores`, and prints why the others don't start.
pub(crate) fn start_all(larder: &Path, stores: &[Store], value_bytes: usize) -> Vec<Running> {
    let mut running = Vec::new();
    for store in stores {
        match store.start(larder, value_bytes) {
            Ok(server) => running.push(server),
            Err(error) => output::progress(&format!("left out: {error:#}")),
        }
    }
    running
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The settings common to all loads on this server.
    pub(crate) fn load(&self) -> RespLoad {
        let load = RespLoad::of(self.address);
        match self.store {
            Store::Null => RespLoad { values: Values::Fixed, preload: bench::resp::Preload::Nothing, ..load },
            Store::Memcached => RespLoad { protocol: Protocol::Memcached, ..load },
            Store::Larder | Store::Redis => load,
        }
    }
}
