//! Leases: the right to fetch for all that share the tier, one for each key.
//!
//! Who holds one renews it while it fetches, and frees it with the record that it writes: a response, a note that others
//! get none from it, or a note that it gave up. Others wait for that record and never look at the lease, which changes with
//! each renewal. So that none of them waits for nothing, a lease that is dropped is freed, whatever became of the fetch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store::backing::{Backing, BackingError, Expected, Lease, Loaded, Put, Renewed, Tracking, Write};
use store::{Record as _, Refusal};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use twox_hash::XxHash3_64;

use super::answer::There;
use super::counts::{Counts, Event};
use super::doubt::Doubt;
use super::names;
use crate::cache::inflight::known::{ForwardId, KnownForward, ToldCause, ToldFailure};
use crate::cache::record::portable::{self, LastWord};
use crate::cache::record::stored::{CacheEntry, Uncacheable};
use crate::clock::now;

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
    backing: Arc<dyn Backing>,
    doubt: Arc<Doubt>,
    counts: Arc<Counts>,
    limits: LeaseLimits,
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
    /// What is asked of the origin with it.
    pub(crate) forward: KnownForward,
}

/// A lease that this instance holds, or has held.
pub(crate) struct Held {
    leases: Arc<Leases>,
    lease: Lease,
    forward: KnownForward,
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
/// A larger record is read again, and takes no memory while the origin is waited for.
const BENEATH_BYTES_MAX: usize = 16 * 1024;
/// Of a lease that nobody needs any more.
const ATTEMPTS_TO_FREE: usize = 5;
const PAUSE_TO_FREE: Duration = Duration::from_millis(100);
/// How often a record that others change meanwhile is written anew.
const ATTEMPTS: usize = 3;
/// How long a note stays that stands alone: those who wait see it at once, and those who come within this time need not ask.
const NOTE_TIME: Duration = Duration::from_secs(5);
/// How long a record stays of which nobody here knows how long it is of use.
const UNKNOWN_TIME: Duration = Duration::from_secs(60);

impl Leases {
    pub(super) fn new(
        backing: Arc<dyn Backing>,
        doubt: Arc<Doubt>,
        counts: Arc<Counts>,
        (limits, holder): (LeaseLimits, &str),
    ) -> Self {
        Self { backing, doubt, counts, limits, holder: holder.into() }
    }

    pub(super) fn limits(&self) -> LeaseLimits {
        self.limits
    }

    /// What others read beside a lease: which variant it is for, in 16 digits that tell no more, which forward, and who holds it.
    pub(super) fn note(&self, variant: &[u8], forward: ForwardId) -> String {
        format!("{:016x} {} {}", XxHash3_64::oneshot(variant), forward.digits(), self.holder)
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

    /// Frees a lease, with the last word on it under its key. What can't be said ends with the lease, and until then others wait: so one answer that
    /// is late is not the end of it.
    async fn free(&self, lease: &Lease, known: Option<&CacheEntry>, word: LastWord) {
        for attempt in 0..ATTEMPTS_TO_FREE {
            match self.free_once(lease, known, word).await {
                // Without an answer to the first attempt, that may have freed it.
                Ok(Put::LeaseLost) if attempt == 0 => return self.counts.add(Event::LeaseLost),
                Ok(Put::Conflict(_)) | Err(_) => sleep(PAUSE_TO_FREE).await,
                Ok(Put::LeaseLost | Put::Stored(_) | Put::NotStored(_)) => return,
            }
        }
    }

    async fn free_once(
        &self,
        lease: &Lease,
        known: Option<&CacheEntry>,
        word: LastWord,
    ) -> Result<Put, BackingError> {
        let mut there = self.there(&lease.key).await?;
        for _ in 0..ATTEMPTS {
            let Some(write) = self.written(lease, there.as_ref(), known, word) else {
                return Ok(Put::NotStored(Refusal::TooLarge));
            };
            match self.backing.release_lease(lease, write).await? {
                Put::Conflict(other) => there = other,
                put => return Ok(put),
            }
        }
        Ok(Put::Conflict(there))
    }

    async fn there(&self, name: &[u8]) -> Result<Option<Loaded>, BackingError> {
        let loaded = self.backing.load(&[name], Tracking::Off).await?;
        Ok(loaded.into_iter().next().flatten())
    }

    fn written<'a>(
        &self,
        lease: &Lease,
        there: Option<&'a Loaded>,
        known: Option<&CacheEntry>,
        word: LastWord,
    ) -> Option<Write<'a>> {
        let key = names::key_of(&lease.key)?;
        let bytes = match (word, there) {
            (LastWord::Unchanged, Some(there)) => there.bytes.clone(),
            _ => {
                let at = (now(), self.backing.clock_ahead_ms().unwrap_or(0));
                Bytes::from(portable::with_word(key, there.map(|there| &there.bytes[..]), word, at)?)
            }
        };
        let ttl = match there {
            None => NOTE_TIME,
            Some(_) => known.map_or(UNKNOWN_TIME, useful_for),
        };
        let ttl = self.doubt.outlasted(ttl, Instant::now());
        let expected = there.map_or(Expected::Absent, Expected::Is);
        Some(Write { bytes, expected, ttl, lease: None })
    }
}

/// How long a record is of use that stays as it is.
fn useful_for(known: &CacheEntry) -> Duration {
    let Some(end_ms) = known.expires_at_ms() else { return UNKNOWN_TIME };
    let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
    Duration::from_millis(end_ms.saturating_sub(now_ms)).max(NOTE_TIME)
}

impl Held {
    pub(super) fn new(leases: &Arc<Leases>, lease: Lease, wanted: Wanted<'_>) -> Self {
        let right = Arc::new(Mutex::new(Right::Held));
        let renewing = Arc::clone(leases).renew(lease.clone(), Arc::clone(&right));
        let renewing = tokio::spawn(renewing).abort_handle();
        Self {
            leases: Arc::clone(leases),
            lease,
            forward: wanted.forward,
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

    /// Somebody else may fetch the same now.
    pub(crate) fn is_lost(&self) -> bool {
        self.right() == Right::Lost
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

    /// How others know the forward.
    pub(crate) fn forward(&self) -> KnownForward {
        self.forward
    }

    /// The origin has failed: those who wait are told when it is freed.
    pub(crate) fn fails(&self, cause: ToldCause) {
        *self.last_word.lock() = LastWord::Failed(ToldFailure { forward: self.forward, cause }, now());
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
        let (leases, lease) = (Arc::clone(&self.leases), self.lease.clone());
        let (known, word) = (self.known.clone(), *self.last_word.lock());
        drop(self.runtime.spawn(async move { leases.free(&lease, known.as_deref(), word).await }));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.free();
    }
}
