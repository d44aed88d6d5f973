//! Memory for segments and for the index: pieces of fixed sizes, cut from chunks of 2 MiB.
//!
//! A general allocator returns freed memory to the system late, above all when the processors are busy. This
//! module returns the memory of each freed piece at once, so the process holds only the memory in use and at
//! most a few more chunks. Chunks are aligned, so that one TLB entry can cover a whole chunk. Without huge
//! pages, nearly every lookup among many keys causes two TLB misses.
//!
//! The system zeroes a huge page as a whole when it is first touched, which takes 0.2 ms and sometimes
//! several milliseconds. A [`Preparer`] touches pages in advance, on a thread that no client waits for. If no
//! chunk is ready, a chunk with small pages is used.

mod mapping;

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) use mapping::CHUNK_BYTES;
use mapping::{Mapping, Pages};

use crate::sync::{Condvar, Mutex};

/// The chunks for pieces of all sizes.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    state: Mutex<Stock>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Stock {
    /// Unused chunks. The memory of an unused chunk has been returned to the system, if the system permits
    /// that.
    idle: Vec<Mapping>,
    /// Chunks with huge pages, ready for use.
    ready: Vec<Mapping>,
    /// Number of ready chunks to maintain.
    ready_wanted: usize,
    is_closed: bool,
}

/// Prepares chunks before they are needed.
#[derive(Debug)]
pub struct Preparer(Arc<Supply>);

/// Pieces of one size.
#[derive(Debug)]
pub(crate) struct Chunks<const PIECE_BYTES: usize> {
    supply: Arc<Supply>,
    used: Mutex<Used>,
}

/// Chunks with pieces in use, by address.
#[derive(Debug, Default)]
struct Used {
    chunks: BTreeMap<usize, Chunk>,
    /// Chunks with free pieces. The chunk with the lowest address is used first, so that the highest ones
    /// become completely free.
    open: BTreeSet<usize>,
}

#[derive(Debug)]
struct Chunk {
    mapping: Mapping,
    /// A bit set of the free pieces.
    free: u64,
    pages: Pages,
}

/// Memory owned exclusively until it is dropped. A new piece contains the bytes that its last owner wrote, or
/// zeros.
#[derive(Debug)]
pub(crate) struct Piece<const BYTES: usize> {
    begin: NonNull<[u8; BYTES]>,
    chunks: Arc<Chunks<BYTES>>,
}

impl Supply {
    /// Sets the number of chunks to keep ready.
    pub(crate) fn want_ready(&self, chunks: usize) {
        let mut stock = self.state.lock();
        stock.ready_wanted = chunks;
        let kept = stock.ready.len().min(chunks);
        let superfluous = stock.ready.split_off(kept);
        drop(stock);
        superfluous.into_iter().for_each(|mapping| self.give(mapping));
        self.changed.notify_all();
    }

    /// Ends the preparation of chunks.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn take(&self) -> Chunk {
        let mut stock = self.state.lock();
        let Some(mapping) = stock.ready.pop() else {
            let mapping = stock.idle.pop().unwrap_or_else(Mapping::new);
            return Chunk { mapping, free: 0, pages: Pages::Small };
        };
        drop(stock);
        self.changed.notify_all();
        Chunk { mapping, free: 0, pages: Pages::Huge }
    }

    fn give(&self, mut mapping: Mapping) {
        mapping.release(0, CHUNK_BYTES);
        mapping.advise(Pages::Small);
        if cfg!(target_os = "linux") {
            self.state.lock().idle.push(mapping);
        }
    }
}

impl Preparer {
    pub(crate) fn new(supply: Arc<Supply>) -> Self {
        Self(supply)
    }

    /// Prepares chunks on demand, until the engine is dropped.
    pub fn run(&self) {
        while self.prepare() {}
    }

    /// Waits until a chunk is needed, and prepares it. Returns whether the chunk was prepared.
    fn prepare(&self) -> bool {
        let mut stock = self.0.state.lock();
        while !stock.is_closed && stock.ready.len() >= stock.ready_wanted {
            self.0.changed.wait(&mut stock);
        }
        if stock.is_closed {
            return false;
        }
        let idle = stock.idle.pop();
        drop(stock);
        // Preparing a chunk takes long, so the lock is released first.
        let mapping = idle.unwrap_or_else(Mapping::new);
        let is_huge = mapping.advise(Pages::Huge);
        if is_huge {
            touch(&mapping);
        }
        let mut stock = self.0.state.lock();
        match is_huge {
            true => stock.ready.push(mapping),
            false => stock.idle.push(mapping),
        }
        is_huge
    }
}

