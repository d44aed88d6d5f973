//! Prefetching of index and items. If the keys don't fit into the CPU caches, a lookup without prefetching
//! mostly waits for memory.

use std::ops::Range;

use crate::hash::{Hash, Key};
use crate::index::Hint;
use crate::item::{self, Header};
use crate::shard::{Shard, seconds};
use crate::slot::Place;

impl Shard {
    /// Prefetches the bucket of a key.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: Hash) -> Hint {
        let (hint, bucket) = self.index.hint(hash);
        prefetch(bucket);
        hint
    }

    /// Prefetches the first item that may belong to a key. The function reads the bucket, so prefetch the
    /// bucket first.
    #[inline]
    pub(crate) fn prefetch_item(&self, hash: Hash, hint: &mut Hint) {
        if let Some(place) = self.index.look_closer(hash, hint).and_then(|slot| slot.place()) {
            let item = self.segments.at(place);
            prefetch(&item[0]);
            // A short item ends on this cache line or the next. For a longer item, the hardware prefetcher
            // suffices.
            if let Some(end) = item.get(SHORT_BYTES) {
                prefetch(end);
            }
        }
    }

    /// Returns the value of a prefetched key, and counts this as an access. If the result is `None`, call
    /// [`Shard::get`]: the key isn't at the position of the hint, or its value is large or has an expiry.
    #[inline(always)]
    pub(crate) fn get_seen(&mut self, key: &Key<'_>, hint: Hint, now_ms: u64) -> Option<&[u8]> {
        let (place, header, value) = self.seen(key, hint)?;
        let used = self.used_once_more(header).used_at(seconds(now_ms));
        // The processor doesn't have to write back an unmodified cache line.
        if used != header {
            used.write(self.segments.at_mut(place));
        }
        self.segments.at(place).get(value)
    }

    /// Overwrites the value of a prefetched key. If the result is false, call [`Shard::set`].
    #[inline(always)]
    pub(crate) fn overwrite_seen(&mut self, key: &Key<'_>, hint: Hint, value: &[u8], now_ms: u64) -> bool {
        let Some((place, header, old)) = self.seen(key, hint) else { return false };
        if self.lifetimes.is_some() {
            return false;
        }
        let Some(header) = header.with_value_bytes(value.len()) else { return false };
        let used = self.used_once_more(header).used_at(seconds(now_ms));
        let bytes = self.segments.at_mut(place);
        used.write(bytes);
        item::copy(value, &mut bytes[old.start..old.start + value.len()]);
        true
    }

    /// Returns the place, header and value range of an item, if the item is at the position of the hint,
    /// isn't large and has no expiry.
    #[inline(always)]
    fn seen(&self, key: &Key<'_>, hint: Hint) -> Option<(Place, Header, Range<usize>)> {
        let place = self.index.seen(hint)?.place()?;
        let bytes = self.segments.at(place);
        let header = Header::read(bytes);
        let value = header.value_if_plain(key.database, key.bytes, bytes)?;
        Some((place, header, value))
    }
}

/// Header, key and value of a typical item: less than a cache line.
const SHORT_BYTES: usize = 47;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(
    unsafe_code,
    reason = "without prefetching, a GET among 10 million keys waits for two thirds of its time"
)]
#[inline]
fn prefetch<T>(what: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch has no effect on memory, and every x86-64 processor supports it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn prefetch<T>(_what: &T) {}
