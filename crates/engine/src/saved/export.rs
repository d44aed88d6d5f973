//! Writes a data set shard by shard, in short steps under the lock of the shard, so that no thread waits for
//! long.
//!
//! A shard may change while it is written. A key that exists during the whole export is written at least
//! once: an item only moves to the end of a queue, and the export reads both queues to their ends. If a key
//! is written twice, the second item is newer, and replaces the first when the file is read.

use std::io::{self, Write};

use super::format::{Checksum, Header, Kind, Part, ShardEntry, Trailer};
use crate::engine::Engine;
use crate::item::{Body, Item};
use crate::packed::Stored;
use crate::queue::Queue;
use crate::segment::SEGMENT_BYTES;
use crate::shard::Shard;
use crate::slot::Place;

/// Maximum number of items processed per lock, which takes about 30 µs.
const ITEMS_AT_ONCE: usize = 250;

/// Size of the data written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub keys: u64,
    pub bytes: u64,
}

/// Progress in a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Serial number of the current segment. Segments with lower numbers have been written.
    serial: u64,
    offset: usize,
}

/// Items of one queue to be written in one part.
#[derive(Debug)]
struct Block {
    queue: Queue,
    items: Vec<u8>,
    large: Vec<(Box<[u8]>, Stored)>,
}

/// A shard being written.
struct Walk {
    small: Cursor,
    main: Cursor,
    block: Block,
    entry: ShardEntry,
    now_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    More,
    /// The block is full, or the next item belongs to the other queue.
    Flush,
    End,
}

/// The output, with the number of bytes written.
struct Out<'a> {
    to: &'a mut dyn Write,
    id: u64,
    bytes: u64,
}

impl Engine {
    /// Writes all keys that have not expired.
    ///
    /// Other threads may use the engine at the same time: each key is written as it was at some moment during
    /// the call. For a consistent snapshot, the caller has to stop other threads. `id` must be different for
    /// each file. `note` returns a text for the caller, which [`Saved::note`](super::Saved::note) returns
    /// later. The function is called at the end, so the note may describe all keys that exist during the
    /// whole export.
    ///
    /// # Errors
    /// Returns the errors of the writer. The output is then incomplete, and
    /// [`Saved::open`](super::Saved::open) refuses it.
    pub fn export(
        &self,
        id: u64,
        now_ms: u64,
        note: &dyn Fn() -> u64,
        to: &mut dyn Write,
    ) -> io::Result<Exported> {
        let mut out = Out { to, id, bytes: 0 };
        let shards = self.shards_count();
        let (seed, hashing) = (self.seed(), self.hashing());
        let header = Header { id, seed, saved_at_ms: now_ms, shards: shards as u32, hashing };
        out.put(&header.encode())?;
        let entries = (0..shards).map(|number| self.export_shard(number, now_ms, &mut out));
        let entries = entries.collect::<io::Result<Vec<_>>>()?;
        let table_offset = out.bytes;
        let table: Vec<u8> = entries.iter().flat_map(ShardEntry::encode).collect();
        out.put(&table)?;
        let table_checksum = Checksum::new(id).add(&table).finish();
        out.put(&Trailer { table_offset, table_checksum, note: note() }.encode(id))?;
        let keys = entries.iter().flat_map(|entry| entry.keys).sum();
        Ok(Exported { keys, bytes: out.bytes })
    }

    fn export_shard(&self, number: usize, now_ms: u64, out: &mut Out<'_>) -> io::Result<ShardEntry> {
        let entry = ShardEntry { offset: out.bytes, ..ShardEntry::default() };
        let mut walk =
            Walk { small: Cursor::default(), main: Cursor::default(), block: Block::new(), entry, now_ms };
        loop {
            let next = walk.step(&self.shard(number));
            if next != Next::More {
                walk.flush(number as u16, out)?;
            }
            if next == Next::End {
                walk.entry.bytes = out.bytes - walk.entry.offset;
                return Ok(walk.entry);
            }
        }
    }
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn part(&mut self, part: &Part, first: &[u8], second: &[u8]) -> io::Result<()> {
        let mut head = part.encode();
        let checksum = Checksum::of_part(self.id, &head).add(first).add(second).finish();
        head[..8].copy_from_slice(&checksum.to_le_bytes());
        [&head[..], first, second].into_iter().try_for_each(|bytes| self.put(bytes))
    }
}

