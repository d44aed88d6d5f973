//! Layout of an item in a segment.
//!
//! ```text
//! 8  header: 14 bits key length, 22 last use in seconds, 4 database, 1 expires, 1 large, 8 frequency, 14 value length
//! 6  expiry in milliseconds, if it expires
//! n  key, value; for a large item its number (4 bytes)
//! 0  or 1 byte, so that the next item is aligned
//! ```

use std::ops::Range;

use crate::hash::Database;
use crate::slot::ALIGNMENT;

/// Largest sum of key and value lengths of an item in a segment. Longer items are large items, which are on
/// the heap.
pub(crate) const INLINE_BYTES_MAX: usize = LENGTH_MASK as usize;

pub(crate) const HEADER_BYTES: usize = 8;
pub(crate) const EXPIRY_BYTES: usize = 6;
/// Maximum expiry, in the year 10889. A later expiry is set to this one.
const EXPIRY_MAX_MS: u64 = (1 << (8 * EXPIRY_BYTES)) - 1;
const LARGE_BYTES: usize = 4;

const LENGTH_BITS: u32 = 14;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const USED_SHIFT: u32 = LENGTH_BITS;
const USED_BITS: u32 = 22;
const DATABASE_SHIFT: u32 = USED_SHIFT + USED_BITS;
const EXPIRES: u64 = 1 << (DATABASE_SHIFT + 4);
const LARGE: u64 = 1 << (DATABASE_SHIFT + 5);
const FREQUENCY_SHIFT: u32 = DATABASE_SHIFT + 6;
/// The value length is in the highest bits and the key length in the lowest ones, so that each takes one
/// instruction to extract.
const VALUE_SHIFT: u32 = FREQUENCY_SHIFT + 8;
const _: () = assert!(VALUE_SHIFT + LENGTH_BITS == u64::BITS);

/// The first eight bytes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(u64);

/// The contents of an item to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) database: Database,
    pub(crate) body: Body<'a>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) used_s: u32,
    /// Access frequency in the units of the policy.
    pub(crate) frequency: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    Inline {
        key: &'a [u8],
        value: &'a [u8],
    },
    /// Key and value are on the heap, under this number.
    Large(u32),
}

/// An item in a segment, from its first byte on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) header: Header,
    bytes: &'a [u8],
}

