//! Active expiration, by segment instead of by key.
//!
//! A segment knows the earliest expiry of its items. When that time has come, the segment is read once, its
//! expired items are removed, and the next expiry is recorded. So a key needs no entry in a list of expiries,
//! and to expire a million keys at once, the engine reads a few hundred segments.

use crate::item::Item;
use crate::losses::Cause;
use crate::shard::Shard;
use crate::slot::Place;

/// Minimum interval between two reads of a segment, regardless of how its items' expiries are distributed.
const AGAIN_MS: u64 = 100;

/// The expiry of a segment while it is read: later than any real expiry, but earlier than `u64::MAX`, which
/// means that no item expires.
const NOT_DUE_MS: u64 = u64::MAX - 1;

/// Number of segments whose expiry can be checked in the time that it takes to read one item.
const SEGMENTS_PER_ITEM: usize = 16;

/// A segment being read for expired items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    number: u32,
    serial: u64,
    offset: usize,
    /// The next expiry among the items read so far.
    next_ms: u64,
}

impl Shard {
    /// Reads at most `items_max` items in segments that have expired keys, and removes these keys. Returns
    /// the number of items read; if it is less than `items_max`, no expired keys are left for now.
    pub fn expire(&mut self, items_max: usize, now_ms: u64) -> usize {
        // The search for segments with expired keys takes time, so it counts as reading items.
        let mut items = (self.segments.numbers_max() / SEGMENTS_PER_ITEM).min(items_max.saturating_sub(1));
        while items < items_max {
            let begun = self.sweep.take().filter(|sweep| self.segments.is_same(sweep.number, sweep.serial));
            let Some(sweep) = begun.or_else(|| self.next_sweep(now_ms)) else { break };
            // An empty segment counts as one item, so that the loop terminates.
            items += self.sweep_on(sweep, items_max - items, now_ms).max(1);
        }
        items
    }

    fn next_sweep(&mut self, now_ms: u64) -> Option<Sweep> {
        let number =
            self.segments.numbers().find(|number| self.segments.get(*number).expires_at_ms <= now_ms)?;
        let segment = self.segments.get_mut(number);
        // From now on, the segment only records expiries of newly written items. Until the segment has been
        // read to its end, its unread items count as not yet due.
        segment.expires_at_ms = NOT_DUE_MS;
        Some(Sweep { number, serial: segment.serial(), offset: 0, next_ms: u64::MAX })
    }

    /// Returns the number of items read.
    fn sweep_on(&mut self, sweep: Sweep, items_max: usize, now_ms: u64) -> usize {
        let Sweep { number, serial, mut offset, mut next_ms } = sweep;
        let mut segment = self.segments.take(number);
        let mut items = 0;
        while offset < segment.used_bytes() && items < items_max {
            let item = Item::read(segment.rest(offset));
            let place = Place { segment: number, offset: offset as u32 };
            let item_bytes = item.header.item_bytes();
            offset += item_bytes;
            items += 1;
            let Some(expires_at_ms) = item.expires_at_ms() else { continue };
            if expires_at_ms > now_ms {
                next_ms = next_ms.min(expires_at_ms);
            } else if self.give_up_expired(item, place) {
                segment.live_bytes -= item_bytes;
            }
        }
        if offset < segment.used_bytes() {
            self.sweep = Some(Sweep { number, serial, offset, next_ms });
        } else {
            let written_ms = Some(segment.expires_at_ms).filter(|at_ms| *at_ms != NOT_DUE_MS);
            segment.expires_at_ms = written_ms.unwrap_or(u64::MAX).min(next_ms).max(now_ms + AGAIN_MS);
        }
        let is_empty = segment.live_bytes == 0;
        self.segments.put_back(number, segment);
        if is_empty {
            self.free_if_sealed(number);
        }
        items
    }

    /// Removes an expired item. Returns false if the index doesn't refer to the item.
    fn give_up_expired(&mut self, item: Item<'_>, place: Place) -> bool {
        let Some(hash) = self.hash_of_item(item) else { return false };
        let Some((at, _)) = self.index.find(hash, |slot| slot.place() == Some(place)) else { return false };
        self.note_loss_of(item, Cause::Expired);
        self.uncount(item.header);
        self.index.remove(at);
        self.give_up_large(item);
        true
    }
}
