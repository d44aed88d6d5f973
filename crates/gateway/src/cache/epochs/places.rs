//! Which numbers of this process stand for which places in the log that several share.
//!
//! Each process numbers what it takes out of use in its own order. What it reads in the log gets a number when it is read, and what others are told
//! of a number is a place in the log. Both ways err to the older side: too much may be taken for purged.

use std::collections::VecDeque;

use store::backing::{LogCursor, LogId, LogOffset};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Places {
    log: Option<Log>,
    /// Logs that were read before, the last one first.
    left: VecDeque<LogId>,
}

#[derive(Debug)]
struct Log {
    id: LogId,
    /// Below it nobody here knows what was purged.
    known_from: LogOffset,
    /// Up to where it was read.
    read: LogOffset,
    /// What was known when it was read first, as of a point; 0 where points were forgotten.
    after: u64,
    before: u64,
    /// Nothing in it ever falls.
    points: VecDeque<Point>,
}

/// Where a record ends.
#[derive(Clone, Copy, Debug)]
struct Point {
    end: LogOffset,
    /// At least the number of every record up to here: what was asked for at this number was asked for after them.
    after: u64,
    /// Less than the number of every record behind it: what was asked for here may be taken by them.
    before: u64,
}

/// What is further back is judged by the oldest number there is.
const POINTS_MAX: usize = 4096;
/// A log is left when it was lost.
const LEFT_MAX: usize = 64;

impl Places {
    /// A log is read from `from` on; `number` is that of the last invalidation here. `outstanding` is as of [`Self::note`].
    pub(crate) fn begin(&mut self, from: LogCursor, number: u64, outstanding: Option<u64>) {
        let LogCursor { id, offset } = from;
        let before = before_outstanding(number, outstanding);
        let points = VecDeque::new();
        self.leave(id);
        self.log = Some(Log { id, known_from: offset, read: offset, after: number, before, points });
    }

    fn leave(&mut self, for_another: LogId) {
        if let Some(log) = self.log.take().filter(|log| log.id != for_another) {
            self.left.truncate(LEFT_MAX - 1);
            self.left.push_front(log.id);
        }
    }

    /// Whether a log was read before, and another one in its place. If it is there again, it was set back.
    pub(crate) fn has_left(&self, id: LogId) -> bool {
        self.left.contains(&id)
    }

    /// The record that ends here has this number. `outstanding` is the least number of those that are still to come, if they have one already.
    pub(crate) fn note(&mut self, end: LogOffset, number: u64, outstanding: Option<u64>) {
        let Some(log) = &mut self.log else { return };
        log.read = end;
        let (last_after, last_before) =
            log.points.back().map_or((log.after, log.before), |point| (point.after, point.before));
        let after = number.max(last_after);
        let before = before_outstanding(after, outstanding).max(last_before);
        if log.points.len() == POINTS_MAX {
            // Whatever was asked for before it is older than all numbers.
            log.points.pop_front();
            (log.after, log.before) = (0, 0);
        }
        log.points.push_back(Point { end, after, before });
    }

    /// Up to where the log was read.
    pub(crate) fn read(&self) -> Option<LogCursor> {
        self.log.as_ref().map(|log| LogCursor { id: log.id, offset: log.read })
    }

    /// The place of what was asked for when this was the last number. `None` where that was before the log was read.
    pub(crate) fn place_of(&self, number: u64) -> Option<LogCursor> {
        let log = self.log.as_ref()?;
        let count = log.points.partition_point(|point| point.after <= number);
        let offset = match count.checked_sub(1) {
            Some(last) => log.points[last].end,
            None if number >= log.after && log.beginning_is_known() => log.known_from,
            None => return None,
        };
        Some(LogCursor { id: log.id, offset })
    }

    /// A number such that whatever was purged after that place has a greater one. `None`: nobody here knows what was.
    pub(crate) fn number_at(&self, place: LogCursor) -> Option<u64> {
        let log = self.log.as_ref().filter(|log| log.id == place.id && log.known_from <= place.offset)?;
        let count = log.points.partition_point(|point| point.end <= place.offset);
        Some(count.checked_sub(1).map_or(log.before, |last| log.points[last].before))
    }
}

impl Log {
    /// Whether no point was forgotten.
    fn beginning_is_known(&self) -> bool {
        self.points.len() < POINTS_MAX || self.after > 0
    }
}

/// What was asked for at a place where this was the last number may be taken by what is still to come behind it.
fn before_outstanding(number: u64, outstanding: Option<u64>) -> u64 {
    outstanding.map_or(number, |next| number.min(next - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> LogCursor {
        LogCursor { id: LogId([1; 16]), offset: LogOffset(offset) }
    }

    fn read() -> Places {
        let mut places = Places::default();
        places.begin(at(100), 5, None);
        places.note(LogOffset(110), 6, None);
        // Number 7 was given to something that is in no log.
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
        assert_eq!(Places::default().place_of(9), None);
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
        assert_eq!(Places::default().number_at(at(1)), None);
    }

    /// Records of this instance may be read in another order than that of their numbers.
    #[test]
    fn what_is_still_to_come_is_not_behind() {
        let mut places = Places::default();
        places.begin(at(100), 5, None);
        // Numbers 6 and 7 were given, and 7 is read first.
        places.note(LogOffset(110), 7, Some(6));
        places.note(LogOffset(120), 6, None);
        assert_eq!([100, 110, 120].map(|offset| places.number_at(at(offset))), [5, 5, 7].map(Some));
        let found = [5, 6, 7].map(|number| places.place_of(number));
        assert_eq!(found, [100, 100, 120].map(|offset| Some(at(offset))));
    }

    /// A log is begun while purges of this instance wait to be written into it.
    #[test]
    fn what_is_still_to_come_is_not_behind_the_beginning() {
        let mut places = Places::default();
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
        assert!(places.has_left(at(0).id) && !places.has_left(other.id));
    }

    /// Of many records, all in order, each place is judged by no later number than it should be.
    #[test]
    fn a_long_log_is_judged_by_older_numbers() {
        let mut places = Places::default();
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
