//! Stores of a process. Each has its own memory, tier and purges, and doesn't affect the sites of another.

use std::iter;

use crate::cache::Cache;
use crate::cache::readers::Readers;
use crate::cache::tiers::StartTier;
use crate::config::{Config, DEFAULT_STORE, Site, StoreIndex};

/// All stores, in the order of the configuration. They last as long as the process.
pub(crate) struct Stores(Box<[Store]>);

/// A store, with the clients that read from it.
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) cache: Cache,
    /// Clients that don't read on, and so hold memory of this store.
    pub(crate) readers: Readers,
}

impl Stores {
    /// Creates empty stores. If there are fewer tiers than stores, the others have none.
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

    /// Store for contents that belong to no site.
    pub(crate) fn first(&self) -> &Store {
        self.at(StoreIndex::default())
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = StoreIndex> + use<> {
        (0..self.0.len()).map(StoreIndex)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Store> {
        self.0.iter()
    }
}

impl Store {
    /// Name, for output about several stores; `None` for the default one.
    pub(crate) fn given_name(&self) -> Option<&str> {
        (self.name != DEFAULT_STORE).then_some(&self.name)
    }
}
