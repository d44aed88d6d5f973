//! Returns leases, with a final note about the fetch.
//!
//! Other instances wait for this note, so if the tier doesn't answer, the return is retried until the lease has expired.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::entry::stored::CacheEntry;
use cache::portable::{self, ReleaseNote};
use message::clock::now;
use store::backing::{Expected, Lease, Loaded, PutOutcome, Write};
use store::{Record as _, Refusal};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::answer::RemoteState;
use crate::counts::Event;
use crate::leases::Leases;
use crate::names;

/// A lease to return.
pub(super) struct Unneeded {
    pub(super) lease: Lease,
    /// Record that was read under the lease.
    pub(super) remote: RemoteState,
    /// Time for which `remote` is useful, as far as this instance knows.
    pub(super) useful: Duration,
    pub(super) word: ReleaseNote,
}

/// Result of returning a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    /// The lease is free.
    Yes,
    /// The record could not be overwritten, so the lease lasts until it expires. This is also the result if the lease was lost after an
    /// attempt without an answer, which may have freed it.
    No,
    /// The lease had expired, or another instance has taken it.
    Lost,
}

/// Maximum number of leases that are being returned; others stay until they expire.
pub(super) const UNNEEDED_MAX: usize = 1000;
/// Maximum number of concurrent returns: twice the number of connections for them, so that renewals of other leases don't wait long.
pub(super) const AT_ONCE_MAX: usize = 8;
/// Pause between attempts. A lost connection is usually restored either soon or after a long time.
const PAUSE: Duration = Duration::from_millis(20);
/// Minimum delay of a return that counts as late, because waiting instances notice it.
const LATE: Duration = Duration::from_millis(100);
/// Lifetime of a note without a record. Waiting instances get the note immediately, and requests within this time don't have to query the
/// tier.
const NOTE_TIME: Duration = Duration::from_secs(5);
/// Lifetime of a record if this instance doesn't know how long it is useful.
const UNKNOWN_TIME: Duration = Duration::from_secs(60);

impl Leases {
    pub(super) fn give_back(self: &Arc<Self>, unneeded: Unneeded, runtime: &Handle) {
        let Ok(room) = Arc::clone(&self.returns).try_acquire_owned() else {
            return self.counts.add(Event::LeaseNotReleased);
        };
        let leases = Arc::clone(self);
        drop(runtime.spawn(async move {
            leases.free(unneeded).await;
            drop(room);
        }));
    }

    /// Returns a lease, and counts the result. Stops after the lifetime of a lease, because a lease being returned isn't renewed, and so
    /// has expired by then.
    async fn free(&self, unneeded: Unneeded) {
        let began = Instant::now();
        let freed = timeout(self.limits.time, self.freed(unneeded)).await;
        match freed {
            Ok(Freed::Yes) if began.elapsed() < LATE => {}
            Ok(Freed::Yes) => self.counts.add(Event::LeaseReleasedLate),
            Ok(Freed::Lost) => self.counts.add(Event::LeaseLost),
            Ok(Freed::No) | Err(_) => self.counts.add(Event::LeaseNotReleased),
        }
    }

    async fn freed(&self, mut unneeded: Unneeded) -> Freed {
        let mut lost = Freed::Lost;
        loop {
            let Ok(_turn) = self.returns_at_once.acquire().await else { return Freed::No };
            let Some(write) = self.written(&unneeded) else { return Freed::No };
            match self.backing.give_lease_back(&unneeded.lease, write).await {
                Ok(PutOutcome::Stored(_)) => return Freed::Yes,
                Ok(PutOutcome::NotStored(Refusal::OverBudget)) => return Freed::Yes,
                Ok(PutOutcome::NotStored(_)) => return Freed::No,
                Ok(PutOutcome::LeaseLost) => return lost,
                Ok(PutOutcome::Conflict(other)) => {
                    unneeded.remote = other.map_or(RemoteState::Nothing, RemoteState::Record)
                }
                Err(_) => {
                    lost = Freed::No;
                    // The record is dropped, so that it uses no memory while the return waits for a retry.
                    unneeded.remote = RemoteState::Unread;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Returns the write that frees the lease. If the record was not read, the write expects that there is none. If there is one, the
    /// answer includes it.
    fn written<'a>(&self, unneeded: &'a Unneeded) -> Option<Write<'a>> {
        let key = names::key_of(&unneeded.lease.key)?;
        let remote = match &unneeded.remote {
            RemoteState::Unread | RemoteState::Nothing => None,
            RemoteState::Record(record) => Some(record),
        };
        let bytes = match (unneeded.word, remote) {
            (ReleaseNote::Unchanged, Some(remote)) => remote.bytes.clone(),
            (word, remote) => {
                let at = (now(), self.backing.clock_ahead_ms().unwrap_or(0));
                let there = remote.map(|remote: &Loaded| &remote.bytes[..]);
                Bytes::from(portable::with_word(key, there, word, at)?)
            }
        };
        let ttl = if remote.is_some() { unneeded.useful } else { NOTE_TIME };
        let ttl = self.late_writes.outlasted(ttl, Instant::now());
        let expected = remote.map_or(Expected::Absent, Expected::Is);
        Some(Write { bytes, expected, ttl, lease: None })
    }
}

/// Returns the time for which a record that is written back unchanged is useful.
pub(super) fn useful_for(known: Option<&CacheEntry>) -> Duration {
    let Some(end_ms) = known.and_then(CacheEntry::expires_at_ms) else { return UNKNOWN_TIME };
    let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
    Duration::from_millis(end_ms.saturating_sub(now_ms)).max(NOTE_TIME)
}
