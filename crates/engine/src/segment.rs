//! Segments: memory for items, appended from the beginning and freed as a whole.

use std::sync::Arc;

use crate::chunks::{Chunks, Piece};
use crate::item::Content;
use crate::slot::{Place, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Size of a segment, small enough that all its items are processed in a fraction of a millisecond.
pub(crate) const SEGMENT_BYTES: usize = 256 << 10;
const _: () = assert!(SEGMENT_BYTES <= SEGMENT_BYTES_MAX);

#[derive(Debug)]
pub(crate) struct Segment {
    piece: Piece<SEGMENT_BYTES>,
    used_bytes: usize,
    /// A number that increases with each new segment.
    serial: u64,
    /// Bytes of items that the index refers to.
    pub(crate) live_bytes: usize,
    /// Items before this offset were evicted or moved.
    pub(crate) emptied_bytes: usize,
    /// A lower bound of the items' expiries.
    pub(crate) expires_at_ms: u64,
}

impl Segment {
    fn new(piece: Piece<SEGMENT_BYTES>) -> Self {
        Self { piece, used_bytes: 0, serial: 0, live_bytes: 0, emptied_bytes: 0, expires_at_ms: u64::MAX }
    }

    fn reset(&mut self) {
        (self.used_bytes, self.live_bytes, self.emptied_bytes) = (0, 0, 0);
        self.expires_at_ms = u64::MAX;
    }

    pub(crate) fn has_room(&self, item_bytes: usize) -> bool {
        item_bytes <= SEGMENT_BYTES - self.used_bytes
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Records a live item.
    pub(crate) fn note_live(&mut self, item_bytes: usize, expires_at_ms: Option<u64>) {
        self.live_bytes += item_bytes;
        self.expires_at_ms = self.expires_at_ms.min(expires_at_ms.unwrap_or(u64::MAX));
    }

    /// Records an expiry of an item.
    pub(crate) fn note_expiry(&mut self, expires_at_ms: u64) {
        self.expires_at_ms = self.expires_at_ms.min(expires_at_ms);
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Returns whether the segment may have items with an expiry. All of them may have been removed already.
    pub(crate) fn may_expire(&self) -> bool {
        self.expires_at_ms != u64::MAX
    }

    /// The bytes from `offset` on.
    #[inline]
    pub(crate) fn rest(&self, offset: usize) -> &[u8] {
        &self.piece.bytes()[offset..]
    }

    #[inline]
    pub(crate) fn rest_mut(&mut self, offset: usize) -> &mut [u8] {
        &mut self.piece.bytes_mut()[offset..]
    }

    /// Appends an item. The segment must have room for it.
    pub(crate) fn append(&mut self, content: &Content<'_>) -> usize {
        let offset = self.used_bytes;
        content.write(&mut self.piece.bytes_mut()[offset..]);
        self.used_bytes += content.item_bytes();
        self.live_bytes += content.item_bytes();
        self.expires_at_ms = self.expires_at_ms.min(content.expires_at_ms.unwrap_or(u64::MAX));
        offset
    }
}

/// State shared by the segments of all shards.
#[derive(Debug)]
pub(crate) struct Commons {
    shards: usize,
    /// Bytes of all shards' segments and large values.
    bytes: AtomicUsize,
    /// Emptied segments for reuse by any shard: in a full engine, one is freed whenever another is needed.
    spares: Mutex<Vec<Segment>>,
}

/// Maximum number of spare segments. Further empty segments are returned to the pool of chunks.
pub(crate) const SPARES_MAX: usize = 2;

impl Commons {
    pub(crate) fn new(shards: usize) -> Self {
        Self { shards, bytes: AtomicUsize::new(0), spares: Mutex::default() }
    }

    fn take_spare(&self) -> Option<Segment> {
        self.spares.lock().pop()
    }

    fn give_spare(&self, mut segment: Segment) {
        segment.reset();
        let mut spares = self.spares.lock();
        if spares.len() < SPARES_MAX {
            spares.push(segment);
        }
    }
}

/// The segments of a shard, by number.
#[derive(Debug)]
pub(crate) struct Segments {
    slots: Vec<Option<Segment>>,
    /// Unused segment numbers.
    vacant: Vec<u32>,
    /// Bytes of large values to which items point.
    outside_bytes: usize,
    commons: Arc<Commons>,
    chunks: Arc<Chunks<SEGMENT_BYTES>>,
    /// Serial of the youngest segment.
    serial: u64,
}

impl Segments {
    pub(crate) fn new(commons: Arc<Commons>, chunks: Arc<Chunks<SEGMENT_BYTES>>) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), outside_bytes: 0, commons, chunks, serial: 0 }
    }

    /// Returns whether the segment with this number still has this serial.
    pub(crate) fn is_same(&self, number: u32, serial: u64) -> bool {
        let slot = self.slots.get(number as usize).and_then(Option::as_ref);
        slot.is_some_and(|segment| segment.serial == serial)
    }

    /// Adds an empty segment. Returns `None` if the shard already has the maximum number of segments.
    pub(crate) fn add(&mut self) -> Option<u32> {
        let segment = self.blank();
        self.add_filled(segment, 0)
    }

    /// Adds a segment that was filled elsewhere.
    pub(crate) fn add_filled(&mut self, mut segment: Segment, used_bytes: usize) -> Option<u32> {
        let number = self.vacant.pop().or_else(|| self.one_more())?;
        segment.used_bytes = used_bytes;
        segment.serial = self.next_serial();
        self.slots[number as usize] = Some(segment);
        self.commons.bytes.fetch_add(SEGMENT_BYTES, Relaxed);
        Some(number)
    }

    /// An empty segment without a number.
    pub(crate) fn blank(&mut self) -> Segment {
        self.commons.take_spare().unwrap_or_else(|| Segment::new(self.chunks.piece()))
    }

    /// Gives an unused segment back to the spare segments.
    pub(crate) fn give_blank(&mut self, segment: Segment) {
        self.commons.give_spare(segment);
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn one_more(&mut self) -> Option<u32> {
        let number = self.slots.len();
        (number < SEGMENTS_MAX).then(|| self.slots.push(None))?;
        Some(number as u32)
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if let Some(segment) = self.slots[number as usize].take() {
            self.commons.give_spare(segment);
            self.commons.bytes.fetch_sub(SEGMENT_BYTES, Relaxed);
            self.vacant.push(number);
        }
    }

    /// Takes a segment out temporarily. The number of the segment stays reserved.
    pub(crate) fn take(&mut self, number: u32) -> Segment {
        self.slots[number as usize].take().expect("the index and the queues refer to existing segments")
    }

    pub(crate) fn put_back(&mut self, number: u32, segment: Segment) {
        self.slots[number as usize] = Some(segment);
    }

    /// Resets a segment to the state of a new one.
    pub(crate) fn reset(&mut self, number: u32) {
        let serial = self.next_serial();
        let segment = self.get_mut(number);
        segment.reset();
        segment.serial = serial;
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> &Segment {
        self.slots[number as usize].as_ref().expect("the index and the queues refer to existing segments")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Segment {
        self.slots[number as usize].as_mut().expect("the index and the queues refer to existing segments")
    }

    /// The bytes from an item on.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> &[u8] {
        self.get(place.segment).rest(place.offset as usize)
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, place: Place) -> &mut [u8] {
        self.get_mut(place.segment).rest_mut(place.offset as usize)
    }

    /// Returns whether the shard has all segments that it may have, except one that is reserved for emptying
    /// another.
    pub(crate) fn are_exhausted(&self) -> bool {
        self.count() >= SEGMENTS_MAX - 1
    }

    /// Counts a large value.
    pub(crate) fn take_outside(&mut self, bytes: usize) {
        self.outside_bytes += bytes;
        self.commons.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn give_outside(&mut self, bytes: usize) {
        self.outside_bytes -= bytes;
        self.commons.bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn outside_bytes(&self) -> usize {
        self.outside_bytes
    }

    /// Bytes of segments and large values.
    pub(crate) fn bytes(&self) -> usize {
        self.count() * SEGMENT_BYTES + self.outside_bytes
    }

    /// Returns whether this shard takes more memory than the average.
    pub(crate) fn are_above_average(&self) -> bool {
        self.bytes() * self.commons.shards > self.commons.bytes.load(Relaxed)
    }

    /// Number of segments, including one that was taken out temporarily.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Returns the bytes of dead items in all segments.
    pub(crate) fn dead_bytes(&self) -> usize {
        self.slots.iter().flatten().map(|segment| segment.used_bytes.saturating_sub(segment.live_bytes)).sum()
    }

    /// Upper bound of the numbers.
    pub(crate) fn numbers_max(&self) -> usize {
        self.slots.len()
    }

    /// Numbers of the existing segments.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().enumerate().filter_map(|(number, slot)| slot.as_ref().map(|_| number as u32))
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        self.commons.bytes.fetch_sub(self.bytes(), Relaxed);
    }
}
