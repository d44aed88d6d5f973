//! Log of a tier: records in the same order for all readers.

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::Refusal;

/// Maximum number of bytes in one append or one read.
pub const LOG_APPEND_BYTES_MAX: usize = 64 << 10;

/// Maximum number of bytes of a log that a trimming or renaming keeps: a log is replaced as a whole.
pub const LOG_KEPT_BYTES_MAX: u64 = 4 << 20;

/// Id of one log. A log that was lost and created anew has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(pub [u8; 16]);

/// Position in a log. It increases with each record, in steps that only the tier knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogOffset(pub u64);

/// Position in a particular log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCursor {
    /// Id of the log.
    pub id: LogId,
    /// Position: the reader knows the records that end at or before it.
    pub offset: LogOffset,
}

/// Extent of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogState {
    /// Id of the log.
    pub id: LogId,
    /// Start of the log; records below it are gone.
    pub floor: LogOffset,
    /// End of the last record.
    pub end: LogOffset,
}

/// Relation of the current log to a reader's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// All later records can be read.
    Whole,
    /// Some later records are below the floor.
    Trimmed,
    /// The log is another one, or part of the records that were read is gone, so nothing is known about later records.
    Lost,
}

impl LogState {
    /// Returns the relation of the log to a reader that has read up to `cursor`.
    pub fn continues(&self, cursor: &LogCursor) -> Continuity {
        if self.id != cursor.id || self.end < cursor.offset {
            return Continuity::Lost;
        }
        if cursor.offset < self.floor { Continuity::Trimmed } else { Continuity::Whole }
    }

    /// Returns the end of the log, from which reading can continue.
    pub fn cursor(&self) -> LogCursor {
        LogCursor { id: self.id, offset: self.end }
    }
}

/// Result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The records are in the log, at or before the end of this state.
    Taken(LogState),
    /// The records exceed [`LOG_APPEND_BYTES_MAX`].
    NotStored(Refusal),
}

/// Whether records survive the loss of the server that took them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// Most servers have them, or there are no replicas.
    Complete,
    /// Too few replicas have confirmed them in time.
    Incomplete,
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Bytes as appended.
    pub bytes: Bytes,
    /// End of the record.
    pub end: LogOffset,
}

/// Some records of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// State of the log when they were read. If it isn't the requested log, `records` is empty.
    pub state: LogState,
    /// Records in order. If the last one ends before the end of the log, further records can be read.
    pub records: Vec<LogRecord>,
}

impl LogPart {
    /// Returns the relation of the log to a reader that has read up to `cursor`. The part must have been read from the start of `last`,
    /// the record that ends at `cursor`. If the log was set back and has grown to the same length again, it has another record there.
    pub fn continues(&self, cursor: &LogCursor, last: &LastRecord) -> Continuity {
        match self.state.continues(cursor) {
            // If the log was trimmed up to here, there is nothing to compare.
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

/// The last record of the log that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRecord {
    /// Start of the record.
    pub begins: LogOffset,
    end: LogOffset,
    hash: u64,
}

impl LastRecord {
    /// Remembers a record by its position and hash.
    pub fn new(begins: LogOffset, record: &LogRecord) -> Self {
        Self { begins, end: record.end, hash: XxHash3_64::oneshot(&record.bytes) }
    }

    /// Returns a position without a record before it.
    pub fn nothing(at: LogOffset) -> Self {
        Self { begins: at, end: at, hash: 0 }
    }

    /// Returns whether there is a record to compare.
    pub fn is_there(&self) -> bool {
        self.begins < self.end
    }

    /// Returns the end of the record.
    pub fn end(&self) -> LogOffset {
        self.end
    }

    /// Encodes the positions and the hash.
    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let words = [self.begins.0, self.end.0, self.hash].map(u64::to_le_bytes);
        words.concat().try_into().expect("three words")
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(*bytes[8 * at..].first_chunk().expect("three words"));
        Self { begins: LogOffset(word(0)), end: LogOffset(word(1)), hash: word(2) }
    }

    /// Length of the encoding in bytes.
    pub(crate) const BYTES: usize = 24;

    /// Returns whether `record` is this one.
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
