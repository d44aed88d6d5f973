//! Memory that was freed, and that the allocator keeps: it counts for the limit too.

use engine::Engine;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Has the allocator give all that it keeps of freed memory back to the system, where that is more than so many bytes; how many it gave.
pub type Trim = fn(kept_bytes_max: u64) -> u64;

/// What may be kept when memory is full, as a share of the limit: a third of what resident memory may be over it. Half as much again can come
/// until it is looked at, and the buffers of a worker.
const KEPT_SHARE: u64 = 32;
/// Where the limit is small. What a process takes that stores nothing varies by as much.
const KEPT_BYTES_MIN: u64 = 2 << 20;
/// Where the limit is large: a worker is not to be stopped for long by what it gives back at once.
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// Looks at what the allocator keeps, whenever so much more was freed that it could be too much.
///
/// Who overwrites values frees as much as he takes, and the allocator takes for the new what it keeps of the old: to give that back each time
/// costs four times as much per SET of 64 KiB. Who sets small values instead of large ones leaves it with the large ones.
#[derive(Debug, Default)]
pub(crate) struct Trimming {
    trim: Option<Trim>,
    /// How much had been freed when it looked the last time.
    looked_at_bytes: AtomicU64,
    trimmed_bytes: AtomicU64,
}

impl Trimming {
    pub(crate) fn new(trim: Option<Trim>) -> Self {
        Self { trim, ..Self::default() }
    }

    /// To be called after what may have freed memory.
    #[inline]
    pub(crate) fn look(&self, engine: &Engine) {
        let freed = engine.freed_bytes().saturating_sub(self.looked_at_bytes.load(Relaxed));
        if freed >= KEPT_BYTES_MIN / 2 {
            self.look_closer(engine, freed);
        }
    }

    #[cold]
    fn look_closer(&self, engine: &Engine, freed: u64) {
        let bytes_max = engine.bytes_max();
        let spare = (bytes_max / KEPT_SHARE).clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX);
        if freed < spare / 2 {
            return;
        }
        self.looked_at_bytes.store(engine.freed_bytes(), Relaxed);
        self.trim(bytes_max.saturating_add(spare).saturating_sub(engine.used_bytes()));
    }

    /// Has all given back, if it is more than so many bytes.
    pub(crate) fn trim(&self, kept_bytes_max: u64) {
        if let Some(trim) = self.trim {
            self.trimmed_bytes.fetch_add(trim(kept_bytes_max), Relaxed);
        }
    }

    /// What was given back, all since the begin.
    pub(crate) fn trimmed_bytes(&self) -> u64 {
        self.trimmed_bytes.load(Relaxed)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::cell::RefCell;

    use engine::{Database, Expiry, Policy, Settings};

    use super::*;

    const MIB: u64 = 1 << 20;

    thread_local! {
        static ASKED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    fn trim(kept_bytes_max: u64) -> u64 {
        ASKED.with_borrow_mut(|asked| asked.push(kept_bytes_max / MIB));
        5
    }

    /// Sets values of 1 MiB, and looks after each; what may be kept, in MiB, each time that it looked closer.
    #[track_caller]
    fn check(bytes_max: u64, keys: usize, values: usize, expected: &[u64]) {
        let engine = Engine::new(&Settings { bytes_max, policy: Policy::default(), seed: 1, threads: 1 });
        let trimming = Trimming::new(Some(trim));
        for number in 0..values {
            let name = (number % keys).to_string();
            let key = engine.key(Database::default(), name.as_bytes());
            engine.lock(&key).set(&[7; 1 << 20], Expiry::Never, 0).expect("there is room");
            trimming.look(&engine);
        }
        assert_eq!(ASKED.take(), expected);
        assert_eq!(trimming.trimmed_bytes(), 5 * expected.len() as u64);
    }

    #[test]
    fn it_looks_when_it_could_be_too_much() {
        // Nothing is freed.
        check(96 * MIB, 40, 40, &[]);
        // Two are freed each time: half of what may be kept, which is 3 MiB and what is free.
        check(96 * MIB, 1, 7, &[97, 97, 97]);
        check(96 * MIB, 2, 7, &[96, 96]);
        // The larger the limit, the more, up to 32 MiB.
        check(384 * MIB, 1, 6, &[]);
        check(384 * MIB, 1, 7, &[387]);
        check(2048 * MIB, 1, 16, &[]);
        check(2048 * MIB, 1, 17, &[2065]);
    }
}