impl<const PIECE_BYTES: usize> Chunks<PIECE_BYTES> {
    const PIECES: usize = CHUNK_BYTES / PIECE_BYTES;
    const ALL_FREE: u64 = u64::MAX >> (u64::BITS as usize - Self::PIECES);

    pub(crate) fn new(supply: Arc<Supply>) -> Arc<Self> {
        const { assert!(CHUNK_BYTES.is_multiple_of(PIECE_BYTES) && Self::PIECES <= u64::BITS as usize) };
        Arc::new(Self { supply, used: Mutex::default() })
    }

    /// Takes a piece.
    pub(crate) fn piece(self: &Arc<Self>) -> Piece<PIECE_BYTES> {
        let begin = self.take();
        Piece { begin: begin.cast(), chunks: Arc::clone(self) }
    }

    fn take(&self) -> NonNull<u8> {
        let mut used = self.used.lock();
        let address = used.open.first().copied().unwrap_or_else(|| self.add_chunk(&mut used));
        let chunk = used.chunks.get_mut(&address).expect("an open chunk is one of those in use");
        let number = chunk.free.trailing_zeros() as usize;
        chunk.free &= chunk.free - 1;
        let begin = chunk.at::<PIECE_BYTES>(number);
        if chunk.free == 0 {
            used.open.remove(&address);
        }
        begin
    }

    /// Checks the lists, for tests.
    pub(crate) fn check(&self) -> Result<(), String> {
        let used = self.used.lock();
        let open = used.chunks.iter().filter(|(_, chunk)| chunk.free != 0).map(|(address, _)| address);
        if !open.eq(&used.open) {
            return Err(format!("{:?} are not the chunks with free pieces", used.open));
        }
        let is_odd = |chunk: &Chunk| chunk.free & !Self::ALL_FREE != 0 || chunk.free == Self::ALL_FREE;
        match used.chunks.iter().find(|(_, chunk)| is_odd(chunk)) {
            Some((address, chunk)) => Err(format!("chunk {address:x} has free pieces {:x}", chunk.free)),
            None => Ok(()),
        }
    }

    fn add_chunk(&self, used: &mut Used) -> usize {
        let chunk = Chunk { free: Self::ALL_FREE, ..self.supply.take() };
        let address = chunk.mapping.begin().addr().get();
        used.chunks.insert(address, chunk);
        used.open.insert(address);
        address
    }

    fn give(&self, begin: NonNull<u8>) {
        let (address, offset) = (begin.addr().get() & !(CHUNK_BYTES - 1), begin.addr().get() % CHUNK_BYTES);
        let mut used = self.used.lock();
        let chunk = used.chunks.get_mut(&address).expect("a piece belongs to a chunk in use");
        chunk.free |= 1 << (offset / PIECE_BYTES);
        if chunk.free == Self::ALL_FREE {
            let chunk = used.chunks.remove(&address);
            used.open.remove(&address);
            drop(used);
            self.supply.give(chunk.expect("it was found just now").mapping);
            return;
        }
        // Otherwise the system would fill the freed part again to restore the huge page.
        if chunk.pages == Pages::Huge {
            chunk.mapping.advise(Pages::Small);
            chunk.pages = Pages::Small;
        }
        chunk.mapping.release(offset, PIECE_BYTES);
        used.open.insert(address);
    }
}

impl Chunk {
    #[expect(unsafe_code, reason = "pieces lie in chunks")]
    fn at<const PIECE_BYTES: usize>(&self, number: usize) -> NonNull<u8> {
        assert!(number < CHUNK_BYTES / PIECE_BYTES, "a chunk has no such piece");
        // SAFETY: the offset is within the chunk, as asserted above.
        unsafe { self.mapping.begin().add(number * PIECE_BYTES) }
    }
}

// SAFETY: the memory is exclusively owned, and consists of plain bytes.
#[expect(unsafe_code, reason = "a pointer to its own memory")]
unsafe impl<const BYTES: usize> Send for Piece<BYTES> {}
// SAFETY: as for a `Box`: shared references only permit reading.
#[expect(unsafe_code, reason = "a pointer to its own memory")]
unsafe impl<const BYTES: usize> Sync for Piece<BYTES> {}

