//! Stores that a purge concerns: those of the sites that it takes something from. Other stores, and their servers, aren't told of it.

use std::collections::BTreeSet;

use store::purge::{Selection, What};

use crate::active::ActiveConfig;
use crate::config::{Site, StoreIndex};
use crate::stores::{Store, Stores};

/// Stores that a purge concerns. If no current site is selected, these are all stores: one may have had such a site. For the same
/// reason, stores that no site uses, and those whose sites a reload has changed, are always included.
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

/// Stores that the purge of a URL concerns: those of these sites, and those of sites that a reload has changed.
pub(super) fn of_url<'a, 's>(
    stores: &'a Stores,
    live: &ActiveConfig,
    sites: impl Iterator<Item = &'s Site>,
) -> Vec<&'a Store> {
    let of_sites: BTreeSet<StoreIndex> = sites.map(|site| site.store).collect();
    let is_concerned = |index: &StoreIndex| of_sites.contains(index) || live.routes.may_hold_more(*index);
    stores.indices().filter(is_concerned).map(|index| stores.at(index)).collect()
}
