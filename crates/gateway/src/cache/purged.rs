//! Applies purges to the entries that look-ups find.

use std::sync::Arc;

use store::Change;

use super::Cache;
use crate::cache::epochs::{PurgeEntry, Verdict};
use crate::cache::record::stored::{CacheEntry, StoredResponse};

/// Returns what purges leave of an entry, and changes the record so that this is done once.
#[cold]
pub(super) fn look_up(cache: &Cache, key: &[u8], found: Arc<CacheEntry>) -> Option<Arc<CacheEntry>> {
    if !has_purged(cache, key, &found) {
        return Some(found);
    }
    let mut left = None;
    cache.purged(key, |current| {
        let Some(entry) = current else { return Change::Keep };
        if !has_purged(cache, key, entry) {
            left = Some(Arc::clone(entry));
            return Change::Keep;
        }
        let change = left_of(cache, key, entry);
        // Held here: a memory that keeps nothing would have dropped it already.
        if let Change::Put(entry) = &change {
            left = Some(Arc::clone(entry));
        }
        change
    });
    left
}

/// See [`Cache::purge_behind`].
pub(super) fn purge_behind(cache: &Cache, key: &[u8]) -> Option<Arc<PurgeEntry>> {
    let entry = cache.at_hand(key);
    let heads = entry.iter().flat_map(|entry| entry.variants()).map(|variant| &variant.head);
    let number = heads.clone().find_map(|head| match cache.epochs.judge(key, head) {
        Verdict::Stale(number) | Verdict::Removed(number) => Some(number),
        Verdict::Current | Verdict::Invalidated => None,
    });
    if number.is_some() {
        return cache.epochs.purge_of(number?);
    }
    // Purges applied before are told by time: a newer response was not purged.
    let newest_ms = heads.map(|head| head.facts.response_time.as_ms()).max().unwrap_or(i64::MIN);
    let last = cache.epochs.last_purge_of(key)?;
    i64::try_from(last.record.at_ms).is_ok_and(|at_ms| at_ms >= newest_ms).then_some(last)
}

fn has_purged(cache: &Cache, key: &[u8], entry: &CacheEntry) -> bool {
    entry.variants().iter().any(|variant| {
        matches!(cache.epochs.judge(key, &variant.head), Verdict::Stale(_) | Verdict::Removed(_))
    })
}

fn left_of(cache: &Cache, key: &[u8], entry: &Arc<CacheEntry>) -> Change<CacheEntry> {
    let left: Vec<_> =
        entry.variants().iter().filter_map(|variant| left_of_response(cache, key, variant)).collect();
    if left.is_empty() {
        return Change::Remove;
    }
    let rest = CacheEntry::new(cache.budget(), left, entry.uncacheable());
    rest.map_or(Change::Remove, |rest| Change::Put(Arc::new(rest)))
}

fn left_of_response(cache: &Cache, key: &[u8], response: &StoredResponse) -> Option<StoredResponse> {
    let (epochs, upto) = (&cache.epochs, cache.epochs.stamp());
    match epochs.judge(key, &response.head) {
        Verdict::Removed(_) => None,
        Verdict::Current | Verdict::Invalidated => Some(response.clone()),
        Verdict::Stale(number) => {
            let since = epochs.stale_since(number, &response.head);
            let head = response.head.purged(since, (upto, epochs.place_of(upto)));
            Some(StoredResponse { head: Arc::new(head), body: response.body.clone() })
        }
    }
}
