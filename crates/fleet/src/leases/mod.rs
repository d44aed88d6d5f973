//! Leases: the right to fetch on behalf of all instances that share the tier, one for each key.
//!
//! The holder renews its lease while it fetches, and frees it with the record that it writes: a response, a note that others get no
//! response from it, or a note that it gave up. Other instances wait for that record and never look at the lease, which changes with
//! each renewal. So that none waits in vain, a dropped lease is freed whatever became of the fetch.

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

/// Lifetime of leases, and the longest wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Lifetime of a lease that is not renewed.
    pub time: Duration,
    /// Longest wait for another instance's fetch.
    pub wait_max: Duration,
}

/// Means to take and free leases.
pub(super) struct Leases {
    pub(super) backing: Arc<dyn Backing>,
    pub(super) late_writes: Arc<LateWriteGuard>,
    pub(super) counts: Arc<Counts>,
    pub(super) limits: LeaseLimits,
    /// Room for leases that are being returned: in all, and at a time.
    returns: Arc<Semaphore>,
    returns_at_once: Semaphore,
    /// Name of this instance in notes, for operators who look at the tier.
    holder: Box<str>,
}

/// Purpose of a lease.
#[derive(Clone, Copy)]
pub struct WantedLease<'a> {
    pub key: &'a [u8],
    /// Variant key: the part of the request that the response depends on, as far as that is known.
    pub variant: &'a [u8],
    /// Record known under the key.
    pub known: Option<&'a Arc<CacheEntry>>,
    /// Trace of the request, which the traces of waiting instances link to.
    pub trace: Option<TraceContext>,
}

/// A lease that this instance holds, or has held.
pub struct HeldLease {
    leases: Arc<Leases>,
    pub(super) lease: Lease,
    /// Record known under the key.
    known: Option<Arc<CacheEntry>>,
    /// Record that was read under the lease: most probably the one that a write finds.
    beneath: Mutex<RemoteState>,
    /// Note for other instances if nothing is written.
    last_word: Mutex<ReleaseNote>,
    right: Arc<Mutex<Right>>,
    renewing: AbortHandle,
    runtime: Handle,
}

/// State of a lease that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Held,
    /// This instance freed it, with a record or without: later records are written as any other.
    Freed,
    /// Another instance has taken it, or it has ended: a record that was fetched under it is not written.
    Lost,
}

/// Length of a note's first word, which tells variants apart.
pub(super) const VARIANT_DIGITS: usize = 16;
/// Second word of a note. Older versions have the id of a forward there.
pub(super) const NO_FORWARD: &str = "0000000000000000";
/// Largest record that a lease keeps. A larger one is read again, so that it takes no memory during the fetch.
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

    /// Note beside a lease for other instances: a hash of the variant in 16 digits, which reveals nothing else, a word that older
    /// versions read, the `traceparent` of the forward if it is recorded, and the name of the holder.
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
                    // This instance may just have freed it, and note that in a moment.
                    sleep(self.limits.time / 3).await;
                    let mut right = right.lock();
                    if *right == Right::Held {
                        *right = Right::Lost;
                        self.counts.add(Event::LeaseLost);
                    }
                    return;
                }
                // A lease that can't be renewed ends, so that nobody waits for a holder that can't reach the tier.
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

    /// State of the lease, which decides how a record that was fetched under it is written.
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

    /// Sets the note that the lease is freed with: other instances get no response from this fetch.
    pub fn note(&self, note: Uncacheable) {
        *self.last_word.lock() = ReleaseNote::NotShared(note);
    }

    /// Marks the lease as not needed: the record under the key is good enough, and nothing is fetched.
    pub fn give_back_unused(&self) {
        *self.last_word.lock() = ReleaseNote::Unchanged;
    }

    /// Frees the lease now, although the fetch goes on, because nothing will be written.
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
