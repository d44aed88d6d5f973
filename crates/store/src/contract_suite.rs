//! The test that every tier must pass: one function, to be run on a fresh tier with room for a few megabytes.
//!
//! It answers with the first broken promise instead of panicking, so that it can itself be tested on stores that are
//! broken on purpose.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::{
    Applied, Budget, Change, Charge, FillId, Place, Record, Refusal, SEGMENT_BYTES_MAX, Segment, SegmentId,
    SegmentPut, Store, StoreError,
};

/// The record of the suite. A tier that serializes records needs its fields.
#[derive(Debug)]
pub struct SuiteRecord {
    /// What the suite recognises the record by.
    pub payload: Box<[u8]>,
    /// Milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Covers the payload.
    pub charge: Charge,
}

impl SuiteRecord {
    /// A record that never expires.
    ///
    /// # Errors
    /// When the budget has no room.
    pub fn new(budget: &Arc<Budget>, payload: &[u8]) -> Result<Arc<Self>, crate::OverBudget> {
        let charge = budget.reserve_record(Self::bytes(payload.len()))?;
        Ok(Arc::new(Self { payload: payload.into(), expires_at_ms: None, charge }))
    }

    /// What such a record weighs, with the two counters of its `Arc`.
    fn bytes(payload_bytes: usize) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>() + crate::allocated_bytes(payload_bytes)
    }
}

impl Record for SuiteRecord {
    fn charge(&self) -> &Charge {
        &self.charge
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }
}

