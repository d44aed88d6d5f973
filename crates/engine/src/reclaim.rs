//! Freeing memory: choosing the segment to empty, and the items to keep.

use crate::ghosts::Ghosts;
use crate::hash::Hash;
use crate::index::Index;
use crate::item::{Body, Content, Header, Item};
use crate::losses::Cause;
use crate::policy::Policy;
use crate::queue::{Order, Queue};
use crate::segment::SEGMENT_BYTES;
use crate::shard::{OutOfMemory, Shard, seconds};
use crate::slot::{Place, Slot};

/// New keys use one segment of this many.
pub(crate) const SMALL_SHARE: usize = 10;
/// Highest access count of S3-FIFO.
pub(crate) const FREQUENCY_MAX: u8 = 3;
/// Accesses that promote a new key to the main queue.
const PROVEN_FREQUENCY: u8 = 2;
/// Keys sampled to estimate the distribution of ranks.
const SAMPLES: usize = 32;
/// Position of the highest rank to evict among the sorted samples.
const SAMPLES_EVICTED: usize = 10;
/// LFU: the larger this factor, the more accesses it takes to increment the counter (Redis'
/// `lfu-log-factor`).
const LFU_FACTOR: u64 = 10;
/// LFU: the counter of a new key, so that it isn't evicted immediately.
pub(crate) const LFU_START: u8 = 5;
/// LFU: seconds without access that decrement the counter (Redis' `lfu-decay-time`).
const LFU_DECAY_S: u32 = 60;

/// Bytes to process in the segment being emptied per byte written. At this rate, many writes share the work,
/// and the segment is empty before the open one is full, even if a second segment has to be emptied.
const EMPTIED_PER_BYTE: usize = 3;
/// [`EMPTIED_PER_BYTE`] while usage exceeds the limit. Each policy evicts at least a third of all keys, so
/// this rate frees more memory than the kept items take.
const MADE_UP_PER_BYTE: usize = 12;
/// Minimum number of dead bytes for emptying a segment if no key may, or should, be evicted.
const WORTH_STRICTLY: usize = SEGMENT_BYTES / 8;
/// Emptying begins when the open segment has this many bytes left. An earlier start would evict items that
/// could still be requested.
const EMPTIED_FROM: usize = SEGMENT_BYTES / 2;

/// A segment being emptied in steps. The segment stays in its queue until it is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emptying {
    number: u32,
    serial: u64,
    mode: Mode,
}

/// The remaining budget of a search for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomSearch {
    /// Number of segments that may still be emptied.
    rounds: usize,
    /// Bytes to leave for other shards if this shard takes more memory than the average.
    unit_bytes: usize,
    /// Bytes currently left for other shards.
    left_bytes: usize,
}

/// Bounds of one step of emptying a segment.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Bytes of the segment to process.
    bytes: usize,
    /// The step stops when usage falls to this value, because a segment may refer to large values of many
    /// times its own size.
    used_bytes_max: u64,
}

/// The fate of an item in a segment being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost(Cause),
    /// The item is kept, with this frequency.
    Kept(u8),
}

/// The highest rank that is evicted. Items that rank higher are kept.
#[derive(Clone, Copy, Debug)]
struct Threshold(u64);

/// How a segment is emptied.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Moves live items within their queue, to free dead bytes.
    Compact(Queue),
    Evict(Queue, Threshold),
}

impl Shard {
    /// Appends an item to a queue.
    pub(crate) fn append(
        &mut self,
        queue: Queue,
        content: &Content<'_>,
        now_ms: u64,
    ) -> Result<Place, OutOfMemory> {
        let item_bytes = content.item_bytes();
        if self.is_short {
            self.keep_memory(queue, item_bytes, now_ms);
        }
        if !self.has_room(queue, item_bytes) {
            self.open_segment(queue, item_bytes, now_ms)?;
        }
        Ok(self.append_here(queue, content))
    }

