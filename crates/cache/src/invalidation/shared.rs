//! The log that several instances share, in terms of this instance's numbers.

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
    /// Set once it is being written to the log.
    posted: Option<Posted>,
    is_read: bool,
}

/// Maximum number of own purges that are remembered. An older one takes effect again when it is read from the log, which purges too much.
const OWN_MAX: usize = 1024;

impl Shared {
    /// Begins to read a log. Own purges that have not been read yet are later than everything in it.
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
    /// Notes that an own purge is being written to the log.
    pub fn record_posted(&self, id: PurgeId, posted: Posted) {
        let mut own = self.shared.own.lock();
        own.iter_mut().filter(|own| own.id == id).for_each(|own| own.posted = Some(posted));
    }

    /// Registers an own purge in the turn in which it gets its number. Records that are read meanwhile precede it.
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

    /// Returns the last record of that part.
    pub fn last_record(&self) -> Option<LastRecord> {
        *self.shared.last.lock()
    }

    /// Notes the last record that was read and applied.
    pub fn record_read(&self, record: LastRecord) {
        *self.shared.last.lock() = Some(record);
    }

    /// Returns the position up to which the current log was read before it was set back, which is past its end. Otherwise returns `from`,
    /// which is in another log.
    pub fn read_before(&self, there: LogId, from: LogCursor) -> LogCursor {
        match there == from.id || self.shared.places.lock().mark_left(there) {
            true => LogCursor { id: there, offset: LogOffset(u64::MAX) },
            false => from,
        }
    }

    /// Begins to read the log here. Earlier purges are unknown.
    pub fn log_begins(&self, from: LogCursor) {
        let _turn = self.turn.lock();
        self.shared.begin(from, self.stamp().0);
    }

    /// Notes that the log, or an unread part of it, was lost. Any older response may have been purged, so all of them are stale.
    pub fn log_was_lost(&self, from: LogCursor) {
        self.note(|number| {
            self.purges.add(Clause::default(), PurgeEffect::Soft, number);
            self.shared.begin(from, number);
        });
    }

    /// Applies a record that ends at `end`, and returns the purge; `None` for an own purge, which took effect when it was issued. `keys`
    /// are those of a URL.
    pub fn hear(&self, record: PurgeRecord, keys: &[&[u8]], end: LogOffset) -> Option<Arc<PurgeEntry>> {
        if self.is_known_already(record.id, end) {
            return None;
        }
        Some(self.purge_at(record, keys, Some(end)))
    }

    /// Notes a record that affects nothing here.
    pub fn hear_nothing(&self, end: LogOffset) {
        self.note(|number| self.note_place(Some(end), number));
    }

    /// Returns whether a purge is this instance's own: the record then stands for the number that the purge already has.
    fn is_known_already(&self, id: PurgeId, end: LogOffset) -> bool {
        let number = self.shared.own.lock().iter().find(|own| own.id == id).map(|own| own.number);
        let Some(number) = number else { return false };
        let _turn = self.turn.lock();
        let outstanding = self.shared.outstanding(Some(id));
        self.shared.places.lock().note(end, number, outstanding);
        // It is no longer outstanding: positions from now on include it. It stays known, because the log may contain it twice.
        self.shared.own.lock().iter_mut().filter(|own| own.id == id).for_each(|own| own.is_read = true);
        true
    }

    /// Notes that all own purges posted up to `upto` were read from the log, or never will be, in which case a single purge of everything
    /// stands for them.
    pub fn own_are_read(&self, upto: Posted) {
        let mut own = self.shared.own.lock();
        let read = own.iter_mut().filter(|own| own.posted.is_some_and(|posted| posted <= upto));
        read.for_each(|own| own.is_read = true);
    }

    /// Returns whether the log contains all own purges from before a position in this instance's list. Until then, other instances would
    /// apply them to responses that were requested there.
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
