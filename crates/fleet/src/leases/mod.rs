//! Leases: the right to fetch on behalf of all instances that share the tier, one per key.
//!
//! The holder renews its lease while it fetches, and frees it by writing a record: a response, a note that other instances can't use the
//! response, or a note that it gave up. Other instances wait for this record, and never read the lease, which changes with each renewal.
//! Dropping a lease frees it, however the fetch ended, so that no instance waits in vain.

mod freeing;

use std::sync::Arc;
use std::time::Duration;

use cache::entry::stored::{CacheEntry, Uncacheable};
use cache::portable::ReleaseNote;
use parking_lot::Mutex;
use store::backing::{Backing, Lease, RenewOutcome};
use telemetry::trace::TraceContext;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use twox_hash::XxHash3_64;

use self::freeing::Unneeded;
use crate::answer::RemoteState;
use crate::counts::{Counts, Event};
use crate::late_write_guard::LateWriteGuard;

/// Lifetime of leases, and the maximum wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Lifetime of a lease without renewal.
    pub time: Duration,
    /// Maximum wait for another instance's fetch.
    pub wait_max: Duration,
}

/// State for taking and freeing leases.
pub(super) struct Leases {
    pub(super) backing: Arc<dyn Backing>,
    pub(super) late_writes: Arc<LateWriteGuard>,
    pub(super) counts: Arc<Counts>,
    pub(super) limits: LeaseLimits,
    /// `returns` limits the number of leases that are being returned, and `returns_at_once` the number of concurrent requests for this.
    returns: Arc<Semaphore>,
    returns_at_once: Semaphore,
    /// Name of this instance in notes, for operators who inspect the tier.
    holder: Box<str>,
}

/// Purpose of a lease.
#[derive(Clone, Copy)]
pub struct WantedLease<'a> {
    pub key: &'a [u8],
    /// Variant key: the part of the request that the response depends on, if known.
    pub variant: &'a [u8],
    /// Record known under the key.
    pub known: Option<&'a Arc<CacheEntry>>,
    /// Trace of the request, to which the traces of waiting instances link.
    pub trace: Option<TraceContext>,
}

/// A lease that this instance holds, or has held.
pub struct HeldLease {
    leases: Arc<Leases>,
    pub(super) lease: Lease,
    /// Record known under the key.
    known: Option<Arc<CacheEntry>>,
    /// Record that was read under the lease. A write most probably finds it unchanged.
    beneath: Mutex<RemoteState>,
    /// Note for other instances if the fetch writes no record.
    last_word: Mutex<ReleaseNote>,
    right: Arc<Mutex<Right>>,
    renewing: AbortHandle,
    runtime: Handle,
}

/// State of a lease that this instance took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Held,
    /// This instance has freed the lease, with or without a record. Later records are written without a lease.
    Freed,
    /// Another instance has taken the lease, or it has expired. A record that was fetched under it isn't written.
    Lost,
}

/// Length of a note's first word, which distinguishes variants.
pub(super) const VARIANT_DIGITS: usize = 16;
/// Second word of a note, which older versions read as the id of a forward.
pub(super) const NO_FORWARD: &str = "0000000000000000";
/// Maximum size of a record that is kept with a lease. A larger record isn't kept, so that it uses no memory during the fetch, and is
/// read again later.
const BENEATH_BYTES_MAX: usize = 16 * 1024;

impl Leases {
    pub(super) fn new(
        backing: Arc<dyn Backing>,
        late_writes: Arc<LateWriteGuard>,
        counts: Arc<Counts>,
        (limits, holder): (LeaseLimits, &str),
    ) -> Self {
        let returns = Arc::new(Semaphore::new(freeing::UNNEEDED_MAX));
        let returns_at_once = Semaphore::new(freeing::AT_ONCE_MAX);
        Self { backing, late_writes, counts, limits, returns, returns_at_once, holder: holder.into() }
    }