    /// Performs a write's share of emptying a segment. Kept items may take new segments regardless of the
    /// budget. If most items are kept, they fill one segment after another, so the write then processes more
    /// bytes.
    pub(crate) fn keep_memory(&mut self, queue: Queue, item_bytes: usize, now_ms: u64) {
        if self.budget.free_cleared() {
            // Freeing a cleared shard has freed at least a segment, so none has to be emptied.
            return;
        }
        if !self.budget.is_exceeded() {
            self.lent_segments = 0;
            if self.room(queue) < EMPTIED_FROM {
                self.empty_some(item_bytes * EMPTIED_PER_BYTE, now_ms);
            }
            return;
        }
        self.empty_some(item_bytes * MADE_UP_PER_BYTE, now_ms);
        // One lent segment is permitted, because the segment being emptied will compensate for it.
        if self.lent_segments <= 1 || self.is_reserved {
            return;
        }
        for _ in 0..self.rounds_max() {
            let is_done = self.lent_segments <= 1 || !self.budget.is_exceeded();
            if is_done || !self.relieve(self.budget.bytes_max(), now_ms) {
                return;
            }
        }
    }

    /// Refuses writes while usage exceeds the limit and nothing may be evicted, even if a segment has room. A
    /// write with a reservation is always permitted.
    pub(crate) fn refuse_above_limit(&self) -> Result<(), OutOfMemory> {
        let is_kept =
            self.policy == Policy::NoEviction || self.policy.is_volatile() && self.budget.is_stuck();
        if is_kept && !self.is_reserved && self.budget.is_exceeded() { Err(OutOfMemory) } else { Ok(()) }
    }

    /// Performs the share of emptying for a changed expiry, because the item was written again. The old item
    /// is dead, so if a segment has enough dead bytes, no key is evicted.
    pub(crate) fn make_up_for_rewritten(&mut self, queue: Queue, item_bytes: usize, now_ms: u64) {
        if !self.budget.is_exceeded() {
            return;
        }
        if self.begun().is_none() {
            self.emptying = self.compacting(WORTH_STRICTLY);
        }
        self.keep_memory(queue, item_bytes, now_ms);
    }

    /// Evicts until the budget has room for heap memory, and takes the room.
    pub(crate) fn make_room_for(&mut self, bytes: usize, now_ms: u64) -> Result<(), OutOfMemory> {
        if !self.budget.could_hold(bytes) {
            return Err(OutOfMemory);
        }
        self.leave_if_not_in_turn();
        let mut search = self.room_search(bytes);
        while !self.take(&search, bytes) {
            self.empty_for(&mut search, bytes, now_ms)?;
        }
        Ok(())
    }

    /// Frees a segment without live items, unless it is open.
    pub(crate) fn free_if_sealed(&mut self, number: u32) {
        if self.queues.remove_sealed(number) {
            self.free(number);
        } else {
            // An open segment is reset instead.
            self.segments.reset(number);
        }
    }

    /// Returns the header of an item after one more access.
    #[inline]
    pub(crate) fn used_once_more(&mut self, header: Header) -> Header {
        let frequency = header.frequency();
        if !self.policy.is_lfu() {
            return if frequency < FREQUENCY_MAX { header.with_frequency(frequency + 1) } else { header };
        }
        let steps = u64::from(frequency.saturating_sub(LFU_START)) * LFU_FACTOR + 1;
        let is_step = frequency < u8::MAX && self.chance.next().is_multiple_of(steps);
        if is_step { header.with_frequency(frequency + 1) } else { header }
    }

    /// The frequency of a new key.
    pub(crate) fn first_frequency(&self) -> u8 {
        if self.policy.is_lfu() { LFU_START } else { 0 }
    }

    fn has_room(&mut self, queue: Queue, item_bytes: usize) -> bool {
        self.queues.of(queue).open.is_some_and(|open| self.segments.get(open).has_room(item_bytes))
    }

    fn append_here(&mut self, queue: Queue, content: &Content<'_>) -> Place {
        let segment = self.queues.of(queue).open.expect("a segment was opened");
        let offset = self.segments.get_mut(segment).append(content);
        Place { segment, offset: offset as u32 }
    }

