//! Operations of a shard while it is loaded: parts of a file become segments, and their items get slots.

use crate::hash::{Hash, Key};
use crate::item::{Body, Content, Header, Item};
use crate::large::Large;
use crate::queue::Queue;
use crate::reclaim::{FREQUENCY_MAX, LFU_START};
use crate::segment::{SEGMENT_BYTES, Segment};
use crate::shard::{OutOfMemory, Shard, holds};
use crate::slot::{Place, Slot};

impl Shard {
    /// Adds a filled segment, already counted in the budget, to the end of a queue. The segment's items count
    /// as dead until they are indexed.
    pub(super) fn adopt(
        &mut self,
        segment: Segment,
        queue: Queue,
        used_bytes: usize,
    ) -> Result<u32, OutOfMemory> {
        let Some(number) = self.segments.add_filled(segment, used_bytes) else {
            self.budget.give_back(SEGMENT_BYTES);
            return Err(OutOfMemory);
        };
        let order = self.queues.of(queue);
        let full = order.open.replace(number);
        order.sealed.extend(full);
        Ok(number)
    }

    /// Stores the heap part of a large item, and records its number in the item.
    pub(super) fn attach(&mut self, large: Large, place: Place) {
        self.budget.take_anyway(large.bytes());
        let number = self.add_large(large);
        Item::write_large(self.segments.at_mut(place), number);
    }

    pub(super) fn drop_large_at(&mut self, place: Place) {
        if let Body::Large(number) = Item::read(self.segments.at(place)).body() {
            self.drop_large(number);
        }
    }

    pub(super) fn free_if_empty(&mut self, number: u32) {
        if self.segments.get(number).live_bytes == 0 {
            self.free_if_sealed(number);
        }
    }

    /// Converts a frequency to the policy's range.
    pub(super) fn frequency_within(&self, frequency: u8) -> u8 {
        if self.policy.is_lfu() { frequency.max(LFU_START) } else { frequency.min(FREQUENCY_MAX) }
    }

    /// Points the key's slot to the item at this place, and counts the item as alive.
    pub(super) fn index_loaded(&mut self, hash: Hash, place: Place) {
        let read = Header::read(self.segments.at(place));
        let counted = read.with_frequency(self.frequency_within(read.frequency()));
        counted.write_change(read, self.segments.at_mut(place));
        let item = Item::read(self.segments.at(place));
        let (header, expires_at_ms) = (item.header, item.expires_at_ms());
        let bytes = match item.body() {
            Body::Inline { key, .. } => key,
            Body::Large(number) => &*self.large[number as usize].key,
        };
        let key = Key { bytes, database: header.database(), hash };
        let (segments, large) = (&self.segments, &self.large);
        let old = self.index.find(hash, |slot| holds(segments, large, slot, &key));
        self.segments.get_mut(place.segment).note_live(header.item_bytes(), expires_at_ms);
        self.counts.add(header);
        self.point(hash, old, Slot::new(place));
    }

    /// Adds an item of a saved shard as a new item, unless it has expired.
    pub(super) fn add_saved(
        &mut self,
        queue: Queue,
        item: Item<'_>,
        large: Option<Large>,
        hash: Hash,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        if item.is_expired(now_ms) {
            return Ok(());
        }
        let (header, mut body, mut outside) = (item.header, item.body(), None);
        if let Some(large) = large {
            self.make_room_for(large.bytes(), now_ms)?;
            let number = self.add_large(large);
            (outside, body) = (Some(number), Body::Large(number));
        }
        let content = Content {
            database: header.database(),
            body,
            expires_at_ms: item.expires_at_ms(),
            used_s: header.used_s(),
            frequency: self.frequency_within(header.frequency()),
        };
        let appended = self.append(queue, &content, now_ms);
        let place = appended.inspect_err(|_| {
            if let Some(number) = outside {
                self.drop_large(number);
            }
        })?;
        self.counts.add(content.header());
        let (segments, large) = (&self.segments, &self.large);
        let bytes = match body {
            Body::Inline { key, .. } => key,
            Body::Large(number) => &*large[number as usize].key,
        };
        let key = Key { bytes, database: content.database, hash };
        let old =
            self.index.find(hash, |slot| slot.place() != Some(place) && holds(segments, large, slot, &key));
        self.point(hash, old, Slot::new(place));
        Ok(())
    }
}