impl Header {
    fn of(content: &Content<'_>) -> Self {
        let (key_bytes, value_bytes, large) = match content.body {
            Body::Inline { key, value } => (key.len() as u64, value.len() as u64, 0),
            Body::Large(_) => (0, 0, LARGE),
        };
        let expires = if content.expires_at_ms.is_some() { EXPIRES } else { 0 };
        let database = (content.database.number() as u64) << DATABASE_SHIFT;
        let lengths = key_bytes | value_bytes << VALUE_SHIFT;
        let used = u64::from(content.used_s & USED_MASK) << USED_SHIFT;
        let frequency = u64::from(content.frequency) << FREQUENCY_SHIFT;
        Self(lengths | used | database | expires | large | frequency)
    }

    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self(read_u64(bytes))
    }

    #[inline]
    fn key_bytes(self) -> usize {
        (self.0 & LENGTH_MASK) as usize
    }

    #[inline]
    pub(crate) fn value_bytes(self) -> usize {
        (self.0 >> VALUE_SHIFT) as usize
    }

    #[inline]
    pub(crate) fn is_large(self) -> bool {
        self.0 & LARGE != 0
    }

    #[inline]
    pub(crate) fn expires(self) -> bool {
        self.0 & EXPIRES != 0
    }

    #[inline]
    pub(crate) fn database(self) -> Database {
        Database::new((self.0 >> DATABASE_SHIFT & 0xF) as usize).unwrap_or_default()
    }

    /// Offset of the key.
    #[inline]
    fn key_at(self) -> usize {
        if self.expires() { HEADER_BYTES + EXPIRY_BYTES } else { HEADER_BYTES }
    }

    /// Size of the item, including padding.
    #[inline]
    pub(crate) fn item_bytes(self) -> usize {
        let body_bytes = if self.is_large() { LARGE_BYTES } else { self.key_bytes() + self.value_bytes() };
        (self.key_at() + body_bytes).next_multiple_of(ALIGNMENT)
    }

    /// Seconds since the last access, modulo 2^22.
    #[inline]
    pub(crate) fn idle_s(self, now_s: u32) -> u32 {
        now_s.wrapping_sub((self.0 >> USED_SHIFT) as u32) & USED_MASK
    }

    /// Time of the last access in seconds, modulo 2^22.
    pub(crate) fn used_s(self) -> u32 {
        (self.0 >> USED_SHIFT) as u32 & USED_MASK
    }

    #[inline]
    pub(crate) fn used_at(self, now_s: u32) -> Self {
        let others = !(u64::from(USED_MASK) << USED_SHIFT);
        Self(self.0 & others | u64::from(now_s & USED_MASK) << USED_SHIFT)
    }

    /// Access frequency in the units of the policy.
    #[inline]
    pub(crate) fn frequency(self) -> u8 {
        (self.0 >> FREQUENCY_SHIFT) as u8
    }

    #[inline]
    pub(crate) fn with_frequency(self, frequency: u8) -> Self {
        let others = !(0xFF << FREQUENCY_SHIFT);
        Self(self.0 & others | u64::from(frequency) << FREQUENCY_SHIFT)
    }

    /// Writes the header only if it has changed, so that the processor doesn't have to write back an
    /// unmodified cache line.
    #[inline]
    pub(crate) fn write_change(self, before: Self, bytes: &mut [u8]) {
        if self != before {
            self.write(bytes);
        }
    }

    /// Returns the range of the value, if the item at the beginning of `bytes` has this key, has no expiry
    /// and isn't large. Most items are like this, and the check is a single comparison.
    #[inline]
    pub(crate) fn value_if_plain(self, database: Database, key: &[u8], bytes: &[u8]) -> Option<Range<usize>> {
        const FORM: u64 = LENGTH_MASK | 0xF << DATABASE_SHIFT | EXPIRES | LARGE;
        if self.0 & FORM != key.len() as u64 | (database.number() as u64) << DATABASE_SHIFT {
            return None;
        }
        let begin = HEADER_BYTES + key.len();
        is_same(bytes.get(HEADER_BYTES..begin)?, key).then_some(begin..begin + self.value_bytes())
    }

    /// Returns the header for a value of this length, if the size of the item doesn't change.
    #[inline]
    pub(crate) fn with_value_bytes(self, value_bytes: usize) -> Option<Self> {
        let body_bytes = self.key_bytes() + value_bytes;
        let key_at = self.key_at();
        let fits = body_bytes <= INLINE_BYTES_MAX
            && (key_at + body_bytes).next_multiple_of(ALIGNMENT) == self.item_bytes();
        let others = (1 << VALUE_SHIFT) - 1;
        fits.then_some(Self(self.0 & others | (value_bytes as u64) << VALUE_SHIFT))
    }

    #[inline]
    pub(crate) fn write(self, bytes: &mut [u8]) {
        bytes[..HEADER_BYTES].copy_from_slice(&self.0.to_le_bytes());
    }
}

const USED_MASK: u32 = (1 << USED_BITS) - 1;

impl Content<'_> {
    /// Size of the item, including padding.
    #[inline]
    pub(crate) fn item_bytes(&self) -> usize {
        Header::of(self).item_bytes()
    }

    /// Writes the item to the beginning of `bytes`.
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        let header = Header::of(self);
        if let Body::Inline { key, .. } = self.body {
            let key_at = header.key_at();
            copy(key, &mut bytes[key_at..key_at + key.len()]);
        }
        self.write_over(header, bytes);
    }

    pub(crate) fn header(&self) -> Header {
        Header::of(self)
    }

    /// Overwrites an item of the same key; `header` becomes its header. The old and the new item must both
    /// have an expiry or both have none, and both or neither must be large.
    #[inline]
    pub(crate) fn write_over(&self, header: Header, bytes: &mut [u8]) {
        header.write(bytes);
        if let Some(expires_at_ms) = self.expires_at_ms {
            Item::write_expiry(bytes, expires_at_ms);
        }
        let body = &mut bytes[header.key_at()..];
        match self.body {
            Body::Inline { key, value } => copy(value, &mut body[key.len()..key.len() + value.len()]),
            Body::Large(number) => body[..LARGE_BYTES].copy_from_slice(&number.to_le_bytes()),
        }
    }
}

/// Compares two slices, with inlined comparisons for typical key lengths.
#[inline]
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        8..=16 => {
            one.first_chunk::<8>() == other.first_chunk::<8>()
                && one.last_chunk::<8>() == other.last_chunk::<8>()
        }
        17..=32 => {
            one.first_chunk::<16>() == other.first_chunk::<16>()
                && one.last_chunk::<16>() == other.last_chunk::<16>()
        }
        _ => one == other,
    }
}

