//! The contract of every tier.

use std::error::Error;
use std::sync::Arc;

use crate::{Applied, Change, FillId, Memory, Record, Segment, SegmentId, SegmentPut};

/// One tier of the store.
///
/// Promises, each checked by `contract_suite`:
///
/// 1. A load returns what the last update put under the key, or nothing: every tier may forget at any time. It never
///    returns an older record, a part of one, or that of another key.
/// 2. An update is atomic: it puts only if the record that it was decided upon is still the current one, and is
///    decided again if not. Two updates of a key never lose one of them.
/// 3. A removed record does not come back, and neither does a replaced or a refused one.
/// 4. Segments are immutable: the first one under an id stays.
/// 5. A missing segment is `None`, whatever the reason.
/// 6. Errors are values. The caller counts them and goes on as after a miss; after an error of an update or a removal
///    the caller does not know whether it took place.
/// 7. A record whose use has ended may be returned (the caller has the clock) and may be gone.
/// 8. A record or segment beyond the tier's limits is refused, not cut, and the refusal is told.
///
/// The futures of tiers that answer at once are ready at the first poll.
pub trait Store<R: Record>: Send + Sync {
    /// The record under `key`.
    fn load(&self, key: &[u8]) -> impl Future<Output = Result<Option<Arc<R>>, StoreError>> + Send;

    /// Changes the record under `key` as `decide` says, which is asked again when another update came in between.
    fn update<F>(&self, key: &[u8], decide: F) -> impl Future<Output = Result<Applied, StoreError>> + Send
    where
        F: FnMut(Option<&Arc<R>>) -> Change<R> + Send;

    /// Removes the record under `key`; says whether there was one.
    fn remove(&self, key: &[u8]) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The segment with this id.
    fn load_segment(&self, id: SegmentId)
    -> impl Future<Output = Result<Option<Segment>, StoreError>> + Send;

    /// Stores a segment.
    fn put_segment(
        &self,
        id: SegmentId,
        segment: Segment,
    ) -> impl Future<Output = Result<SegmentPut, StoreError>> + Send;

    /// Removes the segments 0 to `count` of a fill.
    fn remove_segments(
        &self,
        fill: FillId,
        count: u32,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Why a tier gave no answer. Never a reason to fail a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The tier could not be reached, or not in time. Try again later, with a circuit breaker in between.
    #[error("the store is unreachable")]
    StoreUnreachable(#[source] Box<dyn Error + Send + Sync>),
    /// What is stored does not decode or has the wrong checksum. The entry is as good as missing and should be removed.
    #[error("the stored bytes are corrupt")]
    StoreCorrupt(#[source] Box<dyn Error + Send + Sync>),
    /// Other updates of the key kept coming in between.
    #[error("the update was overtaken {attempts} times")]
    StoreContended {
        /// How often it was tried.
        attempts: u32,
    },
}

impl<R: Record> Store<R> for Memory<R> {
    async fn load(&self, key: &[u8]) -> Result<Option<Arc<R>>, StoreError> {
        Ok(self.get(key))
    }

    async fn update<F>(&self, key: &[u8], decide: F) -> Result<Applied, StoreError>
    where
        F: FnMut(Option<&Arc<R>>) -> Change<R> + Send,
    {
        Ok(Self::update(self, key, decide))
    }

    async fn remove(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(Self::remove(self, key))
    }

    async fn load_segment(&self, id: SegmentId) -> Result<Option<Segment>, StoreError> {
        Ok(self.segment(id))
    }

    async fn put_segment(&self, id: SegmentId, segment: Segment) -> Result<SegmentPut, StoreError> {
        Ok(Self::put_segment(self, id, segment))
    }

    async fn remove_segments(&self, fill: FillId, count: u32) -> Result<(), StoreError> {
        Self::remove_segments(self, fill, count);
        Ok(())
    }
}
