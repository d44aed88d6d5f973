//! The log of a tier: records in an order that is the same for all.

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::Refusal;

/// What one append and one read hold at most.
pub const LOG_APPEND_BYTES_MAX: usize = 64 << 10;

/// Names one log: one that was lost and begun anew has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(pub [u8; 16]);

/// A place in a log. It grows with each record, in steps that only the tier knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogOffset(pub u64);

/// A place in a certain log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCursor {
    /// Which log.
    pub id: LogId,
    /// Up to where: of the records that end at or before it, nothing is wanted.
    pub offset: LogOffset,
}

/// What there is of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogState {
    /// Which log.
    pub id: LogId,
    /// Below it, nothing is left.
    pub floor: LogOffset,
    /// Where the last record ends.
    pub end: LogOffset,
}

/// How a log as it is now relates to what was read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// All that came since can be read.
    Whole,
    /// Some of what came since is below the floor.
    Trimmed,
    /// It is another log, or a part of what was read is gone: nothing is known about what came since.
    Lost,
}

impl LogState {
    /// How it relates to what was read up to `cursor`.
    pub fn continues(&self, cursor: &LogCursor) -> Continuity {
        if self.id != cursor.id || self.end < cursor.offset {
            return Continuity::Lost;
        }
        if cursor.offset < self.floor { Continuity::Trimmed } else { Continuity::Whole }
    }

    /// Its end, to read on from.
    pub fn cursor(&self) -> LogCursor {
        LogCursor { id: self.id, offset: self.end }
    }
}

/// What became of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// The records are in the log, and end where it ends or before.
    Taken {
        /// Behind the records.
        state: LogState,
        /// How safe they are.
        safety: Safety,
    },
    /// They are beyond [`LOG_APPEND_BYTES_MAX`].
    NotStored(Refusal),
}

/// Whether something outlives a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// As many nodes have it as the operator asked for.
    AsConfigured,
    /// Not yet, or not in time.
    Behind,
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// As it was appended.
    pub bytes: Bytes,
    /// Behind it.
    pub end: LogOffset,
}

/// Some records of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// As it was when they were read. Where it is not the log that was asked for, there are no records.
    pub state: LogState,
    /// In order. If the last one ends before the log does, there are more.
    pub records: Vec<LogRecord>,
}

impl LogPart {
    /// How it relates to what was read up to `cursor`, where it was read from the beginning of the `last` record before that on: a log that was
    /// set back, and has grown again to where it was, has another one in its place.
    pub fn continues(&self, cursor: &LogCursor, last: &LastRecord) -> Continuity {
        match self.state.continues(cursor) {
            // Where it was trimmed up to here, there is nothing to compare.
            Continuity::Whole
                if self.state.floor <= last.begins
                    && !self.records.first().is_some_and(|record| last.is(record)) =>
            {
                Continuity::Lost
            }
            continuity => continuity,
        }
    }
}

/// The record of the log that was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRecord {
    /// Where it begins.
    pub begins: LogOffset,
    end: LogOffset,
    hash: u64,
}

impl LastRecord {
    /// What tells it apart.
    pub fn new(begins: LogOffset, record: &LogRecord) -> Self {
        Self { begins, end: record.end, hash: XxHash3_64::oneshot(&record.bytes) }
    }

    /// Whether it is this one.
    fn is(&self, record: &LogRecord) -> bool {
        *self == Self::new(self.begins, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: u8, offset: u64, expected: Continuity) {
        let state = LogState { id: LogId([1; 16]), floor: LogOffset(10), end: LogOffset(20) };
        let cursor = LogCursor { id: LogId([id; 16]), offset: LogOffset(offset) };
        assert_eq!(state.continues(&cursor), expected, "{cursor:?}");
    }

    #[test]
    fn a_log_continues_what_was_read_of_it() {
        check(1, 9, Continuity::Trimmed);
        check(1, 10, Continuity::Whole);
        check(1, 20, Continuity::Whole);
        check(1, 21, Continuity::Lost);
        check(2, 20, Continuity::Lost);
        check(2, 9, Continuity::Lost);
    }
}