    /// Returns the note for other instances in a lease. The note has four words: a hash of the variant in 16 digits, a word for older
    /// versions, the `traceparent` of the forward if it is recorded, and the name of the holder.
    pub(super) fn note(&self, wanted: &WantedLease<'_>) -> String {
        let variant = XxHash3_64::oneshot(wanted.variant);
        let trace = wanted.trace.map(|trace| format!("{} ", trace.to_traceparent())).unwrap_or_default();
        format!("{variant:016x} {NO_FORWARD} {trace}{}", self.holder)
    }

    /// Renews a lease until it is lost.
    async fn renew(self: Arc<Self>, lease: Lease, right: Arc<Mutex<Right>>) {
        loop {
            sleep(self.limits.time / 3).await;
            match self.backing.renew_lease(&lease, self.limits.time).await {
                Ok(RenewOutcome::Lost) => {
                    // This instance may have just freed the lease without having recorded that yet.
                    sleep(self.limits.time / 3).await;
                    let mut right = right.lock();
                    if *right == Right::Held {
                        *right = Right::Lost;
                        self.counts.add(Event::LeaseLost);
                    }
                    return;
                }
                // After an error, the next renewal may succeed. If none does, the lease expires, so that no instance waits for a holder
                // that can't reach the tier.
                Ok(RenewOutcome::Renewed) | Err(_) => {}
            }
        }
    }
}

impl HeldLease {
    pub(super) fn new(leases: &Arc<Leases>, lease: Lease, wanted: WantedLease<'_>) -> Self {
        let right = Arc::new(Mutex::new(Right::Held));
        let renewing = Arc::clone(leases).renew(lease.clone(), Arc::clone(&right));
        let renewing = tokio::spawn(renewing).abort_handle();
        Self {
            leases: Arc::clone(leases),
            lease,
            known: wanted.known.cloned(),
            beneath: Mutex::new(RemoteState::Unread),
            last_word: Mutex::new(ReleaseNote::GaveUp),
            right,
            renewing,
            runtime: Handle::current(),
        }
    }

    /// Returns the state of the lease, which decides how a record that was fetched under it is written.
    pub(super) fn right(&self) -> Right {
        *self.right.lock()
    }

    /// Sets the record that was read under the lease.
    pub fn attach(&self, remote: RemoteState) {
        let is_large =
            matches!(&remote, RemoteState::Record(record) if record.bytes.len() > BENEATH_BYTES_MAX);
        *self.beneath.lock() = if is_large { RemoteState::Unread } else { remote };
    }

    /// Takes the record that was read under the lease, for the first write.
    pub(super) fn take_beneath(&self) -> RemoteState {
        std::mem::replace(&mut self.beneath.lock(), RemoteState::Unread)
    }

    /// Sets the state, and ends the renewals.
    pub(super) fn becomes(&self, right: Right) {
        *self.right.lock() = right;
        self.renewing.abort();
    }

    /// Sets the note with which the lease is freed. This note tells other instances that they can't use the response of this fetch.
    pub fn note(&self, note: Uncacheable) {
        *self.last_word.lock() = ReleaseNote::NotShared(note);
    }

    /// Marks the lease as unused, because the record under the key suffices and nothing is fetched.
    pub fn give_back_unused(&self) {
        *self.last_word.lock() = ReleaseNote::Unchanged;
    }

    /// Frees the lease now, because nothing will be written, although the fetch continues.
    pub fn free(&self) {
        let mut right = self.right.lock();
        if *right != Right::Held {
            return;
        }
        *right = Right::Freed;
        drop(right);
        self.renewing.abort();
        let unneeded = Unneeded {
            lease: self.lease.clone(),
            remote: self.take_beneath(),
            useful: freeing::useful_for(self.known.as_deref()),
            word: *self.last_word.lock(),
        };
        self.leases.give_back(unneeded, &self.runtime);
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.free();
    }
}
