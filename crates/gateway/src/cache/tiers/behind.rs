//! Writes what is stored to the tier, behind the exchange: segments first, then the record that names them.

#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::backing::{BackingError, Expected, Loaded, Put, Tracking, Version, Write};
use store::format::{Layout, Meaning};
use store::{Record as _, Refusal};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::answer::There;
use super::counts::Event;
use super::doubt::LATE_MAX;
use super::leases::{Held, Right};
use super::queue::{Pause, Turn};
use super::segments::Unavailable;
use super::working::{Claim, Covers, Numbered, Pending, Theirs};
use super::{Tiers, names};
use crate::cache::record::portable::{self, Encoded, Merge, Ours, SegmentBytes, Writing};
use crate::cache::record::stored::CacheEntry;
use crate::clock::now;

/// How one operation ended.
enum End {
    /// The tier knows.
    Done,
    /// It has this record now.
    Stored(Version),
    /// It has something newer now, or more.
    Overtaken,
    /// It does not, or nobody knows: once more.
    Failed,
    /// It can't be told: what it has is removed instead.
    Unfit,
    /// Others are to know of a purge first.
    Early,
    /// It was not asked, and is not to be asked before that has passed.
    NotAsked(Duration),
}

/// Of one response that should be written; what the tier has for it goes afterwards.
const ATTEMPTS_TO_PUT: u32 = 5;
/// Of one record that others change at the same time.
const ATTEMPTS_AT_ONCE: usize = 3;
/// How long a record stays that says of no response how long that is of use.
const TTL_OF_ANY: Duration = Duration::from_secs(24 * 3600);
/// Segments outlive the record that names them.
const MARGIN: Duration = Duration::from_secs(10);

impl Tiers {
    /// Takes part in the writing, for ever. Several do, so that one slow write delays few others.
    pub(crate) async fn write_behind(&self) {
        loop {
            self.rest.ended().await;
            match self.working.next(Instant::now()) {
                Turn::Key(key) => self.settle(key).await,
                Turn::At(time) => tokio::select! {
                    biased;
                    () = self.wanted.notified() => {}
                    () = sleep_until(time) => {}
                },
                Turn::Nobody => self.wanted.notified().await,
            }
        }
    }

    /// Does what is to happen to a key, once; what then remains to be done waits for its next turn, and holds no writer.
    async fn settle(&self, key: Box<[u8]>) {
        let Some(Numbered { pending, number }) = self.working.pending(&key) else { return };
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
                    self.is_overtaken(entry);
                }
                self.done(key, (&pending, number));
            }
            End::Unfit => {
                self.give_up(&key, number);
                self.working.again(key);
            }
            End::Failed => {
                self.counts.add(Event::WriteFailed);
                let failures = self.working.failed(&key, number);
                if failures >= ATTEMPTS_TO_PUT && matches!(pending, Pending::Put { .. }) {
                    self.give_up(&key, number);
                }
                self.working.pause(key, Pause::Failed, Instant::now());
            }
            End::Early => {
                self.working.pause(key, Pause::Early, Instant::now());
                // Nothing was waited for. Where so many keys are early that one has its turn again before the last one had its first,
                // whoever reads the log would never have one.
                yield_now().await;
            }
            End::NotAsked(retry) => {
                self.working.again(key);
                self.rest(retry);
            }
        }
    }

    fn done(&self, key: Box<[u8]>, (pending, number): (&Pending, u64)) {
        self.rest.end();
        self.doubt.answered(Instant::now());
        self.count(pending);
        match self.working.done(&key, number) {
            true => self.settled.notify_waiters(),
            false => self.working.again(key),
        }
    }

    fn count(&self, pending: &Pending) {
        self.counts.add(match pending {
            Pending::Put { .. } => Event::Written,
            Pending::Removed => Event::Removed,
        });
    }

    /// Others may have what it was to replace, and would keep it if they found nothing: nobody would have said that it has changed. So its
    /// place is not left empty, as after a put of which nobody knows whether it took place.
    fn give_up(&self, key: &[u8], number: u64) {
        self.counts.add(Event::GivenUp);
        self.doubt.begin();
        self.working.give_up(key, number);
    }

    /// Nobody asks for a while: time to find what has become useless.
    fn rest(&self, retry: Duration) {
        if self.rest.begin(retry, Instant::now()) {
            let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
            (0..self.working.give_up_expired(now_ms)).for_each(|_| self.counts.add(Event::GivenUp));
            self.settled.notify_waiters();
        }
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
        })
    }
}

impl Tiers {
    async fn remove(&self, key: &[u8], name: &[u8]) -> Result<End, Unavailable> {
        if !self.doubt.holds(Instant::now()) || !self.bury(key, name).await? {
            self.backing.remove(name).await?;
        }
        Ok(End::Done)
    }

    /// Lets nothing lie under a key, in such a way that no put of before takes effect. Whether it does.
    async fn bury(&self, key: &[u8], name: &[u8]) -> Result<bool, Unavailable> {
        let Some(bytes) = portable::nothing(key, None) else { return Ok(false) };
        let write = Write { bytes: bytes.into(), expected: Expected::Any, ttl: LATE_MAX, lease: None };
        Ok(matches!(self.backing.put(name, write).await?, Put::Stored(_)))
    }
}

