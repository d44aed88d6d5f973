//! Room for several writes, as in a transaction: after the first one, none may be refused.

use crate::engine::Engine;
use crate::segment::SEGMENT_BYTES;

/// A temporary increase of the limit for writes. Dropping it restores the limit.
#[derive(Debug)]
pub struct Stretched<'a> {
    engine: &'a Engine,
    bytes: u64,
}

impl Drop for Stretched<'_> {
    fn drop(&mut self) {
        self.engine.budget.unstretch(self.bytes);
    }
}

/// External memory that will become the memory of a value. The memory isn't counted until this guard is
/// dropped.
#[derive(Debug)]
pub struct HandedOver<'a> {
    engine: &'a Engine,
    bytes: usize,
}

impl Drop for HandedOver<'_> {
    fn drop(&mut self) {
        self.engine.budget.take_anyway(self.bytes);
        self.engine.budget.fix(0, self.bytes);
    }
}

impl Engine {
    /// Stops counting `bytes` of external memory, which belong to an argument that may be stored without a
    /// copy. Otherwise the argument would count twice.
    #[must_use]
    pub fn hand_over(&self, bytes: usize) -> HandedOver<'_> {
        self.budget.fix(bytes, 0);
        self.budget.give_back(bytes);
        HandedOver { engine: self, bytes }
    }

    /// Evicts until there is room for `bytes`. Returns false if no room can be made. The caller may not hold
    /// a guard.
    ///
    /// The function always returns: it stops after a round in which no shard has memory to free, and the
    /// number of rounds without progress is limited.
    #[must_use]
    pub fn make_room(&self, bytes: usize, now_ms: u64) -> bool {
        if self.has_room(bytes) {
            return true;
        }
        let rounds_max = || self.shards_as_they_are().map(|shard| shard.rounds_max()).max().unwrap_or(0);
        if !self.could_free(bytes) || !self.may_evict() {
            return false;
        }
        let (rounds_max, mut used_bytes) = (rounds_max(), self.used_bytes());
        let mut rounds = 0;
        while rounds < rounds_max && self.relieve_each(bytes, now_ms) {
            if self.has_room(bytes) {
                return true;
            }
            // A round may make no progress, because it only moves items and lowers their frequencies.
            rounds = if self.used_bytes() < used_bytes { 0 } else { rounds + 1 };
            used_bytes = used_bytes.min(self.used_bytes());
        }
        self.has_room(bytes)
    }

    /// Returns whether `bytes` fit within the limit plus `beyond_bytes` if all evictable keys are evicted. If
    /// the result is false, the request can be refused without evicting any key.
    #[must_use]
    pub fn could_make_room(&self, bytes: usize, beyond_bytes: usize) -> bool {
        if !self.policy().is_volatile() {
            return self.could_free(bytes);
        }
        let passing_bytes: u64 = self.shards_as_they_are().map(|shard| shard.passing_bytes()).sum();
        let staying_bytes = self.used_bytes().saturating_sub(passing_bytes);
        staying_bytes.saturating_add(bytes as u64) <= self.bytes_max().saturating_add(beyond_bytes as u64)
    }

    /// Raises the limit so that none of the next `writes` writes fails, regardless of the segments that they
    /// fill. Make room for `bytes`, their total size, first.
    #[must_use]
    pub fn stretch(&self, writes: usize, bytes: usize) -> Stretched<'_> {
        // Each shard may need a segment for each queue.
        let segments = 2 * (1 + writes.min(self.shards_count()));
        let bytes = (bytes + segments * SEGMENT_BYTES) as u64;
        let bytes = bytes.min(u64::MAX - self.budget.bytes_max());
        self.budget.stretch(bytes);
        Stretched { engine: self, bytes }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes() <= self.budget.used_bytes_beside(bytes) && !self.budget.is_exceeded()
    }

    /// Returns whether the policy may find keys to evict.
    fn may_evict(&self) -> bool {
        !self.policy().keeps_keys() || self.counts().expiring.iter().any(|keys| *keys > 0)
    }

    /// Empties a part of one shard after the other until there is room. Returns whether any shard freed
    /// memory.
    fn relieve_each(&self, bytes: usize, now_ms: u64) -> bool {
        let mut gave = false;
        for number in 0..self.shards_count() {
            gave |= self.shard_as_is(number).relieve(self.budget.used_bytes_beside(bytes), now_ms);
            if self.has_room(bytes) {
                return true;
            }
        }
        gave
    }
}

#[cfg(test)]
mod tests {
    use crate::{Database, Engine, Expiry, Policy, Settings};

    fn set(engine: &Engine, name: &str, expiry: Expiry) -> bool {
        let key = engine.key(Database::default(), name.as_bytes());
        engine.lock(&key).set(&[b'v'; 1000], expiry, 0).is_ok()
    }

    /// Fills an engine with keys that have this expiry, and returns whether it then makes room for `bytes`.
    fn is_made(policy: Policy, shards: usize, expiry: Expiry, bytes: usize) -> bool {
        let bytes_max = (shards as u64) << 23;
        let engine = Engine::new(&Settings { bytes_max, policy, seed: 3, threads: 1 });
        let is_set = |number: &u64| set(&engine, &format!("key-{number}"), expiry);
        assert!((0..bytes_max / 1000).take_while(is_set).count() > 4000 * shards);
        let is_made = engine.make_room(bytes, 0);
        assert!(!is_made || engine.used_bytes() + bytes as u64 <= bytes_max);
        let stretched = engine.stretch(500, if is_made { bytes } else { 0 });
        let more = if is_made { bytes / 1100 } else { 0 };
        assert!(
            (0..more).all(|number| set(&engine, &format!("more-{number}"), Expiry::Never)),
            "{policy} {shards}"
        );
        drop(stretched);
        assert_eq!(engine.bytes_max(), bytes_max);
        is_made
    }

    #[test]
    fn what_could_have_room_is_known_before() {
        let settings = Settings { bytes_max: 16 << 20, policy: Policy::VolatileLru, seed: 3, threads: 1 };
        let engine = Engine::new(&settings);
        for number in 0..8_000 {
            assert!(set(&engine, &format!("stays-{number}"), Expiry::Never));
        }
        let goes = |number: &u64| set(&engine, &format!("goes-{number}"), Expiry::At(1000));
        assert_eq!((0..4_000).take_while(goes).count(), 4_000);
        assert!(engine.could_make_room(6 << 20, 0) && !engine.could_make_room(9 << 20, 0));
        assert!(engine.could_make_room(9 << 20, 2 << 20) && engine.make_room(6 << 20, 0));
    }

    #[test]
    fn room_is_made_where_the_policy_permits() {
        for shards in [1, 2, 4] {
            for policy in Policy::ALL {
                let evicts_all = policy.name().starts_with("allkeys");
                let check = |expiry, bytes, expected| {
                    assert_eq!(
                        is_made(policy, shards, expiry, bytes),
                        expected,
                        "{policy} {shards} {expiry:?} {bytes}"
                    );
                };
                check(Expiry::Never, 3 << 20, evicts_all);
                check(Expiry::At(1000), 3 << 20, policy != Policy::NoEviction);
                check(Expiry::At(1000), shards << 24, false);
            }
        }
    }
}
