//! The servers of the suite, and their protocols.

use std::process::Command;

use crate::resp::Protocol;

use super::super::findings::ExperimentError;
use super::super::fleet::{KV_MEMORY, Store};
use super::super::stage::{Server, Stage, free_address};

/// A server and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// Larder with the protocol of poor-man-s-cache.
    LarderText,
    /// Larder with the Redis protocol.
    LarderResp,
    Redis,
}

impl Contender {
    pub(super) const ALL: [Self; 3] = [Self::LarderText, Self::LarderResp, Self::Redis];

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
        match self {
            Self::LarderResp => Store::LarderKv.start(stage),
            Self::Redis => Store::Redis.start(stage),
            // The options with which poor-man-s-cache is started.
            Self::LarderText => {
                let address = free_address()?;
                let (port, metrics) = (address.port().to_string(), free_address()?.port().to_string());
                let variables =
                    [("SERVER_PORT", &*port), ("METRICS_HOST", "127.0.0.1"), ("METRICS_PORT", &metrics)];
                let mut command = Command::new(&stage.settings.larder);
                command.args(["kv", "--workers", "1", "--environment", "poor-man-s-cache"]).args(KV_MEMORY);
                command.envs(variables);
                stage.start(command, address)
            }
        }
    }
}