impl Tiers {
    /// Writes a record, with what others have written beside it.
    async fn put(
        &self,
        (key, name): (&[u8], &[u8]),
        entry: &CacheEntry,
        theirs: &Theirs,
        claim: Option<&Claim>,
    ) -> Result<End, Unavailable> {
        let Some(ttl) = ttl(entry) else { return Ok(End::Unfit) };
        let mut asked_at = entry.variants().iter().filter_map(|variant| variant.head.inputs()?.asked_at);
        if !asked_at.all(|place| self.epochs.is_settled(place)) {
            return Ok(End::Early);
        }
        let ttl = self.doubt.outlasted(ttl, Instant::now());
        let given = self.put_segments(entry, ttl + MARGIN).await?;
        let mut there = self.beneath(name, claim).await?;
        for _ in 0..ATTEMPTS_AT_ONCE {
            if there.as_ref().is_some_and(|there| is_of_newer(there, key)) {
                return Ok(End::Done);
            }
            let clock_ahead_ms = self.clock_ahead_ms();
            let writing = Writing {
                key,
                keys: None,
                given: &given,
                epochs: Some(&self.epochs),
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
                Put::Stored(_) if encoded.ours != Ours::Written => return Ok(End::Overtaken),
                Put::Stored(version) => return Ok(End::Stored(version)),
                Put::Conflict(other) => there = other,
                Put::NotStored(_) => return Ok(End::Unfit),
                Put::LeaseLost => return Ok(self.lease_lost(claim)),
            }
        }
        Ok(End::Failed)
    }

    /// What a record is written over.
    async fn beneath(&self, name: &[u8], claim: Option<&Claim>) -> Result<Option<Loaded>, BackingError> {
        match claim.map_or(There::Unread, |claim| claim.held.take_beneath()) {
            There::Unread => self.record(name, Tracking::Off).await,
            There::Nothing => Ok(None),
            There::Record(record) => Ok(Some(record)),
        }
    }

    /// What lies apart goes first: whoever finds the record finds what it names. Whether the tier has it.
    async fn put_beside(&self, encoded: &Encoded, ttl: Duration) -> Result<bool, Unavailable> {
        for SegmentBytes { id, cell_bytes, data } in &encoded.segments {
            if !self.segments.store_small(id.fill, *cell_bytes, data, ttl).await? {
                return Ok(false);
            }
        }
        for (id, bytes) in &encoded.apart {
            let bytes = Bytes::copy_from_slice(bytes);
            let write = Write { bytes, expected: Expected::Any, ttl, lease: None };
            self.backing.put(&names::of_response(*id), write).await?;
        }
        Ok(true)
    }

    async fn put_record(
        &self,
        name: &[u8],
        primary: Vec<u8>,
        (there, claim): (Option<&Loaded>, Option<&Claim>),
        ttl: Duration,
    ) -> Result<Put, BackingError> {
        let expected = there.map_or(Expected::Absent, Expected::Is);
        let write = Write { bytes: primary.into(), expected, ttl, lease: None };
        let put = match claim.map(|claim| (&claim.held, claim.held.right())) {
            None | Some((_, Right::Freed)) => self.backing.put(name, write).await,
            Some((held, Right::Held)) => self.release(held, write).await,
            Some((_, Right::Lost)) => return Ok(Put::LeaseLost),
        };
        if !matches!(put, Ok(_) | Err(BackingError::Open { .. })) {
            self.doubt.begin();
        }
        put
    }
}

impl Tiers {
    /// Writes a record, and frees the lease under which it was fetched. Where there is no memory for the record, the lease is freed all the same.
    async fn release(&self, held: &Held, write: Write<'_>) -> Result<Put, BackingError> {
        let put = self.backing.release_lease(held.lease(), write).await;
        match put {
            Ok(Put::Stored(_) | Put::NotStored(Refusal::OverBudget)) => held.becomes(Right::Freed),
            Ok(Put::LeaseLost) => {
                self.counts.add(Event::LeaseLost);
                held.becomes(Right::Lost);
            }
            Ok(Put::Conflict(_) | Put::NotStored(Refusal::TooLarge)) | Err(_) => {}
        }
        put
    }

    /// What was fetched under a lease that somebody else has taken since, or that has ended, is not written: others may have fetched
    /// something newer. Where something else was to be written with it, nobody can say what is left.
    fn lease_lost(&self, claim: Option<&Claim>) -> End {
        match claim.map(|claim| claim.covers) {
            Some(Covers::All) => End::Overtaken,
            Some(Covers::Part) | None => End::Unfit,
        }
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

/// Whether a newer version of Larder wrote it, for its like: it is not written over.
fn is_of_newer(there: &Loaded, key: &[u8]) -> bool {
    portable::decode(&there.bytes, key, None).is_err_and(|error| error.meaning() == Meaning::Leave)
}

/// How long a record is of use; `None` where it is of none any more.
fn ttl(entry: &CacheEntry) -> Option<Duration> {
    let Some(expires_at_ms) = entry.expires_at_ms() else { return Some(TTL_OF_ANY) };
    let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
    let left_ms = expires_at_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0)?;
    Some(Duration::from_millis(left_ms))
}

impl Tiers {
    /// Gives the tier the segments of all bodies of a record. What it has of them then.
    async fn put_segments(&self, entry: &CacheEntry, ttl: Duration) -> Result<Vec<Layout>, Unavailable> {
        let mut given = Vec::new();
        for body in entry.variants().iter().filter_map(|variant| variant.body.segmented()) {
            given.extend(self.segments.store(body, ttl).await?);
        }
        Ok(given)
    }
}
