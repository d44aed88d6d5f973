//! Accounting of live bytes, and reservations.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;

use crate::files::Files;
/// A reservation was refused, because it doesn't fit even after eviction. The caller passes the bytes through instead of storing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for {bytes} bytes within the memory budget")]
pub struct OverBudget {
    /// Size of the reservation.
    pub bytes: usize,
}

/// Counts live bytes against one limit, in the classes filling, stored and pinned.
///
/// `live` is authoritative: it is raised by compare-and-swap only while the result stays within the limit, so no interleaving exceeds it.
/// The classes divide `live`. They change separately, and their sum equals `live` when no change is in progress.
#[derive(Debug)]
pub struct Budget {
    bytes_max: u64,
    filling_bytes_max: u64,
    live: AtomicU64,
    filling: AtomicI64,
    stored: AtomicI64,
    pinned: AtomicI64,
    /// Table memory beyond the overhead for which entries are charged: tables never shrink.
    slack: AtomicI64,
    refused: AtomicU64,
    evictor: OnceLock<Weak<dyn Evictor>>,
    files: Option<LargeInFiles>,
    files_failed: AtomicU64,
}

/// Files for large segments.
#[derive(Debug)]
pub(crate) struct LargeInFiles {
    pub(crate) files: Arc<Files>,
    /// Minimum size of a segment that goes into a file.
    pub(crate) bytes_min: usize,
}

/// A tier that evicts to make room.
pub(crate) trait Evictor: Send + Sync {
    /// Evicts until `bytes` more fit, as far as possible.
    fn make_room(&self, bytes: u64);
}

