//! Gives leases back, with the last word on what was fetched under them.
//!
//! Others wait for that word, so one answer that is late is not the end of it: it is tried until the lease has ended by itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::backing::{Expected, Lease, Loaded, Put, Write};
use store::{Record as _, Refusal};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::answer::There;
use super::counts::Event;
use super::leases::Leases;
use super::names;
use crate::cache::record::portable::{self, LastWord};
use crate::cache::record::stored::CacheEntry;
use crate::clock::now;

/// A lease that nobody here needs any more.
pub(super) struct Unneeded {
    pub(super) lease: Lease,
    /// What the tier had when it was looked at under the lease.
    pub(super) there: There,
    /// How long it is of use, as far as that is known here.
    pub(super) useful: Duration,
    pub(super) word: LastWord,
}

/// How many are given back, and how many of them at a time.
pub(super) struct Rooms {
    all: Arc<Semaphore>,
    at_once: Semaphore,
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    /// It is free.
    Yes,
    /// Nothing could be written over what lies there: it ends with its time.
    No,
    /// It had ended, or somebody else has taken it.
    Lost,
    /// The same, or an attempt without an answer has freed it.
    Unknown,
}

/// What waits beyond that ends with its time.
const UNNEEDED_MAX: usize = 1000;
/// Twice as many as there are connections for it: those who renew theirs meanwhile don't wait long.
const AT_ONCE_MAX: usize = 8;
/// A connection is there again soon, or not for long.
const PAUSE: Duration = Duration::from_millis(20);
/// Who waits for it notices that.
const LATE: Duration = Duration::from_millis(100);
/// How long a note stays that stands alone: those who wait see it at once, and those who come within this time need not ask.
const NOTE_TIME: Duration = Duration::from_secs(5);
/// How long a record stays of which nobody here knows how long it is of use.
const UNKNOWN_TIME: Duration = Duration::from_secs(60);

impl Default for Rooms {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(UNNEEDED_MAX)), at_once: Semaphore::new(AT_ONCE_MAX) }
    }
}

impl Leases {
    pub(super) fn give_back(self: &Arc<Self>, unneeded: Unneeded, runtime: &Handle) {
        let Ok(room) = Arc::clone(&self.rooms.all).try_acquire_owned() else {
            return self.counts.add(Event::LeaseNotReleased);
        };
        let leases = Arc::clone(self);
        drop(runtime.spawn(async move {
            leases.free(unneeded).await;
            drop(room);
        }));
    }

    /// After that time it has ended: the last renewal was before.
    async fn free(&self, unneeded: Unneeded) {
        let began = Instant::now();
        let freed = timeout(self.limits.time, self.freed(unneeded)).await;
        match freed {
            Ok(Freed::Yes) if began.elapsed() < LATE => {}
            Ok(Freed::Yes) => self.counts.add(Event::LeaseReleasedLate),
            Ok(Freed::Lost) => self.counts.add(Event::LeaseLost),
            Ok(Freed::No | Freed::Unknown) | Err(_) => self.counts.add(Event::LeaseNotReleased),
        }
    }

    async fn freed(&self, mut unneeded: Unneeded) -> Freed {
        let mut lost = Freed::Lost;
        loop {
            let Ok(_turn) = self.rooms.at_once.acquire().await else { return Freed::No };
            let Some(write) = self.written(&unneeded) else { return Freed::No };
            match self.backing.give_lease_back(&unneeded.lease, write).await {
                Ok(Put::Stored(_)) => return Freed::Yes,
                Ok(Put::NotStored(Refusal::OverBudget)) => return Freed::Yes,
                Ok(Put::NotStored(_)) => return Freed::No,
                Ok(Put::LeaseLost) => return lost,
                Ok(Put::Conflict(other)) => unneeded.there = other.map_or(There::Nothing, There::Record),
                Err(_) => {
                    lost = Freed::Unknown;
                    // What waits for long takes no memory for it.
                    unneeded.there = There::Unread;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// What is written over what lies there; over nothing, as far as that was not read: the answer tells what does.
    fn written<'a>(&self, unneeded: &'a Unneeded) -> Option<Write<'a>> {
        let key = names::key_of(&unneeded.lease.key)?;
        let there = match &unneeded.there {
            There::Unread | There::Nothing => None,
            There::Record(record) => Some(record),
        };
        let bytes = match (unneeded.word, there) {
            (LastWord::Unchanged, Some(there)) => there.bytes.clone(),
            (word, there) => {
                let at = (now(), self.backing.clock_ahead_ms().unwrap_or(0));
                Bytes::from(portable::with_word(key, there.map(|there: &Loaded| &there.bytes[..]), word, at)?)
            }
        };
        let ttl = if there.is_some() { unneeded.useful } else { NOTE_TIME };
        let ttl = self.doubt.outlasted(ttl, Instant::now());
        let expected = there.map_or(Expected::Absent, Expected::Is);
        Some(Write { bytes, expected, ttl, lease: None })
    }
}

/// How long a record is of use that stays as it is.
pub(super) fn useful_for(known: Option<&CacheEntry>) -> Duration {
    let Some(end_ms) = known.and_then(CacheEntry::expires_at_ms) else { return UNKNOWN_TIME };
    let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
    Duration::from_millis(end_ms.saturating_sub(now_ms)).max(NOTE_TIME)
}
