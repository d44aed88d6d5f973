//! Slots: the position of each key's item in four bytes.

use std::num::NonZero;

/// 15 bits of segment and 17 bits of offset. Zero is an empty slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Slot(Option<NonZero<u32>>);

/// The position of an item: a segment of the shard, and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    /// A multiple of [`ALIGNMENT`].
    pub(crate) offset: u32,
}

/// Alignment of items.
pub(crate) const ALIGNMENT: usize = 2;
/// Upper bound of the offsets of items.
pub(crate) const SEGMENT_BYTES_MAX: usize = ALIGNMENT << OFFSET_BITS;
/// Maximum number of segments in a shard (8 GiB in total).
pub(crate) const SEGMENTS_MAX: usize = (1 << SEGMENT_BITS) - 1;

const OFFSET_BITS: u32 = 17;
const SEGMENT_BITS: u32 = u32::BITS - OFFSET_BITS;

impl Slot {
    pub(crate) const EMPTY: Self = Self(None);

    pub(crate) fn new(place: Place) -> Self {
        Self(NonZero::new(place.pack()))
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// Returns `None` for an empty slot.
    #[inline]
    pub(crate) fn place(self) -> Option<Place> {
        self.0.map(|bits| Place::unpack(bits.get()))
    }
}

impl Place {
    /// Packs a place into a number. The number is never zero, because it contains the segment number plus
    /// one.
    fn pack(self) -> u32 {
        debug_assert!((self.segment as usize) < SEGMENTS_MAX && (self.offset as usize) < SEGMENT_BYTES_MAX);
        ((self.segment + 1) << OFFSET_BITS) | (self.offset / ALIGNMENT as u32)
    }

    #[inline]
    fn unpack(bits: u32) -> Self {
        let offset = bits & ((1 << OFFSET_BITS) - 1);
        Self { segment: (bits >> OFFSET_BITS) - 1, offset: offset * ALIGNMENT as u32 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_out(segment in 0..SEGMENTS_MAX as u32, offset in 0..(1_u32 << OFFSET_BITS)) {
            let place = Place { segment, offset: offset * ALIGNMENT as u32 };
            let slot = Slot::new(place);
            prop_assert!(!slot.is_empty());
            prop_assert_eq!(slot.place(), Some(place));
        }
    }
}