/// The promise that a tier broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// What was expected and did not happen.
    #[error("broken promise: {0}")]
    BrokenPromise(&'static str),
    /// The tier failed while it should have worked.
    #[error("the tier failed")]
    TierFailed(#[from] StoreError),
    /// The budget that was given is too small for the suite.
    #[error("the suite needs a larger budget")]
    NoRoom(#[from] crate::OverBudget),
}

/// Checks all promises. `record_bytes_over` is a record size that the tier must refuse.
///
/// # Errors
/// The first promise that does not hold.
pub async fn check_tier<S: Store<SuiteRecord>>(
    store: &S,
    budget: &Arc<Budget>,
    record_bytes_over: usize,
) -> Result<(), Violation> {
    let suite = Suite { store, budget };
    suite.load_returns_the_last_put().await?;
    suite.keys_are_opaque_and_injective().await?;
    suite.an_update_sees_the_current_record().await?;
    suite.concurrent_updates_lose_nothing().await?;
    suite.removed_stays_removed().await?;
    suite.refused_replaces_nothing(record_bytes_over).await?;
    suite.expiry_travels_with_the_record().await?;
    suite.segments_are_immutable().await?;
    suite.a_missing_segment_is_a_hole().await?;
    suite.fills_are_apart().await
}

struct Suite<'s, S> {
    store: &'s S,
    budget: &'s Arc<Budget>,
}

impl<S: Store<SuiteRecord>> Suite<'_, S> {
    async fn load_returns_the_last_put(&self) -> Result<(), Violation> {
        ensure(self.payload(b"last put").await?.is_none(), "a fresh tier is empty")?;
        for round in 0..3u8 {
            ensure(self.put(b"last put", &[round]).await? == Applied::Stored, "a small record is stored")?;
            let found = self.payload(b"last put").await?;
            ensure(found.as_deref() == Some(&[round]), "load returns what the last update put")?;
        }
        Ok(())
    }

    async fn keys_are_opaque_and_injective(&self) -> Result<(), Violation> {
        let long = vec![b'k'; 8 << 10];
        let longer = vec![b'k'; (8 << 10) + 1];
        let keys: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"/a/b", b"/a:b", b"/A/b", b"{x}y", &long, &longer];
        for (number, key) in keys.iter().enumerate() {
            self.put(key, &number.to_le_bytes()).await?;
        }
        for (number, key) in keys.iter().enumerate() {
            let found = self.payload(key).await?;
            ensure(found.as_deref() == Some(&number.to_le_bytes()), "every byte of a key counts")?;
        }
        Ok(())
    }

    async fn an_update_sees_the_current_record(&self) -> Result<(), Violation> {
        let key = b"current";
        let mut seen = Vec::new();
        let look = async |seen: &mut Vec<Option<Box<[u8]>>>| {
            let note = |current: Option<&Arc<SuiteRecord>>| {
                seen.push(current.map(|record| record.payload.clone()));
                Change::Keep
            };
            self.store.update(key, note).await
        };
        ensure(look(&mut seen).await? == Applied::Kept, "keeping nothing is told as kept")?;
        self.put(key, b"one").await?;
        ensure(look(&mut seen).await? == Applied::Kept, "keeping a record is told as kept")?;
        ensure(seen == [None, Some(b"one".as_slice().into())], "an update sees the current record")?;
        ensure(self.payload(key).await?.as_deref() == Some(b"one"), "keep keeps")
    }

    /// Tiers that answer at once run these one after the other; those that wait interleave them.
    async fn concurrent_updates_lose_nothing(&self) -> Result<(), Violation> {
        const UPDATES: usize = 8;
        let next = |current: Option<&Arc<SuiteRecord>>| {
            let count = current.map_or(0, |record| record.payload.len());
            match SuiteRecord::new(self.budget, &vec![b'+'; count + 1]) {
                Ok(record) => Change::Put(record),
                Err(_) => Change::Keep,
            }
        };
        let updates = (0..UPDATES).map(|_| self.store.update(b"counter", next));
        for outcome in all(updates).await {
            ensure(outcome? == Applied::Stored, "every update is applied")?;
        }
        let count = self.payload(b"counter").await?.map(|payload| payload.len());
        ensure(count == Some(UPDATES), "concurrent updates lose nothing")
    }

    async fn removed_stays_removed(&self) -> Result<(), Violation> {
        let key = b"removed";
        ensure(!self.store.remove(key).await?, "removing nothing is told")?;
        self.put(key, b"one").await?;
        ensure(self.store.remove(key).await?, "removing a record is told")?;
        ensure(self.payload(key).await?.is_none(), "a removed record is gone")?;
        self.put(key, b"two").await?;
        let removal = |_: Option<&Arc<SuiteRecord>>| Change::Remove;
        ensure(self.store.update(key, removal).await? == Applied::Removed, "an update removes")?;
        ensure(self.store.update(key, removal).await? == Applied::Absent, "an update tells absence")?;
        ensure(self.payload(key).await?.is_none(), "a removed record does not come back")
    }

    async fn refused_replaces_nothing(&self, record_bytes_over: usize) -> Result<(), Violation> {
        let key = b"refused";
        self.put(key, b"small").await?;
        let outcome = self.put(key, &vec![0; record_bytes_over]).await?;
        ensure(outcome == Applied::NotStored(Refusal::TooLarge), "a record over the limit is refused")?;
        ensure(self.payload(key).await?.is_none(), "a refused record does not leave the older one")
    }

    async fn expiry_travels_with_the_record(&self) -> Result<(), Violation> {
        let charge = self.budget.reserve_record(SuiteRecord::bytes(0))?;
        let record = Arc::new(SuiteRecord { payload: [].into(), expires_at_ms: Some(u64::MAX), charge });
        let put = |_: Option<&Arc<SuiteRecord>>| Change::Put(Arc::clone(&record));
        self.store.update(b"expiry", put).await?;
        let found = self.store.load(b"expiry").await?;
        let expires_at_ms = found.and_then(|record| record.expires_at_ms);
        ensure(expires_at_ms == Some(u64::MAX), "a record keeps its expiry")
    }

    async fn segments_are_immutable(&self) -> Result<(), Violation> {
        let id = SegmentId { fill: FillId::next(), index: 0 };
        ensure(self.put_segment(id, b"first").await? == SegmentPut::Stored, "a segment is stored")?;
        let again = self.put_segment(id, b"second").await?;
        ensure(again == SegmentPut::AlreadyThere, "a second segment of one id is told")?;
        ensure(self.segment(id).await?.as_deref() == Some(b"first"), "the first segment of an id stays")
    }

    async fn a_missing_segment_is_a_hole(&self) -> Result<(), Violation> {
        let fill = FillId::next();
        let ids = [0, 1, 2].map(|index| SegmentId { fill, index });
        self.put_segment(ids[2], b"end").await?;
        self.put_segment(ids[0], b"start").await?;
        ensure(self.segment(ids[1]).await?.is_none(), "a segment that was not put is a hole")?;
        ensure(self.segment(ids[2]).await?.as_deref() == Some(b"end"), "segments come in any order")?;
        self.store.remove_segments(fill, 3).await?;
        for id in ids {
            ensure(self.segment(id).await?.is_none(), "a removed segment is a hole")?;
        }
        Ok(())
    }

    async fn fills_are_apart(&self) -> Result<(), Violation> {
        let ids = [FillId::next(), FillId::next()].map(|fill| SegmentId { fill, index: 7 });
        let largest = vec![b'x'; SEGMENT_BYTES_MAX];
        self.put_segment(ids[0], &largest).await?;
        self.put_segment(ids[1], b"other").await?;
        self.store.remove_segments(ids[1].fill, 8).await?;
        let found = self.segment(ids[0]).await?;
        ensure(
            found.is_some_and(|found| *found == *largest),
            "one fill's removal leaves the other's segments",
        )
    }

    async fn put(&self, key: &[u8], payload: &[u8]) -> Result<Applied, Violation> {
        let record = SuiteRecord::new(self.budget, payload)?;
        Ok(self.store.update(key, |_| Change::Put(Arc::clone(&record))).await?)
    }

    async fn payload(&self, key: &[u8]) -> Result<Option<Box<[u8]>>, Violation> {
        Ok(self.store.load(key).await?.map(|record| record.payload.clone()))
    }

    async fn put_segment(&self, id: SegmentId, data: &[u8]) -> Result<SegmentPut, Violation> {
        let segment = Segment::copy(self.budget, Place::File, data)?;
        Ok(self.store.put_segment(id, segment).await?)
    }

    async fn segment(&self, id: SegmentId) -> Result<Option<Bytes>, Violation> {
        let segment = self.store.load_segment(id).await?;
        let bytes = segment.map(|segment| segment.to_bytes()).transpose();
        bytes.map_err(|_| Violation::BrokenPromise("a segment can be read"))
    }
}

fn ensure(holds: bool, promise: &'static str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::BrokenPromise(promise)) }
}

/// Runs futures side by side and gives their results in order.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if running.iter().all(|(_, output)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

/// The output of a future that needs no runtime, for tiers that answer at once.
///
/// # Panics
/// When the future waits for something.
pub fn answer_at_once<F: Future>(future: F) -> F::Output {
    let mut future: Pin<&mut F> = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the tier was to answer at once"),
    }
}
