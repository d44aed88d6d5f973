//! Stores that applications use and gateways share.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::pause::pass;
use crate::resp::Protocol;

use super::findings::ExperimentError;
use super::stage::{Server, Stage, free_address, io_error, metric, program};

/// Host of all requests: the same at all gateways, since it is part of the cache key.
pub(super) const HOST: &str = "shop.test";

/// One worker, and enough memory for everything that an experiment stores.
const KV: [&str; 5] = ["kv", "--workers", "1", "--maxmemory", "4GiB"];

/// A kind of store, and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// Larder with the protocol of poor-man-s-cache.
    LarderText,
    LarderKv,
    Redis,
}

impl Store {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LarderText => "Larder, 0x1F",
            Self::LarderKv => "Larder, RESP",
            Self::Redis => "Redis",
        }
    }

    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::LarderText => Protocol::UnitSeparator,
            Self::LarderKv | Self::Redis => Protocol::Resp2,
        }
    }

    /// Starts the store on a free port.
    pub(super) fn start(self, stage: &mut Stage<'_>) -> Result<Server, ExperimentError> {
        let address = free_address()?;
        let port = address.port().to_string();
        let command = match self {
            Self::Redis => {
                let mut command = Command::new(program("redis-server", "redis-server")?);
                command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir"]);
                command.arg(stage.new_folder()?);
                command
            }
            Self::LarderKv => {
                let mut command = Command::new(&stage.settings.larder);
                command.args(KV).args(["--listen", &address.to_string()]);
                command
            }
            // The options with which poor-man-s-cache is started.
            Self::LarderText => {
                let metrics = free_address()?.port().to_string();
                let mut command = Command::new(&stage.settings.larder);
                command.args(KV).args(["--environment", "poor-man-s-cache"]);
                command.envs([
                    ("SERVER_PORT", &*port),
                    ("METRICS_HOST", "127.0.0.1"),
                    ("METRICS_PORT", &metrics),
                ]);
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

/// Waits until all gateways know each other. Until then, each is a separate cache.
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
