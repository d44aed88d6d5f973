//! Write-behind: first writes the segments, then the record that refers to them.

#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::entry::stored::CacheEntry;
use cache::portable::{self, Encoded, Merge, SegmentBytes, Writing};
use message::clock::now;
use parking_lot::Mutex;
use store::backing::{BackingError, Expected, Loaded, PutOutcome, Tracking, Version, Write};
use store::format::{Layout, Meaning};
use store::{Record as _, Refusal};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use crate::answer::RemoteState;
use crate::counts::Event;
use crate::late_write_guard::LATE_MAX;
use crate::leases::{HeldLease, Right};
use crate::queue::{Pause, QueueTurn};
use crate::segments::Unavailable;
use crate::write_behind::{Claim, Covers, Numbered, Pending, Theirs};
use crate::{Tier, names};

/// Result of one operation.
enum End {
    /// Nothing is left to do.
    Done,
    /// The tier now has this version of the record.
    Stored(Version),
    /// The tier has a newer record, or one with more responses.
    Overtaken,
    /// The change failed, or its outcome is unknown: it is retried.
    Failed,
    /// The record can't be written: the tier's record is removed instead.
    Unfit,
    /// The tier has no memory for the record or its bodies: the tier's record is removed, and this instance keeps its own.
    Refused,
    /// A purge must reach the log first.
    Early,
    /// The tier was not contacted. Don't contact it again before this time has passed.
    NotAsked(Duration),
}

/// Number of attempts to write a record before the tier's record is removed instead.
const ATTEMPTS_TO_PUT: u32 = 5;
/// Number of attempts within one operation if other instances change the record concurrently.
const ATTEMPTS_AT_ONCE: usize = 3;
/// Lifetime of a record that doesn't expire by itself.
const TTL_OF_ANY: Duration = Duration::from_secs(24 * 3600);
/// Time by which segments outlive the record that refers to them.
const MARGIN: Duration = Duration::from_secs(10);

impl Tier {
    /// Runs one writer, and never returns. Several writers run concurrently, so that a slow write delays few others.
    pub async fn write_behind(&self) {
        loop {
            self.backoff.ended().await;
            match self.write_behind.queue.next(Instant::now()) {
                QueueTurn::Key(key) => self.settle(key).await,
                QueueTurn::At(time) => tokio::select! {
                    biased;
                    () = self.wanted.notified() => {}
                    () = sleep_until(time) => {}
                },
                QueueTurn::Nobody => self.wanted.notified().await,
            }
        }
    }

    /// Makes one attempt at the pending change to a key. After a failure, the key goes back to the queue and doesn't block a writer.
    async fn settle(&self, key: Box<[u8]>) {
        let Some(Numbered { pending, number }) = self.write_behind.pending(&key) else { return };
        match self.carry_out(&key, &pending).await {
            End::Done => {
                self.done(key, (&pending, number));
            }
            End::Stored(version) => {
                let written = match &pending {
                    Pending::Put { entry, .. } => Some((key.clone(), Arc::clone(entry))),
                    Pending::Removed => None,
                };
                self.done(key, (&pending, number));
                if let Some((key, entry)) = written {
                    self.follow_written(&key, &entry, version).await;
                }
            }
            End::Overtaken => {
                if let Pending::Put { entry, .. } = &pending {
                    self.record_overtaken(entry);
                }
                self.done(key, (&pending, number));
            }
            End::Unfit => {
                self.give_up(&key, number);
                self.write_behind.queue.push(key);
            }
            End::Refused => {
                // An empty record in its place would make each instance drop its copy and contact the origin for every use.
                self.counts.add(Event::GivenUp);
                self.write_behind.give_up(&key, number);
                if let Pending::Put { entry, .. } = &pending {
                    entry.copy.refuse();
                }
                self.write_behind.queue.push(key);
            }
            End::Failed => {
                self.counts.add(Event::WriteFailed);
                let failures = self.write_behind.failed(&key, number);
                if failures >= ATTEMPTS_TO_PUT && matches!(pending, Pending::Put { .. }) {
                    self.give_up(&key, number);
                }
                self.write_behind.queue.pause(key, Pause::Failed, Instant::now());
            }
            End::Early => {
                self.write_behind.queue.pause(key, Pause::Early, Instant::now());
                // No other step of this loop yields. With many early keys, the first key is due again before the last one was tried, so
                // that the task that reads the log would never run.
                yield_now().await;
            }
            End::NotAsked(retry) => {
                self.write_behind.queue.push(key);
                self.backoff.begin(retry, Instant::now());
                self.settled.notify_waiters();
            }
        }
    }

    fn done(&self, key: Box<[u8]>, (pending, number): (&Pending, u64)) {
        self.backoff.end();
        self.late_writes.answered(Instant::now());
        self.counts.add(match pending {
            Pending::Put { .. } => Event::Written,
            Pending::Removed => Event::Removed,
        });
        match self.write_behind.done(&key, number) {
            true => self.settled.notify_waiters(),
            false => self.write_behind.queue.push(key),
        }
    }

