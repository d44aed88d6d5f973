//! What is seen of a key before it is looked for, and memory that is fetched before it is needed: with more keys than caches
//! hold, most of the time of a call is waiting otherwise.

use std::ops::Range;

use crate::hash::{Hash, Key};
use crate::index::Hint;
use crate::item::{self, Header};
use crate::shard::{Shard, seconds};
use crate::slot::Place;

impl Shard {
    /// The bucket of a key.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: Hash) -> Hint {
        let (hint, bucket) = self.index.hint(hash);
        prefetch(bucket);
        hint
    }

    /// The first item that may be that of a key. Its bucket is read, and should have been fetched.
    #[inline]
    pub(crate) fn prefetch_item(&self, hash: Hash, hint: &mut Hint) {
        if let Some(place) = self.index.look_closer(hash, hint).and_then(|slot| slot.place()) {
            let item = self.segments.at(place);
            prefetch(&item[0]);
            // A short item ends on this line or on the next; what is longer than that the processor sees coming.
            if let Some(end) = item.get(SHORT_BYTES) {
                prefetch(end);
            }
        }
    }

    /// The value of a key that was looked at ahead, and uses it. None says nothing: [`Shard::get`] is to be asked then, for what is not
    /// where it seemed to be, is large or expires.
    #[inline(always)]
    pub(crate) fn get_seen(&mut self, key: &Key<'_>, hint: Hint, now_ms: u64) -> Option<&[u8]> {
        let (place, header, value) = self.seen(key, hint)?;
        let used = self.used_once_more(header).used_at(seconds(now_ms));
        // A line of memory that is as it was need not be written back.
        if used != header {
            used.write(self.segments.at_mut(place));
        }
        self.segments.at(place).get(value)
    }

    /// Writes a value over that of a key that was looked at ahead. No says nothing: [`Shard::set`] is to be asked then.
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

    /// The item of a key, if it is where it seemed to be and neither large nor to expire: where it begins, and where its value is.
    #[inline(always)]
    fn seen(&self, key: &Key<'_>, hint: Hint) -> Option<(Place, Header, Range<usize>)> {
        let place = self.index.seen(hint)?.place()?;
        let bytes = self.segments.at(place);
        let header = Header::read(bytes);
        let value = header.value_if_plain(key.database, key.bytes, bytes)?;
        Some((place, header, value))
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
