//! Gateways that share a store.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::pause::pass;

use super::findings::ExperimentError;
use super::stage::{Server, Stage, free_address, io_error, metric, program};

/// The same at all gateways, since it is part of the cache key.
pub(super) const HOST: &str = "shop.test";

/// Enough memory for everything that an experiment stores.
pub(super) const KV_MEMORY: [&str; 2] = ["--maxmemory", "4GiB"];

/// The kind of shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Redis,
    LarderKv,
}

impl Store {
    /// Starts the store on a free port.
    pub(super) fn start(self, stage: &mut Stage<'_>) -> Result<Server, ExperimentError> {
        let address = free_address()?;
        let command = match self {
            Self::Redis => {
                let mut command = Command::new(program("redis-server", "redis-server")?);
                let port = address.port().to_string();
                command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir"]);
                command.arg(stage.new_folder()?);
                command
            }
            Self::LarderKv => {
                let mut command = Command::new(&stage.settings.larder);
                command.args(["kv", "--workers", "1", "--listen", &address.to_string()]).args(KV_MEMORY);
                command
            }
        };
        stage.start(command, address)
    }
}

/// Configuration that shares the store at this address.
pub(super) fn shared(store: SocketAddr) -> String {
    format!("[store]\nremote = \"redis://{store}/0\"")
}

/// Waits until all gateways know each other. Until then, each is a cache of its own.
pub(super) fn are_one(gateways: &[Server]) -> Result<(), ExperimentError> {
    let all = gateways.len() as u64;
    gateways.iter().try_for_each(|gateway| until(gateway, "larder_tier_instances", all))
}

/// Waits until a gateway's write-behind queue is flushed.
pub(super) fn is_written(gateway: &Server) -> Result<(), ExperimentError> {
    until(gateway, "larder_tier_pending_keys", 0)
}

/// Waits until a metric of a gateway has this value.
pub(super) fn until(gateway: &Server, name: &str, wanted: u64) -> Result<(), ExperimentError> {
    let begun = Instant::now();
    while gateway.admin.and_then(|admin| metric(admin, name).ok()) != Some(wanted) {
        if begun.elapsed() > PATIENCE {
            let what = format!("{name} of {} is not {wanted}", gateway.address);
            return Err(io_error(&what, io::ErrorKind::TimedOut.into()));
        }
        pass(Duration::from_millis(20));
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn unanswered(source: io::Error) -> ExperimentError {
    io_error("the store does not answer", source)
}