    /// Gives up a write. Other instances may have copies of the record that the write should have replaced. No change was reported to
    /// them, so if they found no record in the tier, they would keep their copies. Therefore an empty record is written, as after a put
    /// with an unknown outcome.
    fn give_up(&self, key: &[u8], number: u64) {
        self.counts.add(Event::GivenUp);
        self.late_writes.begin();
        self.write_behind.give_up(key, number);
    }

    async fn carry_out(&self, key: &[u8], pending: &Pending) -> End {
        let Some(name) = names::of_record(key) else { return End::Done };
        let end = match pending {
            Pending::Removed => self.remove(key, &name).await,
            Pending::Put { entry, theirs, claim } => {
                self.put((key, &name), entry, theirs, claim.as_ref()).await
            }
        };
        end.unwrap_or_else(|unavailable| match unavailable {
            Unavailable::Tier(BackingError::Open { retry }) => End::NotAsked(retry),
            Unavailable::Tier(_) | Unavailable::NoRoom(_) => End::Failed,
            // Without its body, the record would replace complete copies at other instances.
            Unavailable::Refused => End::Refused,
        })
    }

    async fn remove(&self, key: &[u8], name: &[u8]) -> Result<End, Unavailable> {
        // While an earlier put may still take effect, an empty record takes the place of the removed one.
        if self.late_writes.holds(Instant::now())
            && let Some(bytes) = portable::nothing(key)
        {
            let write = Write { bytes: bytes.into(), expected: Expected::Any, ttl: LATE_MAX, lease: None };
            if let PutOutcome::Stored(_) = self.backing.put(name, write).await? {
                return Ok(End::Done);
            }
        }
        self.backing.remove(name).await?;
        Ok(End::Done)
    }

    /// Writes a record, merged with the responses that other instances have stored under the key.
    async fn put(
        &self,
        (key, name): (&[u8], &[u8]),
        entry: &CacheEntry,
        theirs: &Theirs,
        claim: Option<&Claim>,
    ) -> Result<End, Unavailable> {
        let Some(ttl) = ttl(entry) else { return Ok(End::Unfit) };
        let mut asked_at = entry.variants().iter().filter_map(|variant| variant.head.inputs()?.asked_at);
        if !asked_at.all(|place| self.invalidations.is_settled(place)) {
            return Ok(End::Early);
        }
        let ttl = self.late_writes.outlasted(ttl, Instant::now());
        let given = self.put_segments(entry, ttl + MARGIN).await?;
        let mut there = self.beneath(name, claim).await?;
        for _ in 0..ATTEMPTS_AT_ONCE {
            if there.as_ref().is_some_and(|there| is_of_newer(there, key)) {
                return Ok(End::Done);
            }
            let clock_ahead_ms = self.tier_clock_ahead_ms();
            let writing = Writing {
                key,
                given: &given,
                invalidations: Some(&self.invalidations),
                now: now(),
                clock_ahead_ms,
            };
            let Some(encoded) = portable::encode(&writing, entry, theirs.beside(there.as_ref())) else {
                return Ok(End::Unfit);
            };
            if !self.put_beside(&encoded, ttl + MARGIN).await? {
                return Ok(End::Unfit);
            }
            match self.put_record(name, encoded.primary, (there.as_ref(), claim), ttl).await? {
                PutOutcome::Stored(_) if !encoded.has_ours_alone => return Ok(End::Overtaken),
                PutOutcome::Stored(version) => return Ok(End::Stored(version)),
                PutOutcome::Conflict(other) => there = other,
                PutOutcome::NotStored(_) => return Ok(End::Refused),
                // Another instance may have fetched a newer record. If this write also includes another change, it is unknown which of the
                // tier's responses are still valid.
                PutOutcome::LeaseLost if claim.is_some_and(|claim| claim.covers == Covers::All) => {
                    return Ok(End::Overtaken);
                }
                PutOutcome::LeaseLost => return Ok(End::Unfit),
            }
        }
        Ok(End::Failed)
    }

    /// Returns the record in the tier that the write replaces.
    async fn beneath(&self, name: &[u8], claim: Option<&Claim>) -> Result<Option<Loaded>, BackingError> {
        match claim.map_or(RemoteState::Unread, |claim| claim.held.take_beneath()) {
            RemoteState::Unread => self.record(name, Tracking::Off).await,
            RemoteState::Nothing => Ok(None),
            RemoteState::Record(record) => Ok(Some(record)),
        }
    }

