//! Stores of a process. Each store has its own memory, tier and purges, and doesn't affect the sites of other stores.

use std::iter;
use std::sync::Arc;

use cache::entry::stored::CacheEntry;
use cache::invalidation::{Invalidations, Purgers};
use cache::readers::Readers;
use cache::{Cache, RemoteTier};
use fleet::{StartTier, Tier};

use crate::config::{Config, DEFAULT_STORE, Site, StoreConfig, StoreIndex};

/// All stores, in the order of the configuration. The stores exist until the process ends.
pub(crate) struct Stores(Box<[Store]>);

/// A store, with the clients that read from it.
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) cache: Cache,
    /// Tier behind memory, if any.
    pub(crate) tier: Option<Arc<Tier>>,
    /// Clients that have stopped reading and therefore hold memory of this store.
    pub(crate) readers: Readers,
}

impl Stores {
    /// Creates empty stores. Stores without an entry in `tiers` have no tier.
    pub(crate) fn new(config: &Config, tiers: Vec<Option<StartTier>>) -> Self {
        let tiers = tiers.into_iter().chain(iter::repeat_with(|| None));
        let stores = config.stores.iter().zip(tiers).map(|(store, tier)| Store::new(config, store, tier));
        Self(stores.collect())
    }

    pub(crate) fn at(&self, index: StoreIndex) -> &Store {
        &self.0[index.0]
    }

    pub(crate) fn of(&self, site: &Site) -> &Store {
        self.at(site.store)
    }

    /// Returns the store for contents that belong to no site.
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
    fn new(config: &Config, store: &StoreConfig, tier: Option<StartTier>) -> Self {
        let memory = Arc::new(cache::memory(store.memory_bytes_max, config.file_use()));
        let purgers = if tier.is_some() { Purgers::Several } else { Purgers::This };
        let invalidations = Arc::new(Invalidations::new(purgers));
        let tier =
            tier.map(|tier| Arc::new(Tier::new(tier, Arc::clone(&memory), Arc::clone(&invalidations))));
        let remote = tier.clone().map(|tier| tier as Arc<dyn RemoteTier>);
        let cache = Cache::new(memory, invalidations, remote);
        Self { name: store.name.clone(), cache, tier, readers: Readers::default() }
    }

    /// Returns the name, for output about several stores; `None` for the default store.
    pub(crate) fn given_name(&self) -> Option<&str> {
        (self.name != DEFAULT_STORE).then_some(&self.name)
    }

    /// Returns whether the tier may have an entry that memory lacks, or a different version of `entry`, which memory has.
    #[inline]
    pub(crate) fn may_load(&self, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> bool {
        self.tier.as_ref().is_some_and(|tier| match entry {
            None => tier.may_have(key),
            Some(entry) => tier.is_suspect(entry) || tier.log.is_out_of_touch(),
        })
    }

    /// Returns whether an entry in memory must be validated, because another instance may have changed it unnoticed.
    #[inline]
    pub(crate) fn needs_verification(&self, entry: &CacheEntry) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.needs_verification(entry))
    }

    /// Returns the correction of a response's time of arrival, for the computation of its age.
    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        self.tier.as_ref().map_or(0, |tier| tier.clock_ahead_ms())
    }
}
