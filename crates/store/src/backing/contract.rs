//! The contract of the tiers behind memory.

use std::pin::Pin;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;

use super::error::BackingError;
use super::health::Health;
use super::lease::{Lease, LeaseRequest, Renewed, Taken};
use super::log::{Appended, LogCursor, LogPart, LogState};
use super::record::{Loaded, Put, Tracking, Version, Waited, Write};
use super::watch::{Source, Standing, Watcher};
use crate::{FillId, SegmentId, SegmentPut};

/// What an operation answers, later. Boxed, so that one gateway can have tiers of several kinds.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackingError>> + Send + 'a>>;

/// A tier of bytes that other processes use too.
///
/// Under a key lies a *record*, under a [`SegmentId`] a *segment*; beside them there are one *lease* for each key and one
/// *log*. The tier never looks into the bytes. A *source* is one node of it in one generation: a connection that was
/// lost, or a node that changed its role, begins a new generation. "At any time" and "the last" hold within a generation;
/// a fail-over may bring back what was there before.
///
/// Promises, each checked by `backing::suite`:
///
/// Records
///
/// 1. A load gives, in the order of the keys, the bytes of the last put under each key, whole, or nothing: every tier may
///    forget at any time. It never gives a part, nor what lies under another key. Every byte of a key counts.
/// 2. A put is atomic together with its condition: of two puts that were decided upon the same record one succeeds, and
///    the other is given what is there now.
/// 3. Two loads of a key with the same version had the same bytes.
/// 4. What was removed does not come back, nor what was replaced. Nothing outlives its time to live.
/// 5. What is beyond a limit is refused, not cut, and leaves what was there. No answer is longer than the limits
///    ([`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX) for each key,
///    [`SEGMENT_FRAME_BYTES_MAX`](super::SEGMENT_FRAME_BYTES_MAX) for each index), so the caller can reserve before it asks.
///
/// Segments
///
/// 6. Segments are immutable: the first one under an id stays until it is removed or its time to live has passed.
/// 7. A missing segment is `None`, whatever the reason, and the others come all the same, in the order of the indexes.
///
/// Coherence
///
/// 8. After a load that tracks, the next change of the record, be it a put of anybody (one's own included, also one that has timed
///    out), a removal, expiry or eviction, is told to each watcher, or that all of the source is suspect; where there was none, the
///    next put, unless the key is not followed for want of room. It may be told twice,
///    in any order, and before the load has answered: who keeps a copy leaves a mark before the load, and looks for it
///    afterwards.
/// 9. As long as a source is verified, all changes are told that are older than the time of verification. A source that
///    has ended is never verified again.
/// 10. It is told once for each load: who wants to hear more loads again.
///
/// Leases
///
/// 11. At any time one lease at most is held on a key. Taking with [`LeaseMode::Overwrite`](super::LeaseMode::Overwrite)
///     ends the one that was held.
/// 12. A put under a lease that is not held any more, because it was overwritten or its time has passed, changes nothing and says so.
/// 13. A release writes the record and frees the lease at one moment, or does neither: who is woken by the record finds the
///     key free. Without memory for the record it removes what is there, and frees the lease with that.
/// 14. A wait misses nothing: it ends at once if the record is not the one that was seen, or nobody holds the lease.
///
/// Log
///
/// 15. All readers see the same records in the same order, each whole and once. Those of one append stand together, at
///     once for every reader that asks after it was answered.
/// 16. A log that was lost has another id, or ends before what was read of it: [`LogState::continues`].
/// 17. The floor only rises.
///
///     A log that has lost its end grows again, and then has other records at the offsets that others have read. So who sees that its
///     end is gone gives it another id.
///
/// Errors
///
/// 18. Errors are values, and never a reason to fail a request. After an error of a change the caller does not know whether
///     it took place.
/// 19. Every operation answers within its deadline, or with [`BackingError::TimedOut`]; [`Guarded`](super::Guarded) sees to
///     it. A future may be dropped at any time, with the same doubt as after an error.
/// 20. Operations may run side by side, on any thread.
pub trait Backing: Send + Sync {
    /// The records under some keys, in their order.
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>>;

    /// Writes the record under a key, if it is still the one that was expected.
    fn put<'a>(&'a self, key: &'a [u8], write: Write<'a>) -> Pending<'a, Put>;

    /// Removes the record under a key, whatever it is; says whether there was one.
    fn remove<'a>(&'a self, key: &'a [u8]) -> Pending<'a, bool>;

    /// Segments of one fill, in the order of the indexes.
    fn load_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>>;

    /// Stores a segment.
    fn put_segment(&self, id: SegmentId, bytes: Bytes, ttl: Duration) -> Pending<'_, SegmentPut>;

    /// Lets segments live for `ttl` from now on; says how many of them there are.
    fn extend_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32], ttl: Duration) -> Pending<'a, usize>;

    /// Removes segments of one fill.
    fn remove_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, ()>;

    /// From now on, `watcher` is told what changes, as long as somebody else holds it.
    fn watch(&self, watcher: Weak<dyn Watcher>);

    /// The source that is asked now, or was last: what the absence of a record is to be judged by that is looked for from now on.
    fn source(&self) -> Source;

    /// Whether copies from this source can be relied upon now. Cheap: for every hit.
    fn standing(&self, source: Source) -> Standing;

    /// How long ago it last showed that it is there.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// How it does, for metrics.
    fn health(&self) -> Health {
        Health::default()
    }

    /// How far the clock of the tier is ahead of that of this process; `None` before it is known.
    fn clock_ahead_ms(&self) -> Option<i64>;

    /// Takes the lease on a key, if it is free or may be overwritten.
    fn take_lease<'a>(&'a self, key: &'a [u8], request: LeaseRequest<'a>) -> Pending<'a, Taken>;

    /// Lets a lease last for `ttl` from now on.
    fn renew_lease<'a>(&'a self, lease: &'a Lease, ttl: Duration) -> Pending<'a, Renewed>;

    /// Writes the record under the key of the lease and frees it. Without [`Put::Stored`] it is held as before, or was lost already; with
    /// [`Refusal::OverBudget`](crate::Refusal::OverBudget) the record is removed and the lease is free, or ends with its time.
    /// The lease of `write` counts for nothing here.
    fn release_lease<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, Put>;

    /// The same for who has nothing else to do with the lease: it is asked for whatever else has failed, and for longer.
    fn give_lease_back<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, Put> {
        self.release_lease(lease, write)
    }

    /// Waits until the record is not the one that was `seen`, or nobody holds the lease on its key; no longer than `limit`.
    fn wait<'a>(&'a self, key: &'a [u8], seen: Option<Version>, limit: Duration) -> Pending<'a, Waited>;

    /// Where the log begins and ends.
    fn log_state(&self) -> Pending<'_, LogState>;

    /// Appends records to the log that there is. Its id may be another than the caller knows: then the log was lost.
    fn append_log<'a>(&'a self, records: &'a [Bytes]) -> Pending<'a, Appended>;

    /// The records from `from` on, or from the floor where that is higher: some at least if there are any, and in all no
    /// more than [`LOG_APPEND_BYTES_MAX`](super::LOG_APPEND_BYTES_MAX).
    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart>;

    /// Raises the floor: what lies below is gone. Does nothing to a log of another id.
    fn trim_log(&self, floor: LogCursor) -> Pending<'_, LogState>;

    /// Gives the log another id, if it is the one of `read` and ends before it; what is in it stays, at its offsets. Else nothing.
    fn rename_log(&self, read: LogCursor) -> Pending<'_, LogState>;
}