    /// Writes the parts that are stored outside the record, before the record that refers to them. Returns false if a segment was not
    /// stored.
    async fn put_beside(&self, encoded: &Encoded, ttl: Duration) -> Result<bool, Unavailable> {
        for SegmentBytes { id, cell_bytes, data } in &encoded.segments {
            if !self.segments.store_small(id.fill, *cell_bytes, data, ttl).await? {
                return Ok(false);
            }
        }
        for (id, bytes) in &encoded.apart {
            let bytes = Bytes::copy_from_slice(bytes);
            let write = Write { bytes, expected: Expected::Any, ttl, lease: None };
            if let PutOutcome::NotStored(_) = self.backing.put(&names::of_response(*id), write).await? {
                return Err(Unavailable::Refused);
            }
        }
        Ok(true)
    }

    /// Writes the segments of all bodies of a record. Returns the layout of the segments that the tier then has, for each body.
    async fn put_segments(&self, entry: &CacheEntry, ttl: Duration) -> Result<Vec<Layout>, Unavailable> {
        let mut given = Vec::new();
        for body in entry.variants().iter().filter_map(|variant| variant.body.segmented()) {
            given.extend(self.segments.store(body, ttl).await?);
        }
        Ok(given)
    }

    async fn put_record(
        &self,
        name: &[u8],
        primary: Vec<u8>,
        (there, claim): (Option<&Loaded>, Option<&Claim>),
        ttl: Duration,
    ) -> Result<PutOutcome, BackingError> {
        let expected = there.map_or(Expected::Absent, Expected::Is);
        let write = Write { bytes: primary.into(), expected, ttl, lease: None };
        let put = match claim.map(|claim| (&claim.held, claim.held.right())) {
            None | Some((_, Right::Freed)) => self.backing.put(name, write).await,
            Some((held, Right::Held)) => self.release(held, write).await,
            Some((_, Right::Lost)) => return Ok(PutOutcome::LeaseLost),
        };
        if !matches!(put, Ok(_) | Err(BackingError::Open { .. })) {
            self.late_writes.begin();
        }
        put
    }

    /// Writes a record, and frees the lease under which it was fetched. The lease is freed even if the tier has no memory for the record.
    async fn release(&self, held: &HeldLease, write: Write<'_>) -> Result<PutOutcome, BackingError> {
        let put = self.backing.release_lease(&held.lease, write).await;
        match put {
            Ok(PutOutcome::Stored(_) | PutOutcome::NotStored(Refusal::OverBudget)) => {
                held.becomes(Right::Freed)
            }
            Ok(PutOutcome::LeaseLost) => {
                self.counts.add(Event::LeaseLost);
                held.becomes(Right::Lost);
            }
            Ok(PutOutcome::Conflict(_) | PutOutcome::NotStored(Refusal::TooLarge)) | Err(_) => {}
        }
        put
    }
}

impl Theirs {
    fn beside<'a>(&'a self, there: Option<&'a Loaded>) -> Merge<'a> {
        match self {
            Self::Kept { dropped } => Merge { theirs: there.map(|there| &there.bytes[..]), dropped },
            Self::Gone => Merge::default(),
        }
    }
}

/// Returns whether a newer version of Larder wrote the record in a format that only newer versions can read. A record in a newer format
/// isn't overwritten.
fn is_of_newer(there: &Loaded, key: &[u8]) -> bool {
    portable::decode(&there.bytes, key).is_err_and(|error| error.meaning() == Meaning::Leave)
}

/// Returns the remaining useful life of a record; `None` if it has ended.
fn ttl(entry: &CacheEntry) -> Option<Duration> {
    let Some(expires_at_ms) = entry.expires_at_ms() else { return Some(TTL_OF_ANY) };
    let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
    let left_ms = expires_at_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0)?;
    Some(Duration::from_millis(left_ms))
}

/// Back-off of the writers while the tier's circuit breaker is open.
#[derive(Default)]
pub(crate) struct Backoff {
    until: Mutex<Option<Instant>>,
    over: Notify,
}

/// Minimum back-off, short enough to notice soon that one of several probes was enough to close the breaker.
const REST_MIN: Duration = Duration::from_millis(20);

impl Backoff {
    /// Begins or extends the back-off to `retry` from now.
    pub(super) fn begin(&self, retry: Duration, now: Instant) {
        let end = now + retry.max(REST_MIN);
        let mut until = self.until.lock();
        *until = (*until).max(Some(end));
    }

    /// Ends the back-off, because the tier has answered.
    pub(super) fn end(&self) {
        if self.until.lock().take().is_some() {
            self.over.notify_waiters();
        }
    }

    /// Waits until the back-off is over.
    pub(super) async fn ended(&self) {
        let over = self.over.notified();
        tokio::pin!(over);
        over.as_mut().enable();
        let Some(until) = *self.until.lock() else { return };
        tokio::select! {
            () = over => {}
            () = sleep_until(until) => {}
        }
    }

    /// Returns whether the back-off lasts until `end` or longer.
    pub(super) fn lasts_until(&self, end: Instant) -> bool {
        self.until.lock().is_some_and(|until| until >= end)
    }
}
