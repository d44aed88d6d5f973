//! The region of this instance.

use std::collections::BTreeSet;
use std::time::Duration;

use store::fleet::PEERS_MAX;

use super::names::name;
use super::scope::Scope;
use super::store::{RemoteTier, peer};
use super::stores::place;
use crate::config::tree::Table;

/// This instance's region, and its peers.
#[derive(Clone, Debug)]
pub(crate) struct RegionSettings {
    pub(crate) name: String,
    pub(crate) purge_lag_max: Duration,
    pub(crate) peers: Vec<PeerSettings>,
}

/// Another region.
#[derive(Clone, Debug)]
pub(crate) struct PeerSettings {
    pub(crate) name: String,
    pub(crate) remote: RemoteTier,
}

/// Returns the region, given the tier of `[store]`.
pub(super) fn region(
    scope: &mut Scope<'_>,
    tree: &Table,
    near: Option<&RemoteTier>,
) -> Option<RegionSettings> {
    let table = tree.optional_table("region")?;
    let own = scope.parsed(table, "name", name);
    if tree.table("store").optional_table("remote").is_none() {
        scope.error_in(table, "needs `[store.remote]`, the store that the instances of the region share");
        return None;
    }
    let count = table.tables("peers").count();
    if !(1..=PEERS_MAX).contains(&count) && !table.is_wrong("peers") {
        scope.error_in(table, format!("expected 1 to {PEERS_MAX} `[[region.peers]]`, found {count}"));
    }
    let mut seen: BTreeSet<String> = own.iter().cloned().collect();
    let mut peers: Vec<PeerSettings> = Vec::new();
    for table in table.tables("peers") {
        let name = scope.parsed(table, "name", name);
        let remote = peer(scope, table, near?);
        let (Some(name), Some(remote)) = (name, remote) else { continue };
        if let (false, Some(node)) = (seen.insert(name.clone()), table.node("name")) {
            scope.error(node, format!("two regions are named {name:?}"));
        }
        let others = near.into_iter().chain(peers.iter().map(|peer| &peer.remote));
        if others.into_iter().any(|other| place(&other.server) == place(&remote.server)) {
            scope.error_in(table, "another region has the same server, database and prefix");
        }
        peers.push(PeerSettings { name, remote });
    }
    Some(RegionSettings { name: own?, purge_lag_max: table.get("purge_lag_max"), peers })
}
