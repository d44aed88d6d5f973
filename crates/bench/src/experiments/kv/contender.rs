//! Who is asked, and in which protocol.

use std::process::Command;

use crate::resp::Protocol;

use super::super::findings::ExperimentError;
use super::super::stage::{Server, Stage, free_address, program};

/// A server, and how it is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    LarderText,
    LarderResp,
    Redis,
}

impl Contender {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LarderText => "Larder, 0x1F",
            Self::LarderResp => "Larder, RESP",
            Self::Redis => "Redis",
        }
    }

    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::LarderText => Protocol::UnitSeparator,
            Self::LarderResp | Self::Redis => Protocol::Resp2,
        }
    }

    pub(super) fn start(self, stage: &mut Stage<'_>) -> Result<Server, ExperimentError> {
        let address = free_address()?;
        let port = address.port().to_string();
        let mut command = match self {
            Self::LarderText | Self::LarderResp => Command::new(stage.larder()),
            Self::Redis => Command::new(program("redis-server", "redis-server")?),
        };
        match self {
            Self::LarderResp => {
                command.args(["kv", "--listen", &address.to_string()]).args(LARDER);
            }
            // As poor-man-s-cache is started.
            Self::LarderText => {
                let metrics = free_address()?.port().to_string();
                let variables =
                    [("SERVER_PORT", &*port), ("METRICS_HOST", "127.0.0.1"), ("METRICS_PORT", &metrics)];
                command.args(["kv", "--environment", "poor-man-s-cache"]).args(LARDER).envs(variables);
            }
            Self::Redis => {
                command.args(["--bind", "127.0.0.1", "--port", &port, "--save", ""]);
            }
        }
        stage.start(command, address)
    }
}

/// Room for everything.
const LARDER: [&str; 4] = ["--maxmemory", "4GiB", "--workers", "1"];
