//! Eight bytes for each key: where its item is, a part of its hash, how often it was asked for.

use crate::hash::TAG_BITS;

/// Packed: 36 bits of place, 20 of tag, 8 of frequency. All zero is an empty slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Slot(u64);

/// Where an item begins: a segment of the shard, and how many bytes behind its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    /// A multiple of [`ALIGNMENT`].
    pub(crate) offset: u32,
}

/// A tag where slots have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagPattern(u32);

/// Of items.
pub(crate) const ALIGNMENT: usize = 8;
/// Items begin below this offset.
pub(crate) const SEGMENT_BYTES_MAX: usize = ALIGNMENT << OFFSET_BITS;
/// Segments of a shard.
pub(crate) const SEGMENTS_MAX: usize = (1 << SEGMENT_BITS) - 1;

const OFFSET_BITS: u32 = 15;
const SEGMENT_BITS: u32 = 21;
const PLACE_BITS: u32 = OFFSET_BITS + SEGMENT_BITS;
const FREQUENCY_SHIFT: u32 = PLACE_BITS + TAG_BITS;

impl Slot {
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn new(place: Place, tag: u32, frequency: u8) -> Self {
        Self(place.pack() | u64::from(tag) << PLACE_BITS | u64::from(frequency) << FREQUENCY_SHIFT)
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn has_tag(self, tag: u32) -> bool {
        TagPattern::new(tag).is_of(self)
    }

    /// `None` for an empty slot.
    #[inline]
    pub(crate) fn place(self) -> Option<Place> {
        (!self.is_empty()).then(|| Place::unpack(self.0))
    }

    #[inline]
    pub(crate) fn frequency(self) -> u8 {
        (self.0 >> FREQUENCY_SHIFT) as u8
    }

    #[inline]
    pub(crate) fn with_frequency(self, frequency: u8) -> Self {
        Self(self.0 & ((1 << FREQUENCY_SHIFT) - 1) | u64::from(frequency) << FREQUENCY_SHIFT)
    }

    pub(crate) fn with_place(self, place: Place) -> Self {
        Self(self.0 >> PLACE_BITS << PLACE_BITS | place.pack())
    }
}

impl TagPattern {
    #[inline]
    pub(crate) fn new(tag: u32) -> Self {
        Self(tag << (PLACE_BITS - u32::BITS))
    }

    /// Which bits of the upper half of a slot it is, which has all of it: four bytes are compared sooner than eight.
    pub(crate) const MASK: u32 = ((1 << TAG_BITS) - 1) << (PLACE_BITS - u32::BITS);

    #[inline]
    pub(crate) fn is_of(self, slot: Slot) -> bool {
        (slot.0 >> u32::BITS) as u32 & Self::MASK == self.0
    }

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

impl Place {
    /// Never zero: segments count from one here.
    fn pack(self) -> u64 {
        debug_assert!((self.segment as usize) < SEGMENTS_MAX && (self.offset as usize) < SEGMENT_BYTES_MAX);
        (u64::from(self.segment + 1) << OFFSET_BITS) | (u64::from(self.offset) / ALIGNMENT as u64)
    }

    #[inline]
    fn unpack(bits: u64) -> Self {
        let offset = bits & ((1 << OFFSET_BITS) - 1);
        let segment = bits >> OFFSET_BITS & ((1 << SEGMENT_BITS) - 1);
        Self { segment: segment as u32 - 1, offset: offset as u32 * ALIGNMENT as u32 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_out(
            segment in 0..SEGMENTS_MAX as u32,
            offset in 0..(1_u32 << OFFSET_BITS),
            tag in 0..(1_u32 << TAG_BITS),
            frequency: u8,
        ) {
            let place = Place { segment, offset: offset * ALIGNMENT as u32 };
            let slot = Slot::new(Place { segment: 7, offset: 8 }, tag, 3).with_frequency(frequency).with_place(place);
            prop_assert_eq!(slot, Slot::new(place, tag, frequency));
            prop_assert!(!slot.is_empty() && slot.has_tag(tag));
            prop_assert_eq!((slot.place(), slot.frequency()), (Some(place), frequency));
        }
    }
}
