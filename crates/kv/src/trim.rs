//! Freed memory that the allocator retains, which counts against the limit too.

use engine::Engine;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Makes the allocator return all retained memory to the system, if it is more than `kept_bytes_max`. Returns
/// the number of bytes returned.
pub type Trim = fn(kept_bytes_max: u64) -> u64;

/// Memory that may be retained when the store is full, as a fraction of the limit: a third of the amount by
/// which resident memory may exceed the limit. Until the next check, half as much again may be freed, and a
/// worker's buffers take memory in addition.
const KEPT_SHARE: u64 = 32;
/// Minimum for small limits. The memory of an idle process varies by this amount.
const KEPT_BYTES_MIN: u64 = 2 << 20;
/// Maximum for large limits, so that returning the memory doesn't block a worker for long.
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// Checks the allocator's retained memory whenever enough was freed to exceed the allowance.
///
/// Overwriting values frees as much as it allocates, and the allocator reuses the memory. Returning it each
/// time would make a SET of 64 KiB four times as expensive. But replacing large values by small ones leaves
/// large free blocks with the allocator.
#[derive(Debug, Default)]
pub(crate) struct Trimming {
    trim: Option<Trim>,
    /// Freed bytes at the last check.
    looked_at_bytes: AtomicU64,
    trimmed_bytes: AtomicU64,
}

impl Trimming {
    pub(crate) fn new(trim: Option<Trim>) -> Self {
        Self { trim, ..Self::default() }
    }

    /// Called after operations that may have freed memory.
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

    /// Trims if more than `kept_bytes_max` bytes are retained.
    pub(crate) fn trim(&self, kept_bytes_max: u64) {
        if let Some(trim) = self.trim {
            self.trimmed_bytes.fetch_add(trim(kept_bytes_max), Relaxed);
        }
    }

    /// Bytes returned to the system since the start.
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

    /// Sets values of 1 MiB with a check after each, and compares the allowances, in MiB, of the checks that
    /// ask the allocator.
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
        // Every second overwritten value causes a check: 2 MiB are more than half of the 3 MiB that may be
        // retained.
        check(96 * MIB, 1, 7, &[97, 97, 97]);
        check(96 * MIB, 2, 7, &[96, 96]);
        // The allowance grows with the limit, up to 32 MiB.
        check(384 * MIB, 1, 6, &[]);
        check(384 * MIB, 1, 7, &[387]);
        check(2048 * MIB, 1, 16, &[]);
        check(2048 * MIB, 1, 17, &[2065]);
    }
}
