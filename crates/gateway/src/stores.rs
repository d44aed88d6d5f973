//! The stores of a process. Each has memory, a tier and purges of its own: what happens to one of them is nothing to the sites of
//! another.

use std::iter;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::cache::Cache;
use crate::cache::tiers::{StartTier, Tiers};
use crate::config::{Config, DEFAULT_STORE, Site, StoreIndex};
use crate::server::readers::Readers;

/// All of them, in the order of the configuration; they stay as long as the process.
pub(crate) struct Stores(Box<[Store]>);

/// One of them.
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) cache: Cache,
    /// Clients that leave unread what it holds.
    pub(crate) readers: Readers,
}

/// A few operations of the tier, which has a deadline for each.
const END_SHARING_MAX: Duration = Duration::from_millis(500);

impl Stores {
    /// Empty ones. Where there are fewer tiers than stores, the others have none.
    pub(crate) fn new(config: &Config, tiers: Vec<Option<StartTier>>) -> Self {
        let tiers = tiers.into_iter().chain(iter::repeat_with(|| None));
        let stores = config.stores.iter().zip(tiers).map(|(store, tier)| Store {
            name: store.name.clone(),
            cache: Cache::new(store.memory_bytes_max, config.file_use(), tier),
            readers: Readers::default(),
        });
        Self(stores.collect())
    }

    pub(crate) fn at(&self, index: StoreIndex) -> &Store {
        &self.0[index.0]
    }

    pub(crate) fn of(&self, site: &Site) -> &Store {
        self.at(site.store)
    }

    /// The one that has what belongs to no site.
    pub(crate) fn first(&self) -> &Store {
        self.at(StoreIndex::default())
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = StoreIndex> + use<> {
        (0..self.0.len()).map(StoreIndex)
    }

    /// Waits until no body is given to other instances any more. To be called when no request can begin one.
    pub(crate) async fn nothing_shared(&self) {
        join_all(self.iter().filter_map(|store| store.cache.tiers()).map(Tiers::nothing_shared)).await;
    }

    /// Tells those who still get one that no more of it comes.
    pub(crate) async fn end_sharing(&self) {
        self.iter().filter_map(|store| store.cache.tiers()).for_each(Tiers::end_sharing);
        let _ = timeout(END_SHARING_MAX, self.nothing_shared()).await;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Store> {
        self.0.iter()
    }
}

impl Store {
    /// What it is called where there may be several; the first goes without a name there.
    pub(crate) fn given_name(&self) -> Option<&str> {
        (self.name != DEFAULT_STORE).then_some(&self.name)
    }
}