impl Budget {
    pub(crate) fn new(bytes_max: u64, filling_bytes_max: u64, files: Option<LargeInFiles>) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            filling_bytes_max,
            live: AtomicU64::new(0),
            filling: AtomicI64::new(0),
            stored: AtomicI64::new(0),
            pinned: AtomicI64::new(0),
            slack: AtomicI64::new(0),
            refused: AtomicU64::new(0),
            evictor: OnceLock::new(),
            files,
            files_failed: AtomicU64::new(0),
        })
    }

    pub(crate) fn set_evictor(&self, evictor: Weak<dyn Evictor>) {
        let first = self.evictor.set(evictor).is_ok();
        assert!(first, "a budget belongs to one memory tier");
    }

    /// Reserves room for bytes of a fill in progress.
    ///
    /// # Errors
    /// If fills and pinned bytes would exceed their share of the limit, or eviction doesn't make room.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Charge, OverBudget> {
        self.reserve_within(self.filling_bytes_max, bytes)
    }

    /// Reserves room for bytes of a small body. Unlike [`Budget::reserve`], it may also use half of the share of stored bytes, so that a
    /// few large fills and slow readers never prevent all small bodies from being stored.
    ///
    /// # Errors
    /// If fills and pinned bytes would exceed that share, or eviction doesn't make room.
    pub fn reserve_small(self: &Arc<Self>, bytes: usize) -> Result<Charge, OverBudget> {
        self.reserve_within(self.bytes_max.midpoint(self.filling_bytes_max), bytes)
    }

    fn reserve_within(self: &Arc<Self>, held_bytes_max: u64, bytes: usize) -> Result<Charge, OverBudget> {
        let held = self.filling_bytes().saturating_add(self.pinned_bytes());
        if held.saturating_add(bytes as u64) > held_bytes_max {
            return Err(self.refuse(bytes));
        }
        self.reserve_record(bytes)
    }

    /// Returns the share of the limit that fills and pinned bytes may take.
    pub fn filling_bytes_max(&self) -> u64 {
        self.filling_bytes_max
    }

    /// Reserves room for a record. Unlike [`Budget::reserve`], this may use the share of stored bytes too, so that large fills never
    /// prevent a stored response from being freshened.
    ///
    /// # Errors
    /// If eviction doesn't make room.
    pub fn reserve_record(self: &Arc<Self>, bytes: usize) -> Result<Charge, OverBudget> {
        self.acquire(bytes as u64)?;
        self.filling.fetch_add(bytes as i64, Relaxed);
        Ok(Charge { budget: Arc::clone(self), bytes: bytes as u64, holders: AtomicU32::new(FILLING) })
    }

    /// Reserves room for data that belongs to a stored record and is dropped with it. It counts as stored until then.
    ///
    /// # Errors
    /// If eviction doesn't make room.
    pub fn reserve_beside_record(self: &Arc<Self>, bytes: usize) -> Result<Charge, OverBudget> {
        self.acquire(bytes as u64)?;
        self.stored.fetch_add(bytes as i64, Relaxed);
        Ok(Charge { budget: Arc::clone(self), bytes: bytes as u64, holders: AtomicU32::new(1) })
    }

    /// Returns the limit on the sum of all classes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the bytes of all classes together.
    pub fn live_bytes(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Returns the number of bytes of fills in progress and of records that aren't stored yet.
    pub fn filling_bytes(&self) -> u64 {
        clamped(&self.filling)
    }

    /// Returns the bytes that the memory tier holds, with its keys and tables.
    pub fn stored_bytes(&self) -> u64 {
        clamped(&self.stored).saturating_add(self.slack_bytes())
    }

    /// Returns the table memory for which no entry is charged, a part of the stored bytes.
    pub fn slack_bytes(&self) -> u64 {
        clamped(&self.slack)
    }

    /// Returns the number of bytes that have left the memory tier and are still being read.
    pub fn pinned_bytes(&self) -> u64 {
        clamped(&self.pinned)
    }

    /// Returns the number of refused reservations.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns the files for a segment of `len` bytes, if it belongs there.
    pub(crate) fn files_for(&self, len: usize) -> Option<&Arc<Files>> {
        self.files.as_ref().filter(|large| len >= large.bytes_min).map(|large| &large.files)
    }

    pub(crate) fn file_failed(&self) {
        self.files_failed.fetch_add(1, Relaxed);
    }

    /// Returns the bytes in files, of any class.
    pub fn file_bytes(&self) -> u64 {
        self.files.as_ref().map_or(0, |large| large.files.held_bytes())
    }

    /// Returns the number of segments that are on the heap because writing them to a file failed.
    pub fn files_failed(&self) -> u64 {
        self.files_failed.load(Relaxed)
    }

    /// Returns the number of live bytes that eviction can't free.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.live_bytes().saturating_sub(clamped(&self.stored))
    }

    /// Acquires `bytes` for the key and the table entry of a value that is about to be stored.
    pub(crate) fn acquire_stored(&self, bytes: u64) -> Result<(), OverBudget> {
        self.acquire(bytes)?;
        self.stored.fetch_add(bytes as i64, Relaxed);
        Ok(())
    }

    pub(crate) fn release_stored(&self, bytes: u64) {
        self.release(&self.stored, bytes);
    }

    /// Sets the table memory for which no entry is charged. It is already allocated, so it counts even beyond the limit.
    pub(crate) fn set_slack(&self, bytes: u64) {
        let before = self.slack.swap(bytes as i64, Relaxed) as u64;
        self.live.fetch_add(bytes, Relaxed);
        self.live.fetch_sub(before, Relaxed);
    }

    fn acquire(&self, bytes: u64) -> Result<(), OverBudget> {
        for _ in 0..EVICTION_ROUNDS {
            if self.try_acquire(bytes) {
                return Ok(());
            }
            // A reservation that can't fit even into an empty tier must not evict everything.
            if self.held_bytes().saturating_add(bytes) > self.bytes_max {
                break;
            }
            if let Some(evictor) = self.evictor.get().and_then(Weak::upgrade) {
                evictor.make_room(bytes);
            }
        }
        if self.try_acquire(bytes) { Ok(()) } else { Err(self.refuse(bytes as usize)) }
    }

    fn try_acquire(&self, bytes: u64) -> bool {
        let within = |live: u64| live.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        self.live.fetch_update(Relaxed, Relaxed, within).is_ok()
    }

    fn release(&self, class: &AtomicI64, bytes: u64) {
        class.fetch_sub(bytes as i64, Relaxed);
        let before = self.live.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "the budget released more bytes than it acquired");
    }

    fn refuse(&self, bytes: usize) -> OverBudget {
        self.refused.fetch_add(1, Relaxed);
        OverBudget { bytes }
    }
}