    fn open_segment(&mut self, queue: Queue, item_bytes: usize, now_ms: u64) -> Result<(), OutOfMemory> {
        let mut search = self.room_search(SEGMENT_BYTES);
        while self.segments.are_exhausted() || !self.take(&search, SEGMENT_BYTES) {
            // If the maximum number of segments is reached, one has to be freed regardless of the budget.
            let bytes = if self.segments.are_exhausted() { usize::MAX } else { SEGMENT_BYTES };
            self.empty_for(&mut search, bytes, now_ms)?;
            // Emptying may have opened another segment, which has room.
            if self.has_room(queue, item_bytes) {
                return Ok(());
            }
        }
        self.install(queue).inspect_err(|_| self.budget.give_back(SEGMENT_BYTES))?;
        self.is_short = self.lacks_segment();
        Ok(())
    }

    /// Returns the bytes that this shard leaves to others. A shard larger than the average leaves the last
    /// segment (or room for a value of this size) to other shards, so it frees two segments before it takes
    /// one. Otherwise any shard could take the memory that another has freed, and the sizes would drift apart
    /// by chance: to a third and to 1.7 times the average within two million requests, with up to 2 % more
    /// misses.
    fn left_bytes(&self, unit_bytes: usize) -> usize {
        if self.segments.are_above_average() { unit_bytes } else { 0 }
    }

    fn lacks_segment(&self) -> bool {
        self.budget.lacks_segment(self.left_bytes(SEGMENT_BYTES))
    }

    /// Bytes that can be written before another segment is needed.
    fn room(&mut self, queue: Queue) -> usize {
        self.queues.of(queue).open.map_or(0, |open| SEGMENT_BYTES - self.segments.get(open).used_bytes())
    }

    fn emptying_of(&self, number: u32, mode: Mode) -> Emptying {
        Emptying { number, serial: self.segments.get(number).serial(), mode }
    }

    /// Opens a new segment that the budget has already counted.
    fn install(&mut self, queue: Queue) -> Result<(), OutOfMemory> {
        let number = self.segments.add().ok_or(OutOfMemory)?;
        let order = self.queues.of(queue);
        let full = order.open.replace(number);
        order.sealed.extend(full);
        Ok(())
    }

    /// Begins a search for room of this size.
    pub(crate) fn room_search(&self, unit_bytes: usize) -> RoomSearch {
        RoomSearch { rounds: self.rounds_max(), unit_bytes, left_bytes: self.left_bytes(unit_bytes) }
    }

    /// Takes bytes from the reservation or from the budget. Returns whether either had enough.
    pub(crate) fn take(&mut self, search: &RoomSearch, bytes: usize) -> bool {
        if let Some(rest) = self.reserved_bytes.checked_sub(bytes) {
            self.reserved_bytes = rest;
            return true;
        }
        self.budget.take_beside(search.left_bytes, bytes)
    }

    /// Empties one more segment, or a part of it if that makes room for `bytes`. If no segment can be
    /// emptied, uses the bytes left for other shards, too.
    pub(crate) fn empty_for(
        &mut self,
        search: &mut RoomSearch,
        bytes: usize,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        let used_bytes_max = self.budget.used_bytes_beside(search.left_bytes.saturating_add(bytes));
        let is_emptied = search.rounds > 0 && self.relieve(used_bytes_max, now_ms);
        *search = match (is_emptied, search.left_bytes) {
            (true, left_bytes) => {
                let left_bytes = left_bytes.min(self.left_bytes(search.unit_bytes));
                RoomSearch { rounds: search.rounds - 1, left_bytes, ..*search }
            }
            (false, 0) => return Err(OutOfMemory),
            (false, _) => RoomSearch { left_bytes: 0, ..*search },
        };
        Ok(())
    }

    /// Frees `bytes`, or as much as possible, under the lock of the shard. Returns the number of bytes freed,
    /// minus the bytes that moved items take.
    pub(crate) fn give(&mut self, bytes: usize, now_ms: u64) -> usize {
        let held_bytes = |shard: &Self| shard.segments.bytes() + shard.index.bytes() + shard.ghosts.bytes();
        let before = held_bytes(self);
        let mut given_bytes = 0;
        for _ in 0..self.rounds_max() {
            let used_bytes_max = self.budget.used_bytes().saturating_sub((bytes - given_bytes) as u64);
            if !self.relieve(used_bytes_max, now_ms) {
                break;
            }
            given_bytes = before.saturating_sub(held_bytes(self));
            if given_bytes >= bytes {
                break;
            }
        }
        given_bytes
    }

