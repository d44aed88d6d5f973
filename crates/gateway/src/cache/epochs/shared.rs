//! The log that several instances share, as the numbers of this one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use store::backing::{LastRecord, LogCursor, LogId, LogOffset};
use store::purge::{Clause, Force, PurgeId, PurgeRecord};

use super::places::Places;
use super::{Epochs, Kept, Purgers};
use crate::cache::tiers::fleet::Posted;

/// What this instance knows of the log, and what it has written there itself.
#[derive(Debug, Default)]
pub(super) struct Shared {
    places: Mutex<Places>,
    own: Mutex<VecDeque<Own>>,
    last: Mutex<Option<LastRecord>>,
}

/// A purge of this instance, which has taken effect here before it was written into the log.
#[derive(Clone, Copy, Debug)]
struct Own {
    id: PurgeId,
    number: u64,
    /// Once it is on its way to the log.
    posted: Option<Posted>,
    is_read: bool,
}

/// One that is further back takes effect once more when it is read in the log: too much is purged then.
const OWN_MAX: usize = 1024;

impl Shared {
    pub(super) fn place_of(&self, number: u64) -> Option<LogCursor> {
        self.places.lock().place_of(number)
    }

    pub(super) fn number_at(&self, place: LogCursor) -> Option<u64> {
        self.places.lock().number_at(place)
    }

    /// Own purges that were not read yet come behind all that is in a log that is read first.
    fn begin(&self, from: LogCursor, number: u64) {
        let outstanding = self.outstanding(None);
        self.places.lock().begin(from, number, outstanding);
        *self.last.lock() = None;
    }

    fn own(&self, id: PurgeId) -> Option<u64> {
        self.own.lock().iter().find(|own| own.id == id).map(|own| own.number)
    }

    /// It stays known: it may stand in the log twice.
    fn is_read(&self, id: PurgeId) {
        self.own.lock().iter_mut().filter(|own| own.id == id).for_each(|own| own.is_read = true);
    }

    /// The least number of a purge of this instance, other than this one, that was not read in the log yet.
    fn outstanding(&self, but: Option<PurgeId>) -> Option<u64> {
        let own = self.own.lock();
        own.iter().filter(|own| !own.is_read && Some(own.id) != but).map(|own| own.number).min()
    }
}

impl Epochs {
    /// A purge of this instance is on its way to the log.
    pub(crate) fn is_posted(&self, id: PurgeId, posted: Posted) {
        let mut own = self.shared.own.lock();
        own.iter_mut().filter(|own| own.id == id).for_each(|own| own.posted = Some(posted));
    }

    /// In the same turn in which a purge of this instance gets its number: what is read of the log meanwhile stands before it.
    pub(super) fn begin_own(&self, id: Option<PurgeId>, number: u64) {
        let Some(id) = id.filter(|_| self.purgers == Purgers::Several) else { return };
        let mut own = self.shared.own.lock();
        if own.len() == OWN_MAX {
            own.pop_front();
        }
        own.push_back(Own { id, number, posted: None, is_read: false });
    }

    /// Up to where the log was read.
    pub(crate) fn log_read(&self) -> Option<LogCursor> {
        self.shared.places.lock().read()
    }

    /// The record that stands before that.
    pub(crate) fn last_record(&self) -> Option<LastRecord> {
        *self.shared.last.lock()
    }

    /// It was read, and heard.
    pub(crate) fn has_read(&self, record: LastRecord) {
        *self.shared.last.lock() = Some(record);
    }

    /// How far the log that there is now was read before it was set back, if it was: farther than it goes; else `from`, of another log.
    pub(crate) fn read_before(&self, there: LogId, from: LogCursor) -> LogCursor {
        match there == from.id || self.shared.places.lock().has_left(there) {
            true => LogCursor { id: there, offset: LogOffset(u64::MAX) },
            false => from,
        }
    }

    /// The log is read from here on. Of what was purged before, nobody here knows.
    pub(crate) fn log_begins(&self, from: LogCursor) {
        let _turn = self.turn.lock();
        self.shared.begin(from, self.stamp().0);
    }

    /// The log was lost, or a part of it that was not read: whatever is older may have been purged, and is stale.
    pub(crate) fn log_was_lost(&self, from: LogCursor) {
        self.note(|number| {
            self.purges.add(Clause::default(), Force::Soft, number);
            self.shared.begin(from, number);
        });
    }

    /// A record was read that ends at `end`. What it takes is out of use from now on, if it is another instance's; what
    /// it was then. `key` is that of a URL.
    pub(crate) fn hear(&self, record: PurgeRecord, keys: &[&[u8]], end: LogOffset) -> Option<Arc<Kept>> {
        if self.is_known_already(record.id, end) {
            return None;
        }
        Some(self.purge_at(record, keys, Some(end)))
    }

    /// A record was read of which nothing can be here.
    pub(crate) fn hear_nothing(&self, end: LogOffset) {
        self.note(|number| self.note_place(Some(end), number));
    }

    /// Whether this instance has made a purge: then the record stands for the number that it has.
    fn is_known_already(&self, id: PurgeId, end: LogOffset) -> bool {
        let Some(number) = self.shared.own(id) else { return false };
        let _turn = self.turn.lock();
        let outstanding = self.shared.outstanding(Some(id));
        self.shared.places.lock().note(end, number, outstanding);
        // From now on it is behind nobody: whoever asks for a place finds this one.
        self.shared.is_read(id);
        true
    }

    /// All that was posted up to there was read in the log, or will never be: one purge of everything stands for it.
    pub(crate) fn own_are_read(&self, upto: Posted) {
        let mut own = self.shared.own.lock();
        let read = own.iter_mut().filter(|own| own.posted.is_some_and(|posted| posted <= upto));
        read.for_each(|own| own.is_read = true);
    }

    /// Whether the log has all purges of this instance from before a place in its own list: until then, what was asked for there would be
    /// taken by them elsewhere.
    pub(crate) fn is_settled(&self, place: LogCursor) -> bool {
        place.id != self.log || self.shared.outstanding(None).is_none_or(|number| number > place.offset.0)
    }

    pub(super) fn note_place(&self, end: Option<LogOffset>, number: u64) {
        if let Some(end) = end {
            let outstanding = self.shared.outstanding(None);
            self.shared.places.lock().note(end, number, outstanding);
        }
    }
}
