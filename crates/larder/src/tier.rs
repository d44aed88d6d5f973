//! The tier behind the memory of the gateway: the server that the configuration names for a store, or none.

use std::sync::Arc;

use fleet::{MemoryUse, StartTier};
use gateway::config::DEFAULT_STORE;
use store::backing::Guarded;
use store::remote::Remote;

use crate::config::{RemoteTier, StoreTier};

/// Connects to the server of each store. Unreachable servers are not an error. Call it inside the background
/// runtime.
///
/// # Errors
///
/// Returns an error, in tests only, if the settings of the simulated tier can't be parsed.
pub(crate) fn start(stores: &[StoreTier]) -> anyhow::Result<Vec<Option<StartTier>>> {
    let start = |StoreTier { name, remote }: &StoreTier| match remote {
        Some(remote) => Ok(Some(connect(remote))),
        None if name == DEFAULT_STORE => instead(),
        None => Ok(None),
    };
    stores.iter().map(start).collect()
}

fn connect(tier: &RemoteTier) -> StartTier {
    let remote = Remote::connect(&tier.server);
    let backing = Guarded::new(Box::new(remote), tier.deadlines, tier.breaker);
    StartTier {
        backing: Arc::new(backing),
        memory_use: MemoryUse::Kept,
        coherence: tier.coherence,
        name: tier.instance.clone().unwrap_or_else(of_machine),
        verification: tier.server.verification,
        leases: tier.leases,
    }
}

/// Returns the host name and process id, because several instances may run on one machine.
pub(crate) fn of_machine() -> String {
    let uname = rustix::system::uname();
    format!("{}:{}", uname.nodename().to_string_lossy(), std::process::id())
}

#[cfg(not(feature = "test-store"))]
#[expect(clippy::unnecessary_wraps, reason = "as in tests")]
fn instead() -> anyhow::Result<Option<StartTier>> {
    Ok(None)
}

#[cfg(feature = "test-store")]
use crate::test_store::tier as instead;
