//! The contract of the tiers behind memory.

use std::pin::Pin;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;

use super::error::BackingError;
use super::health::Health;
use super::lease::{Lease, LeaseRequest, RenewOutcome, TakeOutcome};
use super::log::{AppendOutcome, LogCursor, LogPart, LogState, Replication};
use super::record::{Loaded, PutOutcome, Tracking, Version, WaitOutcome, Write};
use super::watch::{CopyStatus, Source, Watcher};
use crate::{FillId, SegmentId, SegmentPut};

/// Future of an operation's result. Boxed, so that one gateway can have different kinds of tiers.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackingError>> + Send + 'a>>;

/// A tier of bytes that other processes share.
///
/// A key has a *record*, and a [`SegmentId`] has a *segment*; in addition, there is one *lease* per key and one *log*. The tier never
/// interprets the bytes. A *source* is one node of the tier in one generation: a lost connection, or a change of the node's role, begins a
/// new generation. "At any time" and "the last" apply within a generation; a fail-over may restore an earlier state.
///
/// Promises, each checked by `backing::suite`:
///
/// Records
///
/// 1. A load returns, in the order of the keys, the whole bytes of the last put under each key, or nothing, because every
///    tier may forget at any time. It never returns a part of a record, or the record of another key. Every byte of a key counts.
/// 2. A put is atomic together with its condition: of two puts that depend on the same record, one succeeds, and the other
///    gets the current record.
/// 3. Two loads of a key with the same version had the same bytes.
/// 4. A removed or replaced record doesn't come back. Nothing outlives its time to live.
/// 5. A record beyond a limit is refused, not cut, and leaves the current one. No reply exceeds the limits
///    ([`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX) for each key,
///    [`SEGMENT_FRAME_BYTES_MAX`](super::SEGMENT_FRAME_BYTES_MAX) for each index), so the caller can reserve memory first.
///
/// Segments
///
/// 6. Segments are immutable: the first one under an id stays until it is removed or its time to live has passed.
/// 7. A missing segment is `None`, whatever the reason. The other segments are returned anyway, in the order of the indexes.
///
/// Coherence
///
/// 8. After a tracking load, the next change of the record is announced to each watcher, or the whole source is announced
///    as suspect. A change is a put of any instance (including this one, and a put that timed out), a removal, an expiry or
///    an eviction. If there was no record, the next put is announced, unless the key isn't followed for lack of room.
///    Announcements may come twice, in any order, and before the reply to the load: to keep a copy, set a mark before the
///    load and check it afterwards.
/// 9. While a source is verified, all changes older than the verification time have been announced. A source that has
///    ended is never verified again.
/// 10. Each load leads to one announcement: load again to get the next one.
///
/// Leases
///
/// 11. At any time at most one lease is held on a key. Taking with [`LeaseMode::Overwrite`](super::LeaseMode::Overwrite)
///     ends the lease that was held.
/// 12. A put under a lease that isn't held any more, because it was overwritten or has expired, changes nothing and reports that.
/// 13. A release atomically writes the record and frees the lease, or does neither: a waiter that is woken by the record finds the lease
///     free. Without memory for the record, it removes the current one, and frees the lease too.
/// 14. A wait misses nothing: it ends immediately if the record isn't the one that was seen, or the lease is free.
///
/// Log
///
/// 15. All readers see the same records in the same order, each whole and once. The records of one append are adjacent, and
///     visible immediately to every reader whose request follows the reply.
/// 16. A log that was lost has another id, or ends before the reader's position: [`LogState::continues`].
/// 17. The floor only rises.
///
///     A log that has lost its end grows again, with other records at offsets that were already read. So a reader that finds
///     its position beyond the end gives the log another id.
///
/// Errors
///
/// 18. Errors are values, and never a reason to fail a request. After an error in a change, the caller doesn't know
///     whether it took effect.
/// 19. Every operation completes within its deadline, or returns [`BackingError::TimedOut`]; [`Guarded`](super::Guarded) enforces
///     it. A future may be dropped at any time, with the same doubt as after an error.
/// 20. Operations may run concurrently, on any thread.
pub trait Backing: Send + Sync {
    /// Loads the records under some keys, in their order.
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>>;

