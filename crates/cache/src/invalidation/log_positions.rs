//! Mapping between the invalidation numbers of this process and positions in the purge log that several instances share.
//!
//! Each process numbers invalidations in its own order. A record of the log gets a number when it is read, and a number is translated to a
//! log position for other instances. Both translations err on the safe side: they may treat too much as purged, never too little.

use std::collections::VecDeque;

use store::backing::{LogCursor, LogId, LogOffset};

/// Maps numbers to positions and back; see the module.
#[derive(Debug, Default)]
pub(super) struct LogPositions {
    log: Option<Log>,
    /// Earlier logs that this process has read, latest first.
    left: VecDeque<LogId>,
}

#[derive(Debug)]
struct Log {
    id: LogId,
    /// Start of the known part of the log: this process doesn't know purges before it.
    known_from: LogOffset,
    /// End of the part that was read.
    read: LogOffset,
    /// Like the fields of [`Point`], for the start of the known part; 0 once points have been dropped.
    after: u64,
    before: u64,
    /// Points in order: none of their values ever decreases.
    points: VecDeque<Point>,
}

/// End of a record.
#[derive(Clone, Copy, Debug)]
struct Point {
    end: LogOffset,
    /// Upper limit of the numbers of all records up to this point. A request with this number or a later one was sent after those records.
    after: u64,
    /// Less than the number of every later record, because later records may purge responses that were requested at this point.
    before: u64,
}

/// Maximum number of points. Positions before the oldest point get the oldest number.
const POINTS_MAX: usize = 4096;
/// Maximum number of remembered earlier logs. A process changes to another log when a log is lost.
const LEFT_MAX: usize = 64;

impl LogPositions {
    /// Starts reading a log at `from`. `number` is the number of this process's last invalidation, and `outstanding` is as in
    /// [`Self::note`].
    pub(super) fn begin(&mut self, from: LogCursor, number: u64, outstanding: Option<u64>) {
        let LogCursor { id, offset } = from;
        let before = before_outstanding(number, outstanding);
        let points = VecDeque::new();
        if let Some(log) = self.log.take().filter(|log| log.id != id) {
            self.left.truncate(LEFT_MAX - 1);
            self.left.push_front(log.id);
        }
        self.log = Some(Log { id, known_from: offset, read: offset, after: number, before, points });
    }

    /// Returns whether this process left this log earlier for another one. If such a log is in use again, it was set back to an earlier
    /// state.
    pub(super) fn mark_left(&self, id: LogId) -> bool {
        self.left.contains(&id)
    }

    /// Records the number of the record that ends at `end`. `outstanding` is the lowest number of this instance's own records that have not
    /// been read back yet, if any.
    pub(super) fn note(&mut self, end: LogOffset, number: u64, outstanding: Option<u64>) {
        let Some(log) = &mut self.log else { return };
        log.read = end;
        let (last_after, last_before) =
            log.points.back().map_or((log.after, log.before), |point| (point.after, point.before));
        let after = number.max(last_after);
        let before = before_outstanding(after, outstanding).max(last_before);
        if log.points.len() == POINTS_MAX {
            // Requests before this point count as older than all numbers.
            log.points.pop_front();
            (log.after, log.before) = (0, 0);
        }
        log.points.push_back(Point { end, after, before });
    }

    /// Returns the end of the part of the log that was read.
    pub(super) fn read(&self) -> Option<LogCursor> {
        self.log.as_ref().map(|log| LogCursor { id: log.id, offset: log.read })
    }

    /// Returns the log position for requests that were sent when this was the last number; `None` if this process hadn't read the log by
    /// then.
    pub(super) fn place_of(&self, number: u64) -> Option<LogCursor> {
        let log = self.log.as_ref()?;
        let count = log.points.partition_point(|point| point.after <= number);
        let offset = match count.checked_sub(1) {
            Some(last) => log.points[last].end,
            None if number >= log.after && log.beginning_is_known() => log.known_from,
            None => return None,
        };
        Some(LogCursor { id: log.id, offset })
    }

    /// Returns a number that is less than the number of any purge after the position; `None` if this process doesn't know these purges.
    pub(super) fn number_at(&self, place: LogCursor) -> Option<u64> {
        let log = self.log.as_ref().filter(|log| log.id == place.id && log.known_from <= place.offset)?;
        let count = log.points.partition_point(|point| point.end <= place.offset);
        Some(count.checked_sub(1).map_or(log.before, |last| log.points[last].before))
    }
}

