//! The tier behind the memory of the gateway: the server that the configuration names for a store, or none.

use std::sync::Arc;

use fleet::regions::{StartPeer, StartRegion};
use fleet::{MemoryUse, StartTier};
use gateway::config::DEFAULT_STORE;
use store::backing::{Backing, Guarded};
use store::remote::Remote;

use crate::config::{RegionSettings, RemoteTier, StoreTier};

/// Connects to the server of each store. Unreachable servers are not an error. Call it inside the background
/// runtime.
///
/// # Errors
///
/// Returns an error, in tests only, if the settings of the simulated tier can't be parsed.
pub(crate) fn start(stores: &[StoreTier]) -> anyhow::Result<Vec<Option<StartTier>>> {
    let start = |StoreTier { name, remote, region }: &StoreTier| match remote {
        Some(remote) => Ok(Some(connect(remote, region.as_ref()))),
        None if name == DEFAULT_STORE => instead(),
        None => Ok(None),
    };
    stores.iter().map(start).collect()
}

fn connect(tier: &RemoteTier, region: Option<&RegionSettings>) -> StartTier {
    StartTier {
        backing: backing(tier),
        memory_use: MemoryUse::Kept,
        coherence: tier.coherence,
        name: tier.instance.clone().unwrap_or_else(of_machine),
        verification: tier.server.verification,
        leases: tier.leases,
        region: region.map(|region| StartRegion {
            name: region.name.clone(),
            purge_lag_max: region.purge_lag_max,
            peers: region
                .peers
                .iter()
                .map(|peer| StartPeer { name: peer.name.clone(), backing: backing(&peer.remote) })
                .collect(),
        }),
    }
}

fn backing(tier: &RemoteTier) -> Arc<dyn Backing> {
    let remote = Remote::connect(&tier.server);
    Arc::new(Guarded::new(Box::new(remote), tier.deadlines, tier.breaker))
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