/// A reservation of bytes. It counts as filling at first, as stored while a table holds its owner, and as pinned after that. It leaves the
/// budget when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
    /// Number of table entries that hold the owner; [`FILLING`] before the first.
    holders: AtomicU32,
}

impl Charge {
    /// Returns the reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Wraps `bytes` so that they stay charged until the last slice of them is dropped.
    pub fn hold(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(ChargedBytes { bytes, _charge: self })
    }

    /// Increases the charge of a fill in progress.
    ///
    /// # Errors
    /// If the budget has no room; the charge is then unchanged.
    ///
    /// # Panics
    /// If the owner is already stored, because its size is fixed from then on.
    pub fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let more = self.budget.reserve(bytes)?;
        self.join(more);
        Ok(())
    }

    /// Adds the bytes of another charge of a fill in progress.
    ///
    /// # Panics
    /// If the owner is already stored.
    pub fn join(&mut self, mut more: Self) {
        assert_eq!(*self.holders.get_mut(), FILLING, "only a fill in progress grows");
        self.bytes += std::mem::take(&mut more.bytes);
    }

    /// Returns whether a table holds the owner, so that eviction can free it.
    pub(crate) fn is_stored(&self) -> bool {
        !matches!(self.holders.load(Relaxed), 0 | FILLING)
    }

    /// Returns whether this charge counts against `budget`.
    pub fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Records that one more table entry holds the owner.
    pub(crate) fn enter(&self) {
        let next = |holders| Some(if holders == FILLING { 1 } else { holders + 1 });
        let from = match self.holders.fetch_update(Relaxed, Relaxed, next) {
            Ok(FILLING) => &self.budget.filling,
            Ok(0) => &self.budget.pinned,
            _ => return,
        };
        self.shift(from, &self.budget.stored);
    }

    /// Decrements the number of table entries that hold the owner.
    pub(crate) fn leave(&self) {
        let before = self.holders.fetch_sub(1, Relaxed);
        debug_assert!(before != 0 && before != FILLING, "a charge left the table more often than it entered");
        if before == 1 {
            self.shift(&self.budget.stored, &self.budget.pinned);
        }
    }

    fn shift(&self, from: &AtomicI64, to: &AtomicI64) {
        from.fetch_sub(self.bytes as i64, Relaxed);
        to.fetch_add(self.bytes as i64, Relaxed);
    }
}

struct ChargedBytes<B> {
    bytes: B,
    _charge: Charge,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for ChargedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let class = match *self.holders.get_mut() {
            FILLING => &self.budget.filling,
            0 => &self.budget.pinned,
            _ => &self.budget.stored,
        };
        self.budget.release(class, self.bytes);
    }
}

/// Size of the two counters of an `Arc`, which precede its content.
pub const ARC_HEADER_BYTES: usize = 16;

/// Returns the number of bytes that an allocator uses for a block of `len` bytes. Common allocators have four size classes per doubling,
/// and waste a tenth on average, which is resident memory too. Reserve this number of bytes for boxed data.
pub fn allocated_bytes(len: usize) -> usize {
    let class_bytes = match len {
        0 => return 0,
        1..=64 => 16,
        _ => 1 << ((len - 1).ilog2() - 2),
    };
    len.checked_next_multiple_of(class_bytes).unwrap_or(usize::MAX)
}

/// Value of `Charge::holders` before the first table entry.
const FILLING: u32 = u32::MAX;

/// Maximum number of eviction rounds. Evicting a value that is being read frees nothing immediately, so one round may not be enough.
const EVICTION_ROUNDS: usize = 8;

/// Returns the value of a class, but at least 0: two threads that move the same charge may briefly make a class negative.
fn clamped(class: &AtomicI64) -> u64 {
    u64::try_from(class.load(Relaxed)).unwrap_or(0)
}