    /// Evicts until usage is within the limit, or nothing more can be evicted.
    pub(crate) fn make_up(&mut self, now_ms: u64) {
        for _ in 0..self.rounds_max() {
            if !self.budget.is_exceeded() || !self.relieve(self.budget.bytes_max(), now_ms) {
                return;
            }
        }
    }

    /// Upper bound for the number of segments to empty in a search. S3-FIFO may visit the items several
    /// times, because each visit lowers their frequencies by one. The other policies evict the items with the
    /// lowest ranks at the first visit, and don't visit segments without evictable items.
    pub(crate) fn rounds_max(&self) -> usize {
        (self.segments.count() + 1) * (usize::from(FREQUENCY_MAX) + 1)
    }

    /// Empties one segment, and stops early if usage falls to `used_bytes_max`. Returns whether there was a
    /// segment to empty.
    pub(crate) fn relieve(&mut self, used_bytes_max: u64, now_ms: u64) -> bool {
        let Some(emptying) = self.begun().or_else(|| self.victim(now_ms)) else { return self.begin_anew() };
        self.empty_on(emptying, Step { bytes: usize::MAX, used_bytes_max }, now_ms);
        true
    }

    /// Frees the memory that an empty shard has retained: its index, its open segments, and its ghosts.
    /// Returns whether the shard had memory to free.
    pub(crate) fn begin_anew(&mut self) -> bool {
        if self.index.keys() > 0 || self.index.buckets() == 1 || self.pending.is_some() || self.is_reserved {
            return false;
        }
        let tables_bytes = |shard: &Self| shard.index.bytes() + shard.ghosts.bytes();
        let before = tables_bytes(self);
        self.index = Index::new(&self.budget.pools.blocks);
        self.ghosts = Ghosts::default();
        self.charge_tables();
        let open = [Queue::Small, Queue::Main].map(|queue| self.queues.of(queue).open.take());
        (self.sweep, self.emptying) = (None, None);
        open.into_iter().flatten().for_each(|number| self.free(number));
        tables_bytes(self) < before || open != [None; 2]
    }

    /// Returns the segment being emptied, unless it has been freed.
    fn begun(&self) -> Option<Emptying> {
        self.emptying.filter(|emptying| self.segments.is_same(emptying.number, emptying.serial))
    }

    /// Stops emptying a segment if the other queue exceeds its share, because a segment may refer to
    /// thousands of large values. The emptying of this segment continues when its queue exceeds its share
    /// again.
    fn leave_if_not_in_turn(&mut self) {
        if let Some(Emptying { mode: Mode::Evict(queue, _), .. }) = self.emptying
            && self.policy == Policy::AllKeysS3Fifo
            && self.is_turn_of_small() != (queue == Queue::Small)
        {
            self.emptying = None;
        }
    }

    /// Performs one step of emptying, so that writes share the work. Begins another segment if none is being
    /// emptied.
    fn empty_some(&mut self, bytes: usize, now_ms: u64) {
        // A reservation relies on the room in open segments.
        if self.is_reserved {
            return;
        }
        let Some(emptying) = self.begun().or_else(|| self.next_emptying(now_ms)) else {
            // No key may be evicted, so while usage exceeds the limit, writes check the budget first.
            self.is_short = self.budget.is_exceeded();
            return;
        };
        let used_bytes_max = self.budget.used_bytes_beside(self.left_bytes(SEGMENT_BYTES) + SEGMENT_BYTES);
        self.empty_on(emptying, Step { bytes, used_bytes_max }, now_ms);
        self.is_short = self.emptying.is_some() || self.lacks_segment();
    }

    /// Chooses the next segment to empty. At least one segment has to be sealed already.
    fn next_emptying(&mut self, now_ms: u64) -> Option<Emptying> {
        self.queues.sealed().next()?;
        self.victim(now_ms)
    }

