//! The stores of a configuration, and the store of each site.

use std::collections::BTreeSet;

use gateway::config::{DEFAULT_STORE, StoreConfig, StoreIndex};
use store::remote::RemoteSettings;
use terminal::nearest;

use super::names::name;
use super::region::{RegionSettings, region};
use super::scope::Scope;
use super::store::{RemoteTier, remote};
use crate::config::tree::{Node, Table, Value};

/// All stores: `[store]`, then the named ones.
pub(super) struct Stores<'a> {
    all: Vec<(&'a str, &'a Table)>,
    /// Whether an error in the configuration may have removed stores from the list.
    is_open: bool,
}

/// The tier behind the memory of a store.
#[derive(Clone, Debug)]
pub(crate) struct StoreTier {
    pub(crate) name: String,
    pub(crate) remote: Option<RemoteTier>,
    /// The region of the tier, if there are several.
    pub(crate) region: Option<RegionSettings>,
}

/// Maximum number of stores, which is limited because each store has its own tasks and connections.
const STORES_MAX: usize = 64;

impl<'a> Stores<'a> {
    pub(super) fn of(tree: &'a Table) -> Self {
        let named = tree.map("stores").iter().filter_map(|(name, node)| match &node.value {
            Value::Table(table) => Some((name.as_str(), table)),
            _ => None,
        });
        let all = std::iter::once((DEFAULT_STORE, tree.table("store"))).chain(named).collect();
        Self { all, is_open: tree.is_wrong("stores") }
    }

    pub(super) fn configs(&self) -> Vec<StoreConfig> {
        let config = |(name, table): &(&str, &Table)| StoreConfig {
            name: (*name).to_owned(),
            memory_bytes_max: table.get("memory"),
            variants_max: table.get("variants_max"),
            validation_tags_max: table.get("validation_tags_max"),
            groups_max: table.get("groups_max"),
        };
        self.all.iter().map(config).collect()
    }

    /// Returns the store of a site, and its keys. `[store]` replaces an unknown store, so that the checks can continue.
    pub(super) fn of_site(&self, scope: &mut Scope<'_>, site: &Table) -> (StoreIndex, &'a Table) {
        let found = self.named_by(site);
        if let (None, false, Some(node)) = (found, self.is_open, site.node("store")) {
            scope.error(node, self.unknown(node.as_text()));
        }
        let index = found.unwrap_or_default();
        (StoreIndex(index), self.all[index].1)
    }

    fn named_by(&self, site: &Table) -> Option<usize> {
        let wanted = site.text("store")?;
        self.all.iter().position(|(name, _)| *name == wanted)
    }

    /// Returns the store that a site names, even if the name is misspelt, so that the store isn't reported as unused.
    fn meant_by(&self, site: &Table) -> Option<usize> {
        let near = || {
            let near = nearest(site.text("store")?, self.all.iter().map(|(name, _)| *name))?;
            self.all.iter().position(|(name, _)| *name == near)
        };
        self.named_by(site).or_else(near)
    }

    fn unknown(&self, wanted: &str) -> String {
        let names: BTreeSet<_> = self.all.iter().map(|(name, _)| *name).collect();
        match nearest(wanted, names.iter().copied()) {
            Some(near) => format!("no store is named {wanted:?}; did you mean `{near}`?"),
            None => {
                let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
                let is_bare =
                    wanted.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
                let key = if is_bare { wanted.to_owned() } else { format!("{wanted:?}") };
                format!("no store is named {wanted:?}: use {}, or add `[stores.{key}]`", names.join(", "))
            }
        }
    }

    /// Reports invalid names, and stores that no site uses.
    pub(super) fn check(&self, scope: &mut Scope<'_>, tree: &Table) {
        let used: Vec<_> = tree.tables("site").filter_map(|site| self.meant_by(site)).collect();
        if let (true, Some(node)) = (self.all.len() > STORES_MAX, tree.node("stores")) {
            scope.error(node, format!("more than {STORES_MAX} stores, including `[store]`"));
        }
        for (index, (text, table)) in self.all.iter().enumerate().skip(1) {
            if let Err(message) = name(text) {
                scope.error_in(table, message);
            } else if *text == DEFAULT_STORE {
                let message = "`default` is the name of `[store]`";
                scope.error_in(table, message);
            } else if !used.contains(&index) {
                let message = "unused: no site has this name as its `store`";
                scope.warning_in(table, message);
            }
        }
    }

    /// Returns the tier behind each store.
    pub(super) fn tiers(&self, scope: &mut Scope<'_>, tree: &Table) -> Vec<StoreTier> {
        let tier = |(name, table): &(&str, &Table)| StoreTier {
            name: (*name).to_owned(),
            remote: remote(scope, table),
            region: None,
        };
        let mut tiers: Vec<_> = self.all.iter().map(tier).collect();
        tiers[0].region = region(scope, tree, tiers[0].remote.as_ref());
        self.check_servers(scope, &tiers);
        tiers
    }

    /// Reports stores that share a server, database and prefix: a purge in one would purge the other.
    fn check_servers(&self, scope: &mut Scope<'_>, tiers: &[StoreTier]) {
        for (index, (_, table)) in self.all.iter().enumerate() {
            let Some(remote) = &tiers[index].remote else { continue };
            let is_same = |earlier: &&StoreTier| {
                let earlier = earlier.remote.as_ref().map(|remote| place(&remote.server));
                earlier == Some(place(&remote.server))
            };
            let Some(earlier) = tiers[..index].iter().find(is_same) else { continue };
            if let Some(node) = url(table) {
                scope.error(
                    node,
                    format!(
                        "the store `{}` has the same server, database and prefix: give one of them another `prefix`",
                        earlier.name
                    ),
                );
            }
        }
    }
}

fn url(store: &Table) -> Option<&Node> {
    store.optional_table("remote")?.node("url")
}

/// Returns the server, database and prefix of a store's keys.
pub(super) fn place(server: &RemoteSettings) -> (&store::remote::Address, u32, &store::remote::Word) {
    (&server.address, server.database, &server.prefix)
}
