//! Writes what is stored to the tier, behind the exchange: segments first, then the record that names them.

use std::time::Duration;

use store::Record as _;
use store::backing::{Expected, Loaded, Put, Write};
use store::format::Meaning;
use tokio::time::sleep;

use super::counts::Event;
use super::segments::Unavailable;
use super::working::{Numbered, Pending, Theirs};
use super::{Tiers, names};
use crate::cache::record::portable::{self, Encoded, Merge, SegmentBytes, Writing};
use crate::cache::record::stored::CacheEntry;
use crate::clock::now;

/// How one operation ended.
enum End {
    /// The tier knows.
    Done,
    /// It does not, or nobody knows: once more.
    Failed,
    /// It can't be told: what it has is removed instead.
    Unfit,
}

/// Of one response that should be written; what the tier has for it goes afterwards.
const ATTEMPTS_TO_PUT: u32 = 5;
/// Of one record that others change at the same time.
const ATTEMPTS_AT_ONCE: usize = 3;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a record stays that says of no response how long that is of use.
const TTL_OF_ANY: Duration = Duration::from_secs(24 * 3600);
/// Segments outlive the record that names them.
const MARGIN: Duration = Duration::from_secs(10);

impl Tiers {
    /// Takes part in the writing, for ever. Several do, so that one slow write delays few others.
    pub(crate) async fn write_behind(&self) {
        loop {
            match self.working.next() {
                Some(key) => self.settle(&key).await,
                None => self.wanted.notified().await,
            }
        }
    }

    /// Does what is to happen to a key until nothing is left.
    async fn settle(&self, key: &[u8]) {
        let mut failures = 0;
        while let Some(Numbered { pending, number }) = self.working.pending(key) {
            match self.carry_out(key, &pending).await {
                End::Done => {
                    failures = 0;
                    self.counts.add(match pending {
                        Pending::Put { .. } => Event::Written,
                        Pending::Removed => Event::Removed,
                    });
                    if self.working.done(key, number) {
                        self.settled.notify_waiters();
                        return;
                    }
                }
                End::Unfit => self.give_up(key, number),
                End::Failed => {
                    failures += 1;
                    self.counts.add(Event::WriteFailed);
                    if failures >= ATTEMPTS_TO_PUT && matches!(pending, Pending::Put { .. }) {
                        self.give_up(key, number);
                    }
                    sleep((PAUSE_MIN * 2_u32.saturating_pow(failures.min(10))).min(PAUSE_MAX)).await;
                }
            }
        }
    }

    fn give_up(&self, key: &[u8], number: u64) {
        self.counts.add(Event::GivenUp);
        self.working.give_up(key, number);
    }

    async fn carry_out(&self, key: &[u8], pending: &Pending) -> End {
        let Some(name) = names::of_record(key) else { return End::Done };
        match pending {
            Pending::Removed => match self.backing.remove(&name).await {
                Ok(_) => End::Done,
                Err(_) => End::Failed,
            },
            Pending::Put { entry, theirs } => self.put((key, &name), entry, theirs).await,
        }
    }
}

impl Tiers {
    /// Writes a record, with what others have written beside it.
    async fn put(&self, (key, name): (&[u8], &[u8]), entry: &CacheEntry, theirs: &Theirs) -> End {
        let Some(ttl) = ttl(entry) else { return End::Unfit };
        if self.put_segments(entry, ttl + MARGIN).await.is_err() {
            return End::Failed;
        }
        for _ in 0..ATTEMPTS_AT_ONCE {
            let Ok(there) = self.record(name).await else { return End::Failed };
            if there.as_ref().is_some_and(|there| is_of_newer(there, key)) {
                return End::Done;
            }
            let writing = Writing { key, keys: None, now: now(), clock_ahead_ms: self.clock_ahead_ms() };
            let Some(encoded) = portable::encode(&writing, entry, theirs.beside(there.as_ref())) else {
                return End::Unfit;
            };
            match self.put_record(name, encoded, there.as_ref(), ttl).await {
                Ok(Put::Stored(_)) => return End::Done,
                Ok(Put::Conflict(_)) => {}
                Ok(Put::NotStored(_) | Put::LeaseLost) => return End::Unfit,
                Err(_) => return End::Failed,
            }
        }
        End::Failed
    }

    /// What lies apart goes first: whoever finds the record finds what it names.
    async fn put_record(
        &self,
        name: &[u8],
        encoded: Encoded,
        there: Option<&Loaded>,
        ttl: Duration,
    ) -> Result<Put, Unavailable> {
        for SegmentBytes { id, cell_bytes, data } in &encoded.segments {
            self.segments.store_small(id.fill, *cell_bytes, data, ttl + MARGIN).await?;
        }
        for (id, bytes) in encoded.apart {
            let write =
                Write { bytes: bytes.into(), expected: Expected::Any, ttl: ttl + MARGIN, lease: None };
            self.backing.put(&names::of_response(id), write).await?;
        }
        let expected = there.map_or(Expected::Absent, Expected::Is);
        Ok(self
            .backing
            .put(name, Write { bytes: encoded.primary.into(), expected, ttl, lease: None })
            .await?)
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
    /// Gives the tier the segments of all bodies of a record. Whether it has them.
    async fn put_segments(&self, entry: &CacheEntry, ttl: Duration) -> Result<(), Unavailable> {
        for body in entry.variants().iter().filter_map(|variant| variant.body.segmented()) {
            self.segments.store(body, ttl).await?;
        }
        Ok(())
    }
}
