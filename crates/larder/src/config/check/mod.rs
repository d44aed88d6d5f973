//! Turns a tree that fits the option table into the typed settings: parses addresses and patterns, reads files, resolves names. Reports
//! every problem, and continues as long as something can still be checked.

mod answer;
mod breaker;
mod circle;
mod compression;
mod expression;
mod kv;
mod listener;
pub(super) mod names;
mod origin;
mod protection;
mod reach;
mod region;
mod rule;
mod save_file;
mod scope;
mod server;
mod site;
mod store;
mod stores;
mod tls;
mod tracing;
mod transform;

pub(crate) use kv::KvSettings;
pub(crate) use region::{PeerSettings, RegionSettings};
use scope::Scope;
pub(crate) use server::LogSettings;
use server::{AskedFor, has_gateway};
pub(crate) use store::RemoteTier;
pub(crate) use stores::StoreTier;
use stores::Stores;

use std::time::{Duration, SystemTime};

use super::address::Names;
use super::locate::Sources;
use super::overrides::{Overrides, Program};
use super::problem::Problems;
use super::tree::Table;

/// The settings of a configuration without errors.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Settings of the gateway; absent without sites, and in `larder kv`.
    pub(crate) gateway: Option<gateway::config::Config>,
    /// Settings of the Redis-compatible server; absent without `[kv]`.
    pub(crate) kv: Option<KvSettings>,
    /// Settings of the admin API; absent in `larder kv` unless requested.
    pub(crate) admin: Option<admin::AdminConfig>,
    pub(crate) log: LogSettings,
    /// Time for which clients are still served after the process has stopped being ready.
    pub(crate) drain_delay: Duration,
    /// Settings of the span exporter, if spans are exported.
    pub(crate) spans: Option<otlp::Settings>,
    /// The tier behind the memory of each store of the gateway.
    pub(crate) tiers: Vec<StoreTier>,
    /// The tree of the settings, with which a reload compares the new tree.
    pub(super) tree: Table,
    pub(super) names: Names,
}

/// Checks everything. Returns settings only if none of their parts is missing; the caller asks `problems` for errors.
pub(super) fn build(
    tree: Table,
    names: Names,
    overrides: &Overrides,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<Settings> {
    let Overrides { program, purpose, .. } = *overrides;
    let mut scope = Scope { sources, problems, purpose, now: SystemTime::now() };
    let log = server::log(&mut scope, tree.table("log"));
    let asked = server::asked(program, &tree);
    let has_admin = asked != AskedFor::Nothing;
    let admin = server::admin(&mut scope, tree.table("admin"), asked);
    server::check_addresses(&mut scope, &tree, asked);
    let stores = Stores::of(&tree);
    stores.check(&mut scope, &tree);
    let tiers = stores.tiers(&mut scope, &tree);
    let gateway = gateway(&mut scope, (&tree, &stores), &log, admin.as_ref().filter(|_| has_admin));
    let spans = tracing::export(&mut scope, &tree);
    let kv = tree.optional_table("kv").map(|table| kv::kv(&mut scope, table));
    let gateway = (program == Program::Serve && has_gateway(&tree)).then_some(gateway);
    let admin = if has_admin { Some(admin?) } else { None };
    let drain_delay = tree.duration("drain_delay");
    Some(Settings { gateway, kv, admin, log, drain_delay, spans, tiers, tree, names })
}

fn gateway(
    scope: &mut Scope<'_>,
    (tree, stores): (&Table, &Stores<'_>),
    log: &LogSettings,
    admin: Option<&admin::AdminConfig>,
) -> gateway::config::Config {
    let origins = origin::origins(scope, tree);
    origin::warn_of_unused(scope, tree);
    let config = gateway::config::Config {
        tracing: tracing::recorded(tree, log),
        listeners: listener::listeners(scope, tree),
        workers: server::workers(tree),
        limits: tree.get("limits"),
        stores: stores.configs(),
        purge_method: server::purge_method(scope, tree.table("purge")),
        sites: site::sites(scope, (tree, stores), &origins, log.level),
        server_name: server::server_name(scope, tree),
        trusted_proxies: server::trusted_proxies(scope, tree),
        drain_limit: tree.get("drain_limit"),
    };
    circle::check_origins(scope, tree, &config, admin);
    config
}