    fn free(&mut self, number: u32) {
        self.segments.remove(number);
        self.budget.give_back(SEGMENT_BYTES);
    }

    /// Chooses the segment to empty, and how.
    fn victim(&mut self, now_ms: u64) -> Option<Emptying> {
        if let Some(compacting) = self.compacting(self.worth_compacting()) {
            return Some(compacting);
        }
        if !self.may_evict() {
            return None;
        }
        let (queue, number) = self.oldest()?;
        let threshold = self.threshold(now_ms);
        Some(self.emptying_of(number, Mode::Evict(queue, threshold)))
    }

    /// The segment with the most dead bytes, if it has at least `dead_bytes_min`.
    fn compacting(&self, dead_bytes_min: usize) -> Option<Emptying> {
        let dead_bytes = |number: &u32| SEGMENT_BYTES - self.segments.get(*number).live_bytes;
        // A partly emptied segment stays at the front of its queue for eviction.
        let whole = self.queues.sealed().filter(|number| self.segments.get(*number).emptied_bytes == 0);
        let number = whole.max_by_key(dead_bytes).filter(|number| dead_bytes(number) >= dead_bytes_min)?;
        Some(self.emptying_of(number, Mode::Compact(self.queues.queue_of(number)?)))
    }

    /// Returns whether any key may be evicted.
    fn may_evict(&self) -> bool {
        match self.policy {
            Policy::NoEviction => false,
            policy if policy.is_volatile() => self.counts.expiring.iter().any(|keys| *keys > 0),
            _ => true,
        }
    }

    /// Returns whether this segment may contain evictable keys. Without any, emptying the segment only moves
    /// its items.
    fn may_evict_from(&self, number: u32) -> bool {
        !self.policy.is_volatile() || self.segments.get(number).may_expire()
    }

    /// Minimum number of dead bytes in a segment for which moving its live items is better than evicting
    /// keys.
    fn worth_compacting(&self) -> usize {
        match () {
            () if self.may_evict() => SEGMENT_BYTES / 2,
            // Changed expiries have taken memory above the limit, and only compaction can free it.
            () if self.budget.is_exceeded() => SEGMENT_BYTES / 32,
            () => WORTH_STRICTLY,
        }
    }

    /// Chooses the segment to evict from. An open segment is chosen only if no segment is sealed, or if there
    /// are large values, because an open segment may refer to thousands of them.
    fn oldest(&mut self) -> Option<(Queue, u32)> {
        let queues = match self.is_turn_of_small() {
            true => [Queue::Small, Queue::Main],
            false => [Queue::Main, Queue::Small],
        };
        let whole = queues.into_iter().find_map(|queue| self.oldest_sealed(queue));
        if self.large.is_empty() && whole.is_some() {
            return whole;
        }
        queues.into_iter().find_map(|queue| self.oldest_sealed(queue).or_else(|| self.oldest_open(queue)))
    }

    fn oldest_sealed(&self, queue: Queue) -> Option<(Queue, u32)> {
        let mut sealed = self.queues.order(queue).sealed.iter();
        sealed.find(|number| self.may_evict_from(**number)).map(|number| (queue, *number))
    }

    /// Returns whether new keys exceed their share. Under the policies of Redis, the main queue only has keys
    /// from an earlier policy.
    fn is_turn_of_small(&self) -> bool {
        let live_bytes = |queue| {
            let Order { sealed, open } = self.queues.order(queue);
            sealed.iter().chain(open).map(|number| self.segments.get(*number).live_bytes).sum::<usize>()
        };
        let (small, main) = (live_bytes(Queue::Small), live_bytes(Queue::Main));
        self.policy == Policy::AllKeysS3Fifo && small * SMALL_SHARE > small + main
    }

    /// Returns the open segment of a queue. Seals it first if kept items go to the same queue.
    fn oldest_open(&mut self, queue: Queue) -> Option<(Queue, u32)> {
        let is_for_kept = self.queue_of_kept() == queue;
        let open = self
            .queues
            .order(queue)
            .open
            .filter(|open| self.segments.get(*open).live_bytes > 0 && self.may_evict_from(*open))?;
        let order = self.queues.of(queue);
        if is_for_kept {
            order.sealed.extend(order.open.take());
        }
        Some((queue, open))
    }

