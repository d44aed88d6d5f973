//! Tags that stored responses have ever had, so that a purge can report that it matched nothing. A set of bits: it may report an unseen tag
//! as seen, but never the reverse.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::purge::Name;

#[derive(Debug, Default)]
pub(super) struct TagsSeen {
    /// Allocated once a response has a tag.
    bits: OnceLock<Box<[AtomicU64]>>,
    /// Whether a response has had too many tags to list. If so, any tag may have been seen.
    has_any: AtomicBool,
}

/// Size of the set: 128 KiB. After 100,000 tags, about 3 % of unseen tags are reported as seen.
const WORDS: usize = 1 << 14;

impl TagsSeen {
    /// Adds tags. `None` means too many tags to list.
    pub(super) fn see(&self, tags: Option<&[Name]>) {
        match tags {
            None => self.has_any.store(true, Ordering::Relaxed),
            Some([]) => {}
            Some(tags) => {
                let bits = self.bits.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
                for (word, bit) in tags.iter().flat_map(|tag| places(*tag)) {
                    bits[word].fetch_or(bit, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns whether a tag may have been seen.
    pub(super) fn may_have(&self, tag: Name) -> bool {
        let has_bit =
            |bits: &[AtomicU64], (word, bit): (usize, u64)| bits[word].load(Ordering::Relaxed) & bit != 0;
        self.has_any.load(Ordering::Relaxed)
            || self.bits.get().is_some_and(|bits| places(tag).into_iter().all(|place| has_bit(bits, place)))
    }
}

/// Returns the bits of a name, which is already a hash.
fn places(Name(hash): Name) -> [(usize, u64); 2] {
    [hash, hash >> 32].map(|part| {
        let place = part as usize % (WORDS * 64);
        (place / 64, 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_stays_seen() {
        let seen = TagsSeen::default();
        let [one, two] = [Name(0x1234_5678_9abc_def0), Name(7)];
        assert!(!seen.may_have(one));
        seen.see(Some(&[]));
        seen.see(Some(&[one]));
        assert!(seen.may_have(one) && !seen.may_have(two));
        seen.see(None);
        assert!(seen.may_have(two));
    }
}
