//! Whose stores a purge is for: those of the sites that it takes something from. The others, and their servers, hear nothing of it.

use std::collections::BTreeSet;

use store::purge::{Selection, What};

use crate::active::ActiveConfig;
use crate::cache::stores::{Store, Stores};
use crate::config::{Site, StoreIndex};

/// All of them, where no site has what is purged any more: it may have been stored when one had it. For the same reason those that no site
/// uses, and those whose sites a reload has changed.
pub(super) fn concerned<'a>(stores: &'a Stores, live: &ActiveConfig, what: &What) -> Vec<&'a Store> {
    let of_sites = of_sites(live, what);
    let is_concerned = |index: &StoreIndex| {
        of_sites.is_empty() || of_sites.contains(index) || live.routes.may_hold_more(*index)
    };
    stores.indices().filter(is_concerned).map(|index| stores.at(index)).collect()
}

fn of_sites(live: &ActiveConfig, what: &What) -> BTreeSet<StoreIndex> {
    match what {
        What::Selected(Selection { site: Some(name), .. }) => {
            let sites = live.config.sites.iter().filter(|site| site.name == *name);
            sites.map(|site| site.store).collect()
        }
        What::Selected(Selection { host: Some(host), .. }) => live.routes.stores_of_host(host),
        What::Selected(_) => live.config.sites.iter().map(|site| site.store).collect(),
        What::Url(_) | What::Everything => BTreeSet::new(),
    }
}

/// Those that a purge of a URL is for: where these sites store, and where those did that a reload has changed.
pub(super) fn of_url<'a, 's>(
    stores: &'a Stores,
    live: &ActiveConfig,
    sites: impl Iterator<Item = &'s Site>,
) -> Vec<&'a Store> {
    let of_sites: BTreeSet<StoreIndex> = sites.map(|site| site.store).collect();
    let is_concerned = |index: &StoreIndex| of_sites.contains(index) || live.routes.may_hold_more(*index);
    stores.indices().filter(is_concerned).map(|index| stores.at(index)).collect()
}
