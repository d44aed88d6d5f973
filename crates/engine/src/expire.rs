//! Expired keys that nobody asks for: found by segment, not by key.
//!
//! A segment knows the earliest expiry of its items. When that has come, the segment is read once, what has expired is given up, and the next
//! time is noted. A key thus needs no entry in a list of expiries, and a million that expire together are a few hundred segments.

use crate::item::Item;
use crate::losses::Cause;
use crate::segment::Segment;
use crate::shard::Shard;
use crate::slot::Place;

/// A segment is not read again before, however many of its items expire one after the other.
const AGAIN_MS: u64 = 100;

impl Shard {
    /// Gives up what has expired in up to so many segments that are due; how many there were. Fewer than `segments_max`: all is
    /// done for now.
    pub fn expire(&mut self, segments_max: usize, now_ms: u64) -> usize {
        let is_due = |number: &u32| self.segments.get(*number).expires_at_ms <= now_ms;
        let due: Vec<u32> = self.segments.numbers().filter(is_due).take(segments_max).collect();
        due.iter().for_each(|number| self.expire_segment(*number, now_ms));
        due.len()
    }

    fn expire_segment(&mut self, number: u32, now_ms: u64) {
        let segment = self.segments.take(number);
        let (mut offset, mut next_ms, mut dead_bytes) = (0, u64::MAX, 0);
        while offset < segment.used_bytes() {
            let item = Item::read(segment.rest(offset));
            let place = Place { segment: number, offset: offset as u32 };
            let item_bytes = item.header.item_bytes();
            offset += item_bytes;
            let Some(expires_at_ms) = item.expires_at_ms() else { continue };
            if expires_at_ms > now_ms {
                next_ms = next_ms.min(expires_at_ms);
            } else if self.give_up_expired(item, place) {
                dead_bytes += item_bytes;
            }
        }
        self.put_back_expired(number, segment, dead_bytes, next_ms.max(now_ms + AGAIN_MS));
    }

    fn put_back_expired(&mut self, number: u32, mut segment: Segment, dead_bytes: usize, next_ms: u64) {
        segment.live_bytes -= dead_bytes;
        segment.expires_at_ms = next_ms;
        let is_empty = segment.live_bytes == 0;
        self.segments.put_back(number, segment);
        if is_empty {
            self.free_if_sealed(number);
        }
    }

    /// Whether the item was alive.
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
