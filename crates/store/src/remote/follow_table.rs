//! Keys that the server follows for this process. The server reports names, but watchers need keys.

use indexmap::IndexMap;
use indexmap::map::Entry;

use super::names::Digest;

/// A table of followed keys, independent of clock and connection. Keys are dropped if there is no room; the caller announces dropped and
/// removed keys.
#[derive(Debug)]
pub(super) struct FollowTable {
    keys: IndexMap<Digest, FollowedKey>,
    bytes: usize,
    bytes_max: usize,
    /// Index of the next key to drop; cycles through all keys.
    next_dropped: usize,
}

#[derive(Debug)]
struct FollowedKey {
    key: Box<[u8]>,
    /// Number of loads in flight. While loads are in flight, a reported change may have happened before the load, so the key stays followed
    /// after it.
    loading: u32,
}

/// Result of following a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FollowOutcome {
    /// The key is followed. The keys in `given_up` are no longer followed.
    Followed { given_up: Vec<Box<[u8]>> },
    /// The key isn't followed: it is too long, or has the digest of another key.
    Refused,
}

impl FollowTable {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { keys: IndexMap::new(), bytes: 0, bytes_max, next_dropped: 0 }
    }

    /// Begins to follow a key, before the load is sent.
    pub(super) fn begin(&mut self, digest: Digest, key: &[u8]) -> FollowOutcome {
        let weight = weight(key);
        match self.keys.entry(digest) {
            Entry::Occupied(known) if *known.get().key != *key => return FollowOutcome::Refused,
            Entry::Occupied(mut known) => {
                known.get_mut().loading += 1;
                return FollowOutcome::Followed { given_up: Vec::new() };
            }
            Entry::Vacant(_) if weight > self.bytes_max => return FollowOutcome::Refused,
            Entry::Vacant(place) => {
                place.insert(FollowedKey { key: key.into(), loading: 1 });
            }
        }
        self.bytes += weight;
        let mut given_up = Vec::new();
        while self.bytes > self.bytes_max {
            // Cycling hardly ever drops the newest key. Dropping it would also be correct.
            self.next_dropped = (self.next_dropped + 1) % (self.keys.len() - 1).max(1);
            let Some((_, one)) = self.keys.swap_remove_index(self.next_dropped) else { break };
            self.bytes -= self::weight(&one.key);
            given_up.push(one.key);
        }
        FollowOutcome::Followed { given_up }
    }

    /// Notes that a load has succeeded, has failed or was dropped.
    pub(super) fn end(&mut self, digest: Digest) {
        if let Some(followed) = self.keys.get_mut(&digest) {
            followed.loading = followed.loading.saturating_sub(1);
        }
    }

    /// Handles a reported change. Returns the key if it is followed.
    pub(super) fn changed(&mut self, digest: Digest) -> Option<Box<[u8]>> {
        let followed = self.keys.get(&digest)?;
        if followed.loading > 0 {
            return Some(followed.key.clone());
        }
        let followed = self.keys.swap_remove(&digest)?;
        self.bytes -= weight(&followed.key);
        Some(followed.key)
    }

    /// Handles the loss of some records to other nodes. Returns their keys.
    pub(super) fn moved(&mut self, has_moved: impl Fn(Digest) -> bool) -> Vec<Box<[u8]>> {
        let digests: Vec<Digest> = self.keys.keys().copied().filter(|digest| has_moved(*digest)).collect();
        digests.into_iter().filter_map(|digest| self.changed(digest)).collect()
    }

    /// Handles a report that everything has changed.
    pub(super) fn all_changed(&mut self) {
        self.keys.retain(|_, followed| followed.loading > 0);
        self.bytes = self.keys.values().map(|followed| weight(&followed.key)).sum();
    }
}

/// Returns the weight of an entry: its key, plus its table entry twice, because a table may be half empty.
fn weight(key: &[u8]) -> usize {
    key.len() + ENTRY_BYTES
}

const ENTRY_BYTES: usize = 2 * (size_of::<Digest>() + size_of::<FollowedKey>() + 2 * size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(table: &mut FollowTable, key: &[u8]) -> FollowOutcome {
        table.begin(Digest::of(key), key)
    }

    fn followed(table: &mut FollowTable, key: &[u8]) {
        assert_eq!(begin(table, key), FollowOutcome::Followed { given_up: Vec::new() });
        table.end(Digest::of(key));
    }

    fn told(table: &mut FollowTable, key: &[u8]) -> bool {
        let told = table.changed(Digest::of(key));
        assert!(told.as_deref().is_none_or(|told| told == key));
        told.is_some()
    }

    #[test]
    fn a_change_is_told_once_for_each_load() {
        let mut table = FollowTable::new(1 << 20);
        assert!(!told(&mut table, b"key"), "nobody asked");
        followed(&mut table, b"key");
        followed(&mut table, b"key");
        assert!(told(&mut table, b"key") && !told(&mut table, b"key"));
        followed(&mut table, b"key");
        assert!(told(&mut table, b"key"));
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn a_change_during_a_load_does_not_hide_the_next() {
        let mut table = FollowTable::new(1 << 20);
        begin(&mut table, b"key");
        assert!(told(&mut table, b"key"), "of what was there before the load, or of what it has read");
        table.all_changed();
        table.end(Digest::of(b"key"));
        assert!(told(&mut table, b"key"), "of what the load has read");
        assert!(!told(&mut table, b"key"));
    }

    #[test]
    fn all_are_forgotten_at_once() {
        let mut table = FollowTable::new(1 << 20);
        followed(&mut table, b"key");
        table.all_changed();
        assert!(!told(&mut table, b"key") && table.bytes == 0);
    }

    #[test]
    fn there_is_room_for_some() {
        let mut table = FollowTable::new(10 * weight(b"000"));
        let mut given_up = Vec::new();
        for number in 0..100 {
            let key = format!("{number:03}");
            match begin(&mut table, key.as_bytes()) {
                FollowOutcome::Followed { given_up: keys } => given_up.extend(keys),
                FollowOutcome::Refused => panic!("{key} has room"),
            }
            assert!(table.bytes <= table.bytes_max && table.keys.len() <= 10);
        }
        let kept: Vec<_> = table.keys.values().map(|followed| followed.key.clone()).collect();
        assert!(kept.contains(&b"099"[..].into()));
        given_up.extend(kept);
        given_up.sort();
        given_up.dedup();
        assert_eq!(given_up.len(), 100, "each is followed, or was given up");
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let mut table = FollowTable::new(1 << 10);
        assert_eq!(begin(&mut table, &[b'k'; 1 << 10]), FollowOutcome::Refused);
        begin(&mut table, b"key");
        assert_eq!(
            table.begin(Digest::of(b"key"), b"other"),
            FollowOutcome::Refused,
            "the digest of another key"
        );
    }
}
