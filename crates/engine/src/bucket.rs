//! Buckets of slots: one cache line each, in blocks that double and never move.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use crate::slot::Slot;

pub(crate) const SLOTS: usize = 10;
/// Buckets of the first block: 16 KiB.
const FIRST_BLOCK: usize = 1 << FIRST_BLOCK_BITS;
const FIRST_BLOCK_BITS: u32 = 8;
/// Buckets of one page: memory is used from one end to the other, and what was never touched takes none.
const PAGE: usize = 4096 / size_of::<Bucket>();

/// All zero is an empty one.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// Of the hash of the key of each slot.
    pub(crate) tags: [u16; SLOTS],
    pub(crate) slots: [Slot; SLOTS],
    /// One more bucket of the same keys: its number among those that overflowed, plus one; 0: there is none.
    pub(crate) more: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Numbers of slots, from the first on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates(u32);

/// Buckets by number.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// The first, one of the same size, and then each as large as all before it.
    blocks: Vec<Box<[Bucket]>>,
    count: usize,
}

impl Bucket {
    /// Slots that have this tag, or are empty where the tag is zero.
    #[inline]
    pub(crate) fn candidates(&self, tag: u16) -> Candidates {
        Candidates(tagged(self, tag))
    }
}

/// Without a branch for each slot: which one it is can't be predicted.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "eight tags at once: 9 instructions for 60")]
#[inline]
fn tagged(bucket: &Bucket, tag: u16) -> u32 {
    // SAFETY: every processor of this architecture has SSE2.
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
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Memory that was touched.
    pub(crate) fn bytes(&self) -> usize {
        self.count.next_multiple_of(PAGE) * size_of::<Bucket>()
    }

    /// One more, at the end.
    pub(crate) fn add(&mut self) {
        let block = block_of(self.count);
        if block == self.blocks.len() {
            self.blocks.push(zeroed(self.count.max(FIRST_BLOCK)));
        }
        self.count += 1;
    }

    #[inline]
    pub(crate) fn at(&self, number: usize) -> &Bucket {
        let block = &*self.blocks[block_of(number)];
        &block[number & (block.len() - 1)]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, number: usize) -> &mut Bucket {
        let block = &mut *self.blocks[block_of(number)];
        &mut block[number & (block.len() - 1)]
    }
}

#[inline]
fn block_of(number: usize) -> usize {
    ((number | (FIRST_BLOCK - 1)).ilog2() + 1 - FIRST_BLOCK_BITS) as usize
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    };

    use super::{Bucket, SLOTS};

    const _: () = assert!(size_of::<Bucket>() >= 2 * size_of::<__m128i>() && align_of::<Bucket>() >= 16);
    const _: () = assert!(std::mem::offset_of!(Bucket, tags) == 0 && SLOTS <= 16);

    /// One bit for each slot whose tag it is.
    #[expect(unsafe_code, reason = "eight tags with one load: to gather them costs twice the comparison")]
    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn equal(bucket: &Bucket, tag: u16) -> u32 {
        let words = std::ptr::from_ref(bucket).cast::<__m128i>();
        // SAFETY: a bucket has 64 bytes, all of them initialized (integers without gaps between them), and is aligned, as is asserted above.
        let (first, second) = unsafe { (_mm_load_si128(words), _mm_load_si128(words.add(1))) };
        let wanted = _mm_set1_epi16(tag.cast_signed());
        let found = _mm_packs_epi16(_mm_cmpeq_epi16(first, wanted), _mm_cmpeq_epi16(second, wanted));
        // What is behind the tags is none.
        _mm_movemask_epi8(found).cast_unsigned() & ((1 << SLOTS) - 1)
    }
}

/// Empty buckets whose memory the system gives page by page, when it is touched: a large block takes no longer than a small one.
#[expect(unsafe_code, reason = "a block of 64 MiB takes 20 ms when each bucket is written")]
fn zeroed(count: usize) -> Box<[Bucket]> {
    let layout = Layout::array::<Bucket>(count).expect("a table that fits into memory has a size");
    assert!(layout.size() > 0, "a block has buckets");
    // SAFETY: the layout is not empty, as is asserted above. Memory of this layout from the allocator is what a boxed slice of so
    // many buckets owns, and all zero is a valid bucket: integers, and slots that are one.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<Bucket>();
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Place;

    #[test]
    fn each_bucket_is_where_it_was_put() {
        let mut buckets = Buckets::default();
        for number in 0..5000 {
            buckets.add();
            buckets.at_mut(number).more = number as u32;
        }
        assert!((0..5000).all(|number| buckets.at(number).more == number as u32));
        assert_eq!((buckets.count(), buckets.bytes()), (5000, 5056 * 64));
        let sizes: Vec<usize> = buckets.blocks.iter().map(|block| block.len()).collect();
        assert_eq!(sizes, [256, 256, 512, 1024, 2048, 4096]);
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
