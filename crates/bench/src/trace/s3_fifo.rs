//! S3-FIFO (Yang and others, SOSP 2023) with objects of one size: two queues, and a list of those that left the first.

use std::collections::{HashMap, VecDeque};

/// A cache that knows only which keys it has.
#[derive(Debug)]
pub struct S3Fifo {
    capacity: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    /// Uses of the keys in both, up to 3.
    frequency: HashMap<u64, u8>,
    ghosts: VecDeque<u64>,
    /// How often each of them is among the ghosts.
    ghost_counts: HashMap<u64, u32>,
}

/// A tenth is for new keys.
const SMALL_SHARE: usize = 10;
const FREQUENCY_MAX: u8 = 3;
/// Uses that take a key from the small queue to the main one.
const PROVEN: u8 = 2;

impl S3Fifo {
    /// An empty one for so many keys.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(SMALL_SHARE),
            small: VecDeque::new(),
            main: VecDeque::new(),
            frequency: HashMap::new(),
            ghosts: VecDeque::new(),
            ghost_counts: HashMap::new(),
        }
    }

    /// Whether a key is there. A use of it.
    pub fn get(&mut self, key: u64) -> bool {
        let found = self.frequency.get_mut(&key);
        found.map(|frequency| *frequency = (*frequency + 1).min(FREQUENCY_MAX)).is_some()
    }

    /// Adds a key; a use, if it is there.
    pub fn set(&mut self, key: u64) {
        if self.get(key) {
            return;
        }
        while self.small.len() + self.main.len() >= self.capacity {
            self.evict();
        }
        let queue = if self.take_ghost(key) { &mut self.main } else { &mut self.small };
        queue.push_back(key);
        self.frequency.insert(key, 0);
    }

    fn small_max(&self) -> usize {
        self.capacity / SMALL_SHARE
    }

    fn evict(&mut self) {
        if self.small.len() < self.small_max() {
            return self.evict_main();
        }
        while let Some(key) = self.small.pop_front() {
            if self.frequency.get(&key).is_some_and(|frequency| *frequency >= PROVEN) {
                self.frequency.insert(key, 0);
                self.main.push_back(key);
            } else {
                self.frequency.remove(&key);
                return self.remember(key);
            }
        }
        self.evict_main();
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            match self.frequency.get_mut(&key) {
                Some(frequency @ 1..) => {
                    *frequency -= 1;
                    self.main.push_back(key);
                }
                _ => {
                    self.frequency.remove(&key);
                    return;
                }
            }
        }
    }

    fn remember(&mut self, key: u64) {
        self.ghosts.push_back(key);
        *self.ghost_counts.entry(key).or_default() += 1;
        while self.ghosts.len() > self.capacity - self.small_max() {
            let Some(oldest) = self.ghosts.pop_front() else { return };
            self.take_ghost(oldest);
        }
    }

    /// Forgets a key that left the small queue not long ago; whether it was one.
    fn take_ghost(&mut self, key: u64) -> bool {
        let Some(count) = self.ghost_counts.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.ghost_counts.remove(&key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_keys_outlive_a_scan_and_early_losses_come_back_to_main() {
        let mut cache = S3Fifo::new(100);
        (0..50).for_each(|key| cache.set(key));
        (0..2).for_each(|_| assert!((0..50).all(|key| cache.get(key))));
        (1000..2000).for_each(|key| cache.set(key));
        assert!((0..50).all(|key| cache.get(key)), "a scan does not evict what is used");
        // Beside the 50 keys in the main queue, the small one holds the last 50 of the scan.
        assert!(!cache.get(1940), "it has left the small queue");
        cache.set(1940);
        (3000..3200).for_each(|key| cache.set(key));
        assert!(cache.get(1940), "who comes back soon stays");
    }

    #[test]
    fn never_more_than_there_is_room_for() {
        let mut cache = S3Fifo::new(20);
        for key in (0..10_000_u64).map(|step| step * step % 97) {
            cache.set(key);
            assert!(cache.small.len() + cache.main.len() <= 20);
            assert_eq!(cache.frequency.len(), cache.small.len() + cache.main.len());
        }
    }
}
