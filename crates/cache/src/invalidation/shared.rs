//! The purge log that several instances share, mapped to this instance's numbers.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use store::backing::{LastRecord, LogCursor, LogId, LogOffset};
use store::purge::{Clause, PurgeEffect, PurgeId, PurgeRecord};

use super::log_positions::LogPositions;
use super::{Invalidations, PurgeEntry, Purgers};

/// Number of a purge among those that this instance writes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Posted(pub u64);

/// Positions in the log, and the records that this instance has written to it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) places: Mutex<LogPositions>,
    own: Mutex<VecDeque<Own>>,
    last: Mutex<Option<LastRecord>>,
}

/// A purge of this instance, which took effect here before it was written to the log.
#[derive(Clone, Copy, Debug)]
struct Own {
    id: PurgeId,
    number: u64,
    /// Set once the purge is being written to the log.
    posted: Option<Posted>,
    is_read: bool,
}

/// Maximum number of remembered own purges. An older purge takes effect again when it is read from the log, which purges more than
/// necessary.
const OWN_MAX: usize = 1024;

impl Shared {
    /// Starts reading a log. Own purges that have not been read from it yet come after all of its records.
    fn begin(&self, from: LogCursor, number: u64) {
        let outstanding = self.outstanding(None);
        self.places.lock().begin(from, number, outstanding);
        *self.last.lock() = None;
    }

    /// Returns the lowest number of an own purge, other than this one, that has not been read from the log yet.
    fn outstanding(&self, but: Option<PurgeId>) -> Option<u64> {
        let own = self.own.lock();
        own.iter().filter(|own| !own.is_read && Some(own.id) != but).map(|own| own.number).min()
    }
}

impl Invalidations {
    /// Records that an own purge is being written to the log.
    pub fn record_posted(&self, id: PurgeId, posted: Posted) {
        let mut own = self.shared.own.lock();
        own.iter_mut().filter(|own| own.id == id).for_each(|own| own.posted = Some(posted));
    }

    /// Registers an own purge when it gets its number. Records of the log that are read before the purge precede it.
    pub(super) fn begin_own(&self, id: Option<PurgeId>, number: u64) {
        let Some(id) = id.filter(|_| self.purgers == Purgers::Several) else { return };
        let mut own = self.shared.own.lock();
        if own.len() == OWN_MAX {
            own.pop_front();
        }
        own.push_back(Own { id, number, posted: None, is_read: false });
    }

    /// Returns the end of the part of the log that was read.
    pub fn log_read(&self) -> Option<LogCursor> {
        self.shared.places.lock().read()
    }

    /// Returns the last record of the log that was read.
    pub fn last_record(&self) -> Option<LastRecord> {
        *self.shared.last.lock()
    }

    /// Stores the last record that was read and applied.
    pub fn record_read(&self, record: LastRecord) {
        *self.shared.last.lock() = Some(record);
    }

    /// Returns the position up to which this process has read the log `there`. If the process has read that log before, the log was set
    /// back, and the position is past its present end. Otherwise returns `from`, a position in another log.
    pub fn read_before(&self, there: LogId, from: LogCursor) -> LogCursor {
        match there == from.id || self.shared.places.lock().mark_left(there) {
            true => LogCursor { id: there, offset: LogOffset(u64::MAX) },
            false => from,
        }
    }

    /// Starts reading the log at `from`. Earlier purges are unknown.
    pub fn log_begins(&self, from: LogCursor) {
        let _turn = self.turn.lock();
        self.shared.begin(from, self.stamp().0);
    }

    /// Records that the log, or an unread part of it, was lost. Any older response may have been purged, so all older responses become
    /// stale.
    pub fn log_was_lost(&self, from: LogCursor) {
        self.note(|number| {
            self.purges.add(Clause::default(), PurgeEffect::Soft, number);
            self.shared.begin(from, number);
        });
    }

    /// Applies a record that ends at `end`, and returns the purge; `None` for an own purge, which took effect when it was issued. `keys`
    /// are the keys of a purged URL.
    pub fn hear(&self, record: PurgeRecord, keys: &[&[u8]], end: LogOffset) -> Option<Arc<PurgeEntry>> {
        if self.is_known_already(record.id, end) {
            return None;
        }
        Some(self.purge_at(record, keys, Some(end)))
    }

    /// Advances past a record that affects no response of this instance.
    pub fn hear_nothing(&self, end: LogOffset) {
        self.note(|number| self.note_place(Some(end), number));
    }

    /// Returns whether a purge is this instance's own. Its record in the log then has the number that the purge already has.
    fn is_known_already(&self, id: PurgeId, end: LogOffset) -> bool {
        let number = self.shared.own.lock().iter().find(|own| own.id == id).map(|own| own.number);
        let Some(number) = number else { return false };
        let _turn = self.turn.lock();
        let outstanding = self.shared.outstanding(Some(id));
        self.shared.places.lock().note(end, number, outstanding);
        // The purge is no longer outstanding, so later positions include it. It stays known, because the log may contain it twice.
        self.shared.own.lock().iter_mut().filter(|own| own.id == id).for_each(|own| own.is_read = true);
        true
    }

    /// Records that all own purges posted up to `upto` were read from the log, or never will be. In the second case, a single purge of
    /// everything replaces them.
    pub fn own_are_read(&self, upto: Posted) {
        let mut own = self.shared.own.lock();
        let read = own.iter_mut().filter(|own| own.posted.is_some_and(|posted| posted <= upto));
        read.for_each(|own| own.is_read = true);
    }

    /// Returns whether the log contains all own purges from before a position in this instance's list. Until then, other instances would
    /// apply these purges to responses that were requested at that position.
    pub fn is_settled(&self, place: LogCursor) -> bool {
        place.id != self.log.0 || self.shared.outstanding(None).is_none_or(|number| number > place.offset.0)
    }

    pub(super) fn note_place(&self, end: Option<LogOffset>, number: u64) {
        if let Some(end) = end {
            let outstanding = self.shared.outstanding(None);
            self.shared.places.lock().note(end, number, outstanding);
        }
    }
}