    /// Writes the record under a key, if the current one is the expected one.
    fn put<'a>(&'a self, key: &'a [u8], write: Write<'a>) -> Pending<'a, PutOutcome>;

    /// Removes the record under a key unconditionally. Returns `true` if there was one.
    fn remove<'a>(&'a self, key: &'a [u8]) -> Pending<'a, bool>;

    /// Loads segments of one fill, in the order of the indexes.
    fn load_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>>;

    /// Stores a segment.
    fn put_segment(&self, id: SegmentId, bytes: Bytes, ttl: Duration) -> Pending<'_, SegmentPut>;

    /// Sets the time to live of segments to `ttl` from now. Returns the number of these segments that exist.
    fn extend_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32], ttl: Duration) -> Pending<'a, usize>;

    /// Removes segments of one fill.
    fn remove_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, ()>;

    /// Announces changes to `watcher` from now on, as long as another owner holds it.
    fn watch(&self, watcher: Weak<dyn Watcher>);

    /// Returns the current or last source. If a later load finds no record, this absence counts as a copy from this source.
    fn source(&self) -> Source;

    /// Returns whether copies from this source can be relied upon now. It is cheap enough to be called for every hit.
    fn standing(&self, source: Source) -> CopyStatus;

    /// Returns the time since the last sign of life of the tier.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the state of the tier, for metrics.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Returns the lead of the tier's clock over this process's clock; `None` before it is known.
    fn clock_ahead_ms(&self) -> Option<i64>;

    /// Takes the lease on a key, if it is free or may be overwritten.
    fn take_lease<'a>(&'a self, key: &'a [u8], request: LeaseRequest<'a>) -> Pending<'a, TakeOutcome>;

    /// Extends a lease to `ttl` from now.
    fn renew_lease<'a>(&'a self, lease: &'a Lease, ttl: Duration) -> Pending<'a, RenewOutcome>;

    /// Writes the record under the key of the lease, and frees the lease. Unless the result is [`PutOutcome::Stored`], the lease is held as
    /// before, or was already lost; with [`Refusal::OverBudget`](crate::Refusal::OverBudget), the record is removed, and the lease is freed
    /// now or when it expires. The lease in `write` is ignored.
    fn release_lease<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome>;

    /// Releases a lease that the caller no longer needs. Unlike [`Self::release_lease`], the request is sent even if the tier has failed,
    /// and has a longer deadline.
    fn give_lease_back<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome> {
        self.release_lease(lease, write)
    }

    /// Waits up to `limit` until the record is no longer the one in `seen`, or the lease on its key is free.
    fn wait<'a>(&'a self, key: &'a [u8], seen: Option<Version>, limit: Duration) -> Pending<'a, WaitOutcome>;

    /// Returns the start and end of the log.
    fn log_state(&self) -> Pending<'_, LogState>;

    /// Appends records to the current log. If its id isn't the one known to the caller, the log was lost.
    fn append_log<'a>(&'a self, records: &'a [Bytes]) -> Pending<'a, AppendOutcome>;

    /// Waits up to `limit` until most servers of the tier have all records that were appended before.
    fn replicate_log(&self, limit: Duration) -> Pending<'_, Replication> {
        let _ = limit;
        Box::pin(async { Ok(Replication::Complete) })
    }

    /// Reads records beginning at `from`, or at the floor if that is higher: at least one if there are any, and at most
    /// [`LOG_APPEND_BYTES_MAX`](super::LOG_APPEND_BYTES_MAX) bytes in total.
    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart>;

    /// Raises the floor and removes the records below it. Leaves a log with another id unchanged.
    fn trim_log(&self, floor: LogCursor) -> Pending<'_, LogState>;

    /// Gives the log another id, if it has the id in `read` and ends before that position; its records stay at their offsets. Otherwise
    /// does nothing.
    fn rename_log(&self, read: LogCursor) -> Pending<'_, LogState>;
}