impl Log {
    /// Returns whether no point has been dropped.
    fn beginning_is_known(&self) -> bool {
        self.points.len() < POINTS_MAX || self.after > 0
    }
}

/// Returns the number for requests at a position where `number` was the last. The result is less than the numbers of outstanding records,
/// because these may purge the responses to those requests.
fn before_outstanding(number: u64, outstanding: Option<u64>) -> u64 {
    outstanding.map_or(number, |next| number.min(next - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> LogCursor {
        LogCursor { id: LogId([1; 16]), offset: LogOffset(offset) }
    }

    fn read() -> LogPositions {
        let mut places = LogPositions::default();
        places.begin(at(100), 5, None);
        places.note(LogOffset(110), 6, None);
        // Number 7 belongs to an invalidation that is in no log.
        places.note(LogOffset(120), 8, None);
        places
    }

    #[test]
    fn numbers_stand_for_places_that_are_not_later() {
        let places = read();
        for (number, expected) in
            [(4, None), (5, Some(100)), (6, Some(110)), (7, Some(110)), (8, Some(120)), (9, Some(120))]
        {
            assert_eq!(places.place_of(number), expected.map(at), "{number}");
        }
        assert_eq!(LogPositions::default().place_of(9), None);
    }

    #[test]
    fn places_stand_for_numbers_that_are_not_later() {
        let places = read();
        for (offset, expected) in [
            (99, None),
            (100, Some(5)),
            (109, Some(5)),
            (110, Some(6)),
            (119, Some(6)),
            (120, Some(8)),
            (500, Some(8)),
        ] {
            assert_eq!(places.number_at(at(offset)), expected, "{offset}");
        }
        let other = LogCursor { id: LogId([2; 16]), ..at(110) };
        assert_eq!(places.number_at(other), None);
        assert_eq!(LogPositions::default().number_at(at(1)), None);
    }

    /// An instance's own records may be read in another order than that of their numbers.
    #[test]
    fn what_is_still_to_come_is_not_behind() {
        let mut places = LogPositions::default();
        places.begin(at(100), 5, None);
        // Numbers 6 and 7 have been assigned, and 7 is read first.
        places.note(LogOffset(110), 7, Some(6));
        places.note(LogOffset(120), 6, None);
        assert_eq!([100, 110, 120].map(|offset| places.number_at(at(offset))), [5, 5, 7].map(Some));
        let found = [5, 6, 7].map(|number| places.place_of(number));
        assert_eq!(found, [100, 100, 120].map(|offset| Some(at(offset))));
    }

    /// A log begins while this instance's own purges wait to be written to it.
    #[test]
    fn what_is_still_to_come_is_not_behind_the_beginning() {
        let mut places = LogPositions::default();
        places.begin(at(100), 8, Some(6));
        assert_eq!((places.number_at(at(100)), places.place_of(8)), (Some(5), Some(at(100))));
        places.note(LogOffset(110), 9, Some(6));
        assert_eq!([100, 110].map(|offset| places.number_at(at(offset))), [5, 5].map(Some));
        places.note(LogOffset(120), 6, None);
        assert_eq!([110, 120].map(|offset| places.number_at(at(offset))), [5, 9].map(Some));
    }

    #[test]
    fn another_log_says_nothing_of_the_first() {
        let mut places = read();
        let other = LogCursor { id: LogId([2; 16]), ..at(0) };
        places.begin(other, 8, None);
        assert_eq!((places.number_at(at(110)), places.number_at(other)), (None, Some(8)));
        assert_eq!((places.place_of(7), places.place_of(8)), (None, Some(other)));
        assert_eq!(places.read(), Some(other));
        assert!(places.mark_left(at(0).id) && !places.mark_left(other.id));
    }

    /// In a long log in order, no position is judged by a later number than it should be.
    #[test]
    fn a_long_log_is_judged_by_older_numbers() {
        let mut places = LogPositions::default();
        places.begin(at(0), 0, None);
        let count = 3 * POINTS_MAX as u64;
        (1..=count).for_each(|number| places.note(LogOffset(10 * number), number, None));
        for offset in 0..=10 * count {
            let number = places.number_at(at(offset)).unwrap();
            assert!(number <= offset / 10);
            let is_recent = offset / 10 > count - POINTS_MAX as u64;
            assert!(!is_recent || number == offset / 10, "{offset}: {number}");
        }
        assert_eq!(places.place_of(3), None);
        assert_eq!(places.place_of(count), Some(at(10 * count)));
    }
}
