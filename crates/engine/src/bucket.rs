//! Buckets of slots: one cache line each, in blocks that never move.

use std::sync::Arc;

use crate::chunks::{CHUNK_BYTES, Chunks, Piece};
use crate::slot::Slot;

pub(crate) const SLOTS: usize = 10;
/// Size of a block: small enough that a shard with few keys takes little memory, and large enough that the
/// table of blocks stays in a fast cache.
pub(crate) const BLOCK_BYTES: usize = 32 << 10;
const BLOCK: usize = BLOCK_BYTES / size_of::<Bucket>();

/// A bucket of slots. All bytes of an empty bucket are zero.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// A part of the hash of each slot's key.
    pub(crate) tags: [u16; SLOTS],
    pub(crate) slots: [Slot; SLOTS],
    /// Index plus one of the overflow bucket that continues this one; 0 if there is none.
    pub(crate) more: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Iterates over slot indexes, encoded as a bit set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates(u32);

/// Buckets by index.
#[derive(Debug)]
pub(crate) struct Buckets {
    blocks: Vec<Block>,
    count: usize,
    chunks: Arc<Chunks<BLOCK_BYTES>>,
}

/// A piece of memory viewed as buckets.
#[derive(Debug)]
struct Block(Piece<BLOCK_BYTES>);

impl Bucket {
    /// Slots with this tag; with tag zero, empty slots.
    #[inline]
    pub(crate) fn candidates(&self, tag: u16) -> Candidates {
        Candidates(tagged(self, tag))
    }
}

/// Returns a bit set of the slots with this tag. The comparison has no branch per slot, because the processor
/// can't predict which slot matches.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "compares eight tags with 9 instructions instead of 60")]
#[inline]
fn tagged(bucket: &Bucket, tag: u16) -> u32 {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { simd::equal(bucket, tag) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn tagged(bucket: &Bucket, tag: u16) -> u32 {
    (0..SLOTS).fold(0, |found, number| found | u32::from(bucket.tags[number] == tag) << number)
}

impl Iterator for Candidates {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let number = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(number)
    }
}

impl Buckets {
    pub(crate) fn new(chunks: Arc<Chunks<BLOCK_BYTES>>) -> Self {
        Self { blocks: Vec::new(), count: 0, chunks }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Appends an empty bucket.
    pub(crate) fn add(&mut self) {
        if self.count == self.blocks.len() * BLOCK {
            self.blocks.push(Block::new(self.chunks.piece()));
        }
        self.count += 1;
    }

    #[inline]
    pub(crate) fn at(&self, number: usize) -> &Bucket {
        &self.blocks[number / BLOCK].buckets()[number % BLOCK]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, number: usize) -> &mut Bucket {
        &mut self.blocks[number / BLOCK].buckets_mut()[number % BLOCK]
    }
}

const _: () =
    assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES) && BLOCK_BYTES.is_multiple_of(align_of::<Bucket>()));

#[expect(unsafe_code, reason = "buckets in memory outside any allocator")]
impl Block {
    /// Creates a block of empty buckets.
    fn new(mut piece: Piece<BLOCK_BYTES>) -> Self {
        piece.bytes_mut().fill(0);
        Self(piece)
    }

    #[inline]
    fn buckets(&self) -> &[Bucket; BLOCK] {
        // SAFETY: a piece has the size of `BLOCK` buckets, and is aligned to its size, and therefore to the
        // size of a bucket. Any bytes are a valid bucket, because it consists of integers.
        unsafe { &*self.0.bytes().as_ptr().cast() }
    }

    #[inline]
    fn buckets_mut(&mut self) -> &mut [Bucket; BLOCK] {
        // SAFETY: as above. Also, any bucket is valid bytes, because it has no padding.
        unsafe { &mut *self.0.bytes_mut().as_mut_ptr().cast() }
    }
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    };

    use super::{Bucket, SLOTS};

    const _: () = assert!(size_of::<Bucket>() >= 2 * size_of::<__m128i>() && align_of::<Bucket>() >= 16);
    const _: () = assert!(std::mem::offset_of!(Bucket, tags) == 0 && SLOTS <= 16);

    /// Returns a bit set of the slots with this tag.
    #[expect(unsafe_code, reason = "loads eight tags at once: gathering takes twice as long as comparing")]
    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn equal(bucket: &Bucket, tag: u16) -> u32 {
        let words = std::ptr::from_ref(bucket).cast::<__m128i>();
        // SAFETY: a bucket has 64 bytes, all of them initialized (integers without padding), and is aligned,
        // as asserted above.
        let (first, second) = unsafe { (_mm_load_si128(words), _mm_load_si128(words.add(1))) };
        let wanted = _mm_set1_epi16(tag.cast_signed());
        let found = _mm_packs_epi16(_mm_cmpeq_epi16(first, wanted), _mm_cmpeq_epi16(second, wanted));
        // Masks off the bytes that follow the tags.
        _mm_movemask_epi8(found).cast_unsigned() & ((1 << SLOTS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Place;

    #[test]
    fn each_bucket_is_where_it_was_put() {
        let mut buckets = Buckets::new(Chunks::new(Arc::default()));
        for number in 0..5000 {
            buckets.add();
            assert_eq!(buckets.at(number).more, 0);
            buckets.at_mut(number).more = number as u32;
        }
        assert!((0..5000).all(|number| buckets.at(number).more == number as u32));
        assert_eq!((buckets.count(), buckets.bytes()), (5000, 10 * BLOCK_BYTES));
    }

    #[test]
    fn candidates_are_the_slots_with_the_tag() {
        let slot = Slot::new(Place { segment: 3, offset: 64 });
        for tag in [1, 0x5555, 0xFFFF] {
            for pattern in 0..1_u32 << SLOTS {
                let tag_of = |number: usize| if pattern >> number & 1 == 1 { tag } else { 0xFFFE };
                let bucket =
                    Bucket { tags: std::array::from_fn(tag_of), slots: [slot; SLOTS], more: u32::MAX };
                let found = bucket.candidates(tag).fold(0, |found, number| found | 1 << number);
                assert_eq!(found, pattern);
            }
        }
    }
}
