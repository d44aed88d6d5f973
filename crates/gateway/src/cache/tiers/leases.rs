//! Leases: the right to fetch for all that share the tier, one for each key.
//!
//! Who holds one renews it while it fetches, and frees it with the record that it writes: a response, a note that others
//! get none from it, or a note that it gave up. Others wait for that record and never look at the lease, which changes with
//! each renewal. So that none of them waits for nothing, a lease that is dropped is freed, whatever became of the fetch.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use store::backing::{Backing, Lease, Renewed};
use telemetry::trace::TraceContext;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use twox_hash::XxHash3_64;

use super::answer::There;
use super::counts::{Counts, Event};
use super::doubt::Doubt;
use super::freeing::{self, Rooms, Unneeded};
use crate::cache::record::portable::LastWord;
use crate::cache::record::stored::{CacheEntry, Uncacheable};

/// How long leases last, and are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// How long one lasts that is not renewed.
    pub time: Duration,
    /// The longest wait for what somebody else fetches.
    pub wait_max: Duration,
}

/// What leases are taken and freed with.
pub(super) struct Leases {
    pub(super) backing: Arc<dyn Backing>,
    pub(super) doubt: Arc<Doubt>,
    pub(super) counts: Arc<Counts>,
    pub(super) limits: LeaseLimits,
    pub(super) rooms: Rooms,
    /// Who holds them, for operators who look at the tier.
    holder: Box<str>,
}

/// What a lease is taken for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a [u8],
    /// What of the request the response depends on, as far as that is known.
    pub(crate) variant: &'a [u8],
    /// What is known to lie under the key.
    pub(crate) known: Option<&'a Arc<CacheEntry>>,
    /// Who asks, for the traces of those who wait.
    pub(crate) trace: Option<TraceContext>,
}

/// A lease that this instance holds, or has held.
pub(crate) struct Held {
    leases: Arc<Leases>,
    lease: Lease,
    /// What lies under the key, as far as it is known here.
    known: Option<Arc<CacheEntry>>,
    /// What the tier had when it was looked at under the lease: most probably what a write finds.
    beneath: Mutex<There>,
    /// What others are told if nothing is written.
    last_word: Mutex<LastWord>,
    right: Arc<Mutex<Right>>,
    renewing: AbortHandle,
    runtime: Handle,
}

/// What became of a lease since it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Held,
    /// It was freed here, with a record or without: what comes behind that is written as anything else.
    Freed,
    /// Somebody else has taken it, or it has ended: what was fetched under it is not written.
    Lost,
}

/// The beginning of a note, which tells variants apart.
pub(super) const VARIANT_DIGITS: usize = 16;
/// Older versions have the id of a forward there.
pub(super) const NO_FORWARD: &str = "0000000000000000";
/// A larger record is read again, and takes no memory while the origin is waited for.
const BENEATH_BYTES_MAX: usize = 16 * 1024;

impl Leases {
    pub(super) fn new(
        backing: Arc<dyn Backing>,
        doubt: Arc<Doubt>,
        counts: Arc<Counts>,
        (limits, holder): (LeaseLimits, &str),
    ) -> Self {
        Self { backing, doubt, counts, limits, rooms: Rooms::default(), holder: holder.into() }
    }

    pub(super) fn limits(&self) -> LeaseLimits {
        self.limits
    }

    /// What others read beside a lease: which variant it is for, in 16 digits that tell no more, a word that older versions read, where the
    /// forward is recorded as a `traceparent`, and who holds it.
    pub(super) fn note(&self, wanted: &Wanted<'_>) -> String {
        let variant = XxHash3_64::oneshot(wanted.variant);
        let trace = wanted.trace.map(|trace| format!("{} ", trace.to_traceparent())).unwrap_or_default();
        format!("{variant:016x} {NO_FORWARD} {trace}{}", self.holder)
    }

    /// Renews a lease until it is lost.
    async fn renew(self: Arc<Self>, lease: Lease, right: Arc<Mutex<Right>>) {
        loop {
            sleep(self.limits.time / 3).await;
            match self.backing.renew_lease(&lease, self.limits.time).await {
                Ok(Renewed::Lost) => {
                    // Unless it was just freed here, and that is about to be known.
                    sleep(self.limits.time / 3).await;
                    let mut right = right.lock();
                    if *right == Right::Held {
                        *right = Right::Lost;
                        self.counts.add(Event::LeaseLost);
                    }
                    return;
                }
                // If it goes on failing, it ends: others are not to wait for one that nobody can reach.
                Ok(Renewed::Renewed) | Err(_) => {}
            }
        }
    }
}

impl Held {
    pub(super) fn new(leases: &Arc<Leases>, lease: Lease, wanted: Wanted<'_>) -> Self {
        let right = Arc::new(Mutex::new(Right::Held));
        let renewing = Arc::clone(leases).renew(lease.clone(), Arc::clone(&right));
        let renewing = tokio::spawn(renewing).abort_handle();
        Self {
            leases: Arc::clone(leases),
            lease,
            known: wanted.known.cloned(),
            beneath: Mutex::new(There::Unread),
            last_word: Mutex::new(LastWord::GaveUp),
            right,
            renewing,
            runtime: Handle::current(),
        }
    }

    /// With what right a record is written that was fetched under it.
    pub(super) fn right(&self) -> Right {
        *self.right.lock()
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// This is what was read under the lease.
    pub(crate) fn is_upon(&self, there: There) {
        let is_large = matches!(&there, There::Record(record) if record.bytes.len() > BENEATH_BYTES_MAX);
        *self.beneath.lock() = if is_large { There::Unread } else { there };
    }

    /// For the first who writes.
    pub(super) fn take_beneath(&self) -> There {
        std::mem::replace(&mut self.beneath.lock(), There::Unread)
    }

    /// From now on it is this.
    pub(super) fn becomes(&self, right: Right) {
        *self.right.lock() = right;
        self.renewing.abort();
    }

    /// Others get nothing of what is fetched: they are told when it is freed.
    pub(crate) fn note(&self, note: Uncacheable) {
        *self.last_word.lock() = LastWord::NotShared(note);
    }

    /// What lies under the key is good enough: nothing is fetched.
    pub(crate) fn is_not_needed(&self) {
        *self.last_word.lock() = LastWord::Unchanged;
    }

    /// Frees it now, although the fetch goes on: nothing is written after all.
    pub(crate) fn free(&self) {
        let mut right = self.right.lock();
        if *right != Right::Held {
            return;
        }
        *right = Right::Freed;
        drop(right);
        self.renewing.abort();
        let unneeded = Unneeded {
            lease: self.lease.clone(),
            there: self.take_beneath(),
            useful: freeing::useful_for(self.known.as_deref()),
            word: *self.last_word.lock(),
        };
        self.leases.give_back(unneeded, &self.runtime);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.free();
    }
}