impl Walk {
    /// Adds the next items to the block.
    fn step(&mut self, shard: &Shard) -> Next {
        for queue in [Queue::Small, Queue::Main] {
            let cursor = match queue {
                Queue::Small => self.small,
                Queue::Main => self.main,
            };
            let Some((segment, cursor)) = cursor.next(shard, queue) else { continue };
            if self.block.is_begun() && self.block.queue != queue {
                return Next::Flush;
            }
            self.block.queue = queue;
            let (cursor, next) = self.take(shard, segment, cursor);
            match queue {
                Queue::Small => self.small = cursor,
                Queue::Main => self.main = cursor,
            }
            return next;
        }
        Next::End
    }

    fn take(&mut self, shard: &Shard, number: u32, mut cursor: Cursor) -> (Cursor, Next) {
        let segment = shard.segments.get(number);
        for _ in 0..ITEMS_AT_ONCE {
            if cursor.offset >= segment.used_bytes() {
                break;
            }
            let item = Item::read(segment.rest(cursor.offset));
            let place = Place { segment: number, offset: cursor.offset as u32 };
            if !item.is_expired(self.now_ms) && shard.is_alive(item, place) {
                if !self.block.has_room(item) {
                    return (cursor, Next::Flush);
                }
                self.block.add(shard, item);
                let database = item.header.database().number();
                self.entry.keys[database] += 1;
                self.entry.expiring[database] += u64::from(item.header.expires());
            }
            cursor.offset += item.header.item_bytes();
        }
        (cursor, Next::More)
    }

    fn flush(&mut self, shard: u16, out: &mut Out<'_>) -> io::Result<()> {
        if !self.block.is_begun() {
            return Ok(());
        }
        let block = std::mem::replace(&mut self.block, Block::new());
        self.part(shard, Kind::Items(block.queue), [&block.items, &[]], out)?;
        // No lock is held while the values are decompressed, one after the other.
        let mut large = block.large.iter();
        large.try_for_each(|(key, stored)| self.part(shard, Kind::Large, [key, &stored.plain()], out))
    }

    fn part(
        &mut self,
        shard: u16,
        kind: Kind,
        [first, second]: [&[u8]; 2],
        out: &mut Out<'_>,
    ) -> io::Result<()> {
        let (first_bytes, second_bytes) = (first.len() as u64, second.len() as u64);
        let number = self.entry.parts as u32;
        self.entry.parts += 1;
        out.part(&Part { number, shard, kind, first_bytes, second_bytes }, first, second)
    }
}

impl Cursor {
    /// Returns the next segment to write, and the offset in it.
    fn next(self, shard: &Shard, queue: Queue) -> Option<(u32, Self)> {
        let order = shard.queues.order(queue);
        order.sealed.iter().copied().chain(order.open).find_map(|number| {
            let segment = shard.segments.get(number);
            let offset = if segment.serial() == self.serial { self.offset } else { 0 };
            let is_ahead = segment.serial() >= self.serial && offset < segment.used_bytes();
            is_ahead.then(|| (number, Self { serial: segment.serial(), offset }))
        })
    }
}

impl Block {
    fn new() -> Self {
        let items = Vec::with_capacity(SEGMENT_BYTES);
        Self { queue: Queue::Small, items, large: Vec::new() }
    }

    fn is_begun(&self) -> bool {
        !self.items.is_empty()
    }

    fn has_room(&self, item: Item<'_>) -> bool {
        self.items.len() + item.header.item_bytes() <= SEGMENT_BYTES
    }

    fn add(&mut self, shard: &Shard, item: Item<'_>) {
        self.items.extend_from_slice(item.bytes());
        if let Body::Large(number) = item.body() {
            let large = &shard.large[number as usize];
            self.large.push((large.key.clone(), large.stored.clone()));
        }
    }
}

impl Shard {
    /// Returns whether the index refers to an item.
    fn is_alive(&self, item: Item<'_>, place: Place) -> bool {
        let Some(hash) = self.hash_of_item(item) else { return false };
        self.index.find(hash, |slot| slot.place() == Some(place)).is_some()
    }
}
