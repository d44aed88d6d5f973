//! Settings of the server for clients of Redis.

use std::net::SocketAddr;

use engine::Policy;

use super::Scope;
use super::server::{socket_address, workers};
use crate::config::tree::Table;

/// What the server for clients of Redis runs with.
#[derive(Clone, Debug)]
pub(crate) struct KvSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) workers: usize,
    pub(crate) bytes_max: u64,
    pub(crate) policy: Policy,
}

pub(super) fn kv(scope: &mut Scope<'_>, table: &Table) -> Option<KvSettings> {
    Some(KvSettings {
        listen: scope.parsed(table, "listen", socket_address)?,
        workers: workers(table),
        bytes_max: table.number("maxmemory"),
        policy: table.text("maxmemory_policy").and_then(|name| name.parse().ok()).unwrap_or_default(),
    })
}