    /// The queue for kept items. The policies of Redis use a single queue, which empties one segment after
    /// the other.
    fn queue_of_kept(&self) -> Queue {
        if self.policy == Policy::AllKeysS3Fifo { Queue::Main } else { Queue::Small }
    }

    /// Processes the next part of the segment: moves the kept items and removes the others. Frees the segment
    /// when all of it has been processed.
    fn empty_on(&mut self, emptying: Emptying, step: Step, now_ms: u64) {
        let Emptying { number, mode, .. } = emptying;
        // The segment is taken out of the table while it is read, so that other segments can be written.
        let mut segment = self.segments.take(number);
        let mut offset = segment.emptied_bytes;
        let end = offset.saturating_add(step.bytes).min(segment.used_bytes());
        while offset < end && self.budget.used_bytes() > step.used_bytes_max {
            let item = Item::read(segment.rest(offset));
            let place = Place { segment: number, offset: offset as u32 };
            let item_bytes = item.header.item_bytes();
            offset += item_bytes;
            if self.settle(item, place, mode, now_ms) {
                segment.live_bytes -= item_bytes;
            }
        }
        segment.emptied_bytes = offset;
        let is_done = segment.live_bytes == 0 || offset >= segment.used_bytes();
        self.segments.put_back(number, segment);
        self.emptying = (!is_done).then_some(emptying);
        if is_done {
            self.queues.remove(number);
            self.free(number);
            self.lent_segments = self.lent_segments.saturating_sub(1);
        }
    }

    /// Moves or removes an item, if it is alive. Returns whether the item was alive.
    fn settle(&mut self, item: Item<'_>, place: Place, mode: Mode, now_ms: u64) -> bool {
        let Some(hash) = self.hash_of_item(item) else { return false };
        let Some((at, _)) = self.index.find(hash, |slot| slot.place() == Some(place)) else {
            return false;
        };
        match self.fate(item, mode, now_ms) {
            Fate::Kept(frequency) => {
                let content = Content {
                    database: item.header.database(),
                    body: item.body(),
                    expires_at_ms: item.expires_at_ms(),
                    used_s: item.header.used_s(),
                    frequency,
                };
                let queue = if let Mode::Compact(queue) = mode { queue } else { self.queue_of_kept() };
                let moved = self.relocate(queue, &content);
                self.index.put(at, Slot::new(moved));
            }
            Fate::Lost(cause) => {
                self.note_loss_of(item, cause);
                self.uncount(item.header);
                self.index.remove(at);
                self.give_up_large(item);
                self.remember(hash, cause, mode);
            }
        }
        true
    }

    /// Appends an item to a queue, regardless of room.
    ///
    /// # Errors
    /// If the maximum number of segments is reached.
    pub(crate) fn append_anyway(
        &mut self,
        queue: Queue,
        content: &Content<'_>,
    ) -> Result<Place, OutOfMemory> {
        if self.segments.are_exhausted() && !self.has_room(queue, content.item_bytes()) {
            return Err(OutOfMemory);
        }
        Ok(self.relocate(queue, content))
    }

    /// Appends an item. Takes another segment regardless of the budget if necessary, because the segment
    /// being emptied will compensate for it.
    fn relocate(&mut self, queue: Queue, content: &Content<'_>) -> Place {
        if !self.has_room(queue, content.item_bytes()) {
            self.budget.take_anyway(SEGMENT_BYTES);
            self.lent_segments += 1;
            self.install(queue).expect("the number of the emptied segment is not in use");
        }
        self.append_here(queue, content)
    }

    pub(crate) fn give_up_large(&mut self, item: Item<'_>) {
        if let Body::Large(number) = item.body() {
            self.drop_large(number);
        }
    }

    fn remember(&mut self, hash: Hash, cause: Cause, mode: Mode) {
        let is_of_small = matches!(mode, Mode::Evict(Queue::Small, _));
        if cause == Cause::Evicted && is_of_small && self.policy == Policy::AllKeysS3Fifo {
            self.ghosts.add(hash, self.index.keys());
            self.charge_tables();
        }
    }