/// Copies a slice as `copy_from_slice` does, with inlined copies for typical lengths of keys and values.
#[inline]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    match from.len() {
        8..=16 => copy_ends::<8>(from, to),
        17..=32 => copy_ends::<16>(from, to),
        33..=64 => copy_ends::<32>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first N bytes and the last N bytes, which may overlap.
#[inline]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return };
    if let Some(to) = to.first_chunk_mut::<N>() {
        *to = *first;
    }
    if let Some(to) = to.last_chunk_mut::<N>() {
        *to = *last;
    }
}

impl<'a> Item<'a> {
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        Self::with_header(Header::read(bytes), bytes)
    }

    /// Creates an item whose header has already been read from the beginning of `bytes`.
    #[inline]
    pub(crate) fn with_header(header: Header, bytes: &'a [u8]) -> Self {
        Self { header, bytes }
    }

    /// The bytes of the item, including padding.
    pub(crate) fn bytes(self) -> &'a [u8] {
        &self.bytes[..self.header.item_bytes()]
    }

    /// Changes the expiry of an item that has one.
    pub(crate) fn write_expiry(bytes: &mut [u8], expires_at_ms: u64) {
        let expiry = expires_at_ms.min(EXPIRY_MAX_MS).to_le_bytes();
        bytes[HEADER_BYTES..HEADER_BYTES + EXPIRY_BYTES].copy_from_slice(&expiry[..EXPIRY_BYTES]);
    }

    /// Changes the number of a large item.
    pub(crate) fn write_large(bytes: &mut [u8], number: u32) {
        let at = Header::read(bytes).key_at();
        bytes[at..at + LARGE_BYTES].copy_from_slice(&number.to_le_bytes());
    }

    #[inline]
    pub(crate) fn expires_at_ms(self) -> Option<u64> {
        self.header.expires().then(|| {
            let mut expiry = [0; 8];
            expiry[..EXPIRY_BYTES].copy_from_slice(&self.bytes[HEADER_BYTES..HEADER_BYTES + EXPIRY_BYTES]);
            u64::from_le_bytes(expiry)
        })
    }

    #[inline]
    pub(crate) fn is_expired(self, now_ms: u64) -> bool {
        self.expires_at_ms().is_some_and(|expires_at_ms| expires_at_ms <= now_ms)
    }

    #[inline]
    pub(crate) fn body(self) -> Body<'a> {
        if self.header.is_large() {
            return Body::Large(self.large());
        }
        Body::Inline { key: self.key(), value: self.value() }
    }

    /// The key of an item that is not large.
    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        let at = self.header.key_at();
        &self.bytes[at..at + self.header.key_bytes()]
    }

    /// The value of an item that is not large.
    #[inline]
    pub(crate) fn value(self) -> &'a [u8] {
        let at = self.header.key_at() + self.header.key_bytes();
        &self.bytes[at..at + self.header.value_bytes()]
    }

    /// The number of a large item.
    pub(crate) fn large(self) -> u32 {
        let at = self.header.key_at();
        let number = self.bytes[at..].first_chunk().expect("items lie in their segment as a whole");
        u32::from_le_bytes(*number)
    }
}

#[inline]
fn read_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("items lie in their segment as a whole"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (key_bytes, value_bytes) in (0..=INLINE_BYTES_MAX).prop_flat_map(|key| (Just(key), 0..=INLINE_BYTES_MAX - key)),
            database in 0..Database::COUNT,
            expires_at_ms in any::<Option<u64>>(),
            (used_s, frequency) in any::<(u32, u8)>(),
        ) {
            let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; value_bytes]);
            let database = Database::new(database).expect("it is below the count");
            let body = Body::Inline { key: &key, value: &value };
            let content = Content { database, body, expires_at_ms, used_s, frequency };
            let mut bytes = vec![0xFF; content.item_bytes()];
            content.write(&mut bytes);
            let item = Item::read(&bytes);
            prop_assert_eq!(item.bytes().len(), bytes.len());
            prop_assert!(item.key() == key && item.value() == value);
            prop_assert_eq!(item.expires_at_ms(), expires_at_ms.map(|at_ms| at_ms.min(EXPIRY_MAX_MS)));
            let header = item.header;
            prop_assert_eq!((header.database(), header.used_s(), header.frequency()), (database, used_s & USED_MASK, frequency));
            let changed = header.with_frequency(!frequency).used_at(!used_s);
            prop_assert_eq!(changed.with_frequency(frequency).used_at(used_s), header);
        }
    }
}
