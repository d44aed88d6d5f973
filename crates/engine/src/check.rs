//! Invariants of a shard, for tests and `DEBUG`.

use crate::item::Item;
use crate::shard::{Counts, Shard};
use crate::slot::Place;

impl Shard {
    /// Checks the whole shard, and returns the first violation.
    ///
    /// # Errors
    /// If an invariant is violated. The error text is for developers of the engine.
    pub fn check(&self) -> Result<(), String> {
        if self.pending.is_some() {
            return Ok(());
        }
        self.budget.pools.segments.check()?;
        self.budget.pools.blocks.check()?;
        self.index.check()?;
        let mut counts =
            Counts { evicted: self.counts.evicted, expired: self.counts.expired, ..Counts::default() };
        let mut live_bytes = vec![0; self.segments.numbers().max().map_or(0, |last| last as usize + 1)];
        let mut keys = 0;
        for home in 0..self.index.buckets() {
            for (tag, slot) in self.index.tagged_slots_of(home) {
                let place = slot.place().ok_or("an empty slot is listed")?;
                let item = Item::read(self.segments.at(place));
                let hash = self.hash_of_item(item).ok_or_else(|| format!("{place:?} names no large item"))?;
                ensure(
                    self.index.home(hash) == home && tag == hash.tag(),
                    "a slot is in a wrong place",
                    place,
                )?;
                counts.add(item.header);
                live_bytes[place.segment as usize] += item.header.item_bytes();
                keys += 1;
            }
        }
        if keys != self.index.keys() || counts != self.counts {
            return Err(format!(
                "{keys} slots, {} keys; {counts:?} is not {:?}",
                self.index.keys(),
                self.counts
            ));
        }
        self.check_segments(&live_bytes)
    }

    fn check_segments(&self, live_bytes: &[usize]) -> Result<(), String> {
        let (known, found) =
            (self.segments.outside_bytes(), self.large.iter().map(|(_, large)| large.bytes()).sum::<usize>());
        if known != found {
            return Err(format!("large values have {found} bytes, not {known}"));
        }
        let open = [self.queues.small.open, self.queues.main.open];
        let mut queued: Vec<u32> = self.queues.sealed().chain(open.into_iter().flatten()).collect();
        queued.sort_unstable();
        let numbers: Vec<u32> = self.segments.numbers().collect();
        if queued != numbers {
            return Err(format!("segments {numbers:?} are not those of the queues, {queued:?}"));
        }
        for number in numbers {
            let (known, found) = (self.segments.get(number).live_bytes, live_bytes[number as usize]);
            if known != found {
                return Err(format!("segment {number} has {found} live bytes, not {known}"));
            }
        }
        Ok(())
    }
}

fn ensure(is_true: bool, what: &str, place: Place) -> Result<(), String> {
    if is_true { Ok(()) } else { Err(format!("{what}: {place:?}")) }
}