impl<const BYTES: usize> Piece<BYTES> {
    #[expect(unsafe_code, reason = "memory outside any allocator")]
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8; BYTES] {
        // SAFETY: these bytes of a mapping belong to this piece alone until it is dropped. The system or an
        // earlier owner has initialized them.
        unsafe { self.begin.as_ref() }
    }

    #[expect(unsafe_code, reason = "memory outside any allocator")]
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; BYTES] {
        // SAFETY: as above, and `&mut self` guarantees exclusive access.
        unsafe { self.begin.as_mut() }
    }
}

impl<const BYTES: usize> Drop for Piece<BYTES> {
    fn drop(&mut self) {
        self.chunks.give(self.begin.cast());
    }
}

#[expect(unsafe_code, reason = "writing makes the system provide the memory")]
fn touch(mapping: &Mapping) {
    // SAFETY: it is the first byte of exclusively owned memory.
    unsafe { mapping.begin().write_volatile(0) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 256 << 10;
    const CASES: u32 = if cfg!(miri) { 2 } else { 64 };

    fn mark(piece: &mut Piece<BYTES>, number: usize) {
        for byte in [0, BYTES / 2, BYTES - 1] {
            piece.bytes_mut()[byte] = number as u8;
        }
    }

    fn is_marked(piece: &Piece<BYTES>, number: usize) -> bool {
        [0, BYTES / 2, BYTES - 1].iter().all(|byte| piece.bytes()[*byte] == number as u8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        #[test]
        fn pieces_are_apart_and_come_back(
            steps in prop::collection::vec(any::<(bool, prop::sample::Index)>(), 1..150),
            is_prepared: bool,
        ) {
            let supply = Arc::<Supply>::default();
            supply.want_ready(usize::from(is_prepared));
            let preparer = Preparer::new(Arc::clone(&supply));
            let chunks = Chunks::<BYTES>::new(supply);
            let mut pieces: Vec<(usize, Piece<BYTES>)> = Vec::new();
            for (number, (is_added, which)) in steps.iter().enumerate() {
                if *is_added || pieces.is_empty() {
                    if is_prepared && chunks.supply.state.lock().ready.is_empty() {
                        preparer.prepare();
                    }
                    let mut piece = chunks.piece();
                    mark(&mut piece, number);
                    pieces.push((number, piece));
                } else {
                    let (number, piece) = pieces.swap_remove(which.index(pieces.len()));
                    prop_assert!(is_marked(&piece, number));
                }
                prop_assert_eq!(chunks.check(), Ok(()));
            }
            prop_assert!(pieces.iter().all(|(number, piece)| is_marked(piece, *number)));
            let in_use = pieces.len();
            let free: u32 = chunks.used.lock().chunks.values().map(|chunk| chunk.free.count_ones()).sum();
            prop_assert_eq!((in_use + free as usize) % Chunks::<BYTES>::PIECES, 0);
            drop(pieces);
            prop_assert!(chunks.used.lock().chunks.is_empty());
        }
    }

    /// Returned pages contain zeros when they are used again.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_is_free_takes_no_memory() {
        let chunks = Chunks::<BYTES>::new(Arc::default());
        let mut pieces: Vec<_> = (0..10).map(|_| chunks.piece()).collect();
        pieces.iter_mut().for_each(|piece| mark(piece, 7));
        // Frees one piece of a chunk that stays in use, and all pieces of the other chunk.
        drop((pieces.remove(3), pieces.split_off(7)));
        let again: Vec<_> = (0..3).map(|_| chunks.piece()).collect();
        assert!(
            again.iter().all(|piece| is_marked(piece, 0)) && pieces.iter().all(|piece| is_marked(piece, 7))
        );
    }

    #[test]
    fn a_chunk_is_ready_before_it_is_needed() {
        let supply = Arc::<Supply>::default();
        let chunks = Chunks::<BYTES>::new(Arc::clone(&supply));
        supply.want_ready(1);
        let preparer = Preparer::new(Arc::clone(&supply));
        // On a system without huge pages, the first call returns false.
        let pages = if preparer.prepare() { Pages::Huge } else { Pages::Small };
        assert_eq!(!supply.state.lock().ready.is_empty(), pages == Pages::Huge);
        let piece = chunks.piece();
        assert_eq!(chunks.used.lock().chunks.values().next().map(|chunk| chunk.pages), Some(pages));
        let thread = std::thread::spawn(move || preparer.run());
        supply.close();
        thread.join().expect("it ends");
        drop(piece);
    }
}
