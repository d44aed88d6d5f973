//! Memory that is fetched before it is needed: with more keys than caches hold, most of the time of a call is waiting otherwise.

use crate::hash::Hash;
use crate::shard::Shard;

impl Shard {
    /// The bucket of a key.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: Hash) {
        prefetch(self.index.home_bucket(hash));
    }

    /// The first item that may be that of a key. Its bucket is read, and should have been fetched.
    #[inline]
    pub(crate) fn prefetch_item(&self, hash: Hash) {
        if let Some(place) = self.index.first_candidate(hash).and_then(|slot| slot.place()) {
            let item = self.segments.at(place);
            prefetch(&item[0]);
            // A short item ends on this line or on the next; what is longer than that the processor sees coming.
            if let Some(end) = item.get(SHORT_BYTES) {
                prefetch(end);
            }
        }
    }
}

/// Header, a key and a value as most are: less than a line of the cache.
const SHORT_BYTES: usize = 47;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(
    unsafe_code,
    reason = "two thirds of the time of a GET among 10 million keys are waiting without it"
)]
#[inline]
fn prefetch<T>(what: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: fetching what a reference points to changes nothing, and every processor of this architecture can do it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn prefetch<T>(_what: &T) {}