    fn fate(&mut self, item: Item<'_>, mode: Mode, now_ms: u64) -> Fate {
        let frequency = item.header.frequency();
        if item.is_expired(now_ms) {
            return Fate::Lost(Cause::Expired);
        }
        let Mode::Evict(queue, threshold) = mode else { return Fate::Kept(frequency) };
        if self.policy.is_volatile() && !item.header.expires() {
            return Fate::Kept(frequency);
        }
        let is_kept = match (self.policy, queue) {
            (Policy::AllKeysS3Fifo, Queue::Small) => frequency >= PROVEN_FREQUENCY,
            (Policy::AllKeysS3Fifo, Queue::Main) => frequency > 0,
            _ => self.rank(item, now_ms) > threshold.0,
        };
        match (is_kept, self.policy, queue) {
            (false, ..) => Fate::Lost(Cause::Evicted),
            (true, Policy::AllKeysS3Fifo, Queue::Small) => Fate::Kept(0),
            (true, Policy::AllKeysS3Fifo, Queue::Main) => Fate::Kept(frequency - 1),
            (true, ..) => Fate::Kept(frequency),
        }
    }

    /// Returns the highest rank to evict, estimated from a sample of all evictable keys.
    fn threshold(&mut self, now_ms: u64) -> Threshold {
        if matches!(self.policy, Policy::AllKeysS3Fifo | Policy::NoEviction) {
            return Threshold(0);
        }
        let mut ranks = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES * 4 {
            let Some(slot) = self.random_slot() else { continue };
            let Some(place) = slot.place() else { continue };
            let item = Item::read(self.segments.at(place));
            if !self.policy.is_volatile() || item.header.expires() {
                ranks.push(rank(self.policy, item, now_ms));
            }
            if ranks.len() == SAMPLES {
                break;
            }
        }
        ranks.sort_unstable();
        Threshold(ranks.get(ranks.len() * SAMPLES_EVICTED / SAMPLES).copied().unwrap_or(u64::MAX))
    }

    fn rank(&mut self, item: Item<'_>, now_ms: u64) -> u64 {
        match self.policy {
            Policy::AllKeysRandom | Policy::VolatileRandom => self.chance.next(),
            policy => rank(policy, item, now_ms),
        }
    }

    /// A random slot of a random bucket.
    pub(crate) fn random_slot(&mut self) -> Option<Slot> {
        let home = self.chance.below(self.index.buckets());
        let slots: Vec<Slot> = self.index.slots_of(home).collect();
        (!slots.is_empty()).then(|| slots[self.chance.below(slots.len())])
    }

    /// Returns the hash of an item's key, or `None` for a large item that was removed. If its number has been
    /// reused, the hash is that of another key, but no slot has both this hash and this place.
    pub(crate) fn hash_of_item(&self, item: Item<'_>) -> Option<Hash> {
        let key = match item.body() {
            Body::Inline { key, .. } => key,
            Body::Large(number) => &*self.large.get(number as usize)?.key,
        };
        Some(self.hasher.hash(item.header.database(), key))
    }

    pub(crate) fn note_loss_of(&mut self, item: Item<'_>, cause: Cause) {
        let database = item.header.database();
        match item.body() {
            Body::Inline { key, .. } => self.note_loss(key, database, cause),
            Body::Large(number) => {
                let key = self.large[number as usize].key.clone();
                self.note_loss(&key, database, cause);
            }
        }
    }
}

/// The rank of an item. The lowest rank is evicted first.
fn rank(policy: Policy, item: Item<'_>, now_ms: u64) -> u64 {
    let idle_s = item.header.idle_s(seconds(now_ms));
    match policy {
        Policy::AllKeysLru | Policy::VolatileLru => u64::from(u32::MAX - idle_s),
        Policy::AllKeysLfu | Policy::VolatileLfu => {
            u64::from(item.header.frequency()).saturating_sub(u64::from(idle_s / LFU_DECAY_S))
        }
        Policy::VolatileTtl => item.expires_at_ms().unwrap_or(u64::MAX),
        _ => u64::MAX / 2,
    }
}
