//! How far the logs of other regions have been carried into the log of this one.
//!
//! All instances decide by the records of their own log alone, so several carriers at a time do no harm: what comes twice is ignored, and
//! a gap is noticed.

use std::collections::VecDeque;

use store::backing::{LastRecord, LogId, LogOffset};
use store::fleet::{Carried, CarriedWhat};

#[cfg(feature = "test-double")]
use crate::faults::{self, Fault};

/// Positions in the logs of other regions, the latest first.
#[derive(Debug, Default)]
pub struct Origins(VecDeque<Origin>);

/// Position in the log of another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The log.
    pub log: LogId,
    /// Its last record that was carried.
    pub last: LastRecord,
    /// End of the record of this region's log that says so.
    pub noted_at: LogOffset,
}

/// Effect of a carried record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedEffect {
    /// The record has been read before.
    Known,
    /// The record follows the last one.
    Next,
    /// Earlier purges are unknown: everything older counts as purged softly.
    Unknown,
}

/// Maximum number of logs. A region begins another one when its log is lost; a forgotten one is begun again.
const LOGS_MAX: usize = 64;

impl Origins {
    /// Notes a record that ends at `end`.
    pub fn note(&mut self, carried: &Carried, end: LogOffset) -> CarriedEffect {
        let known = self.position(carried.origin).map(|origin| origin.last.end());
        let effect = match (&carried.what, known) {
            #[cfg(feature = "test-double")]
            (CarriedWhat::Beginning, _) if faults::is_planted(Fault::IgnoresBeginnings) => {
                CarriedEffect::Next
            }
            (CarriedWhat::Beginning, _) => CarriedEffect::Unknown,
            // This is where the readable part of this region's log begins. Nothing stored before it is used.
            (_, None) => CarriedEffect::Next,
            (CarriedWhat::Position, Some(known)) if carried.last.end() == known => CarriedEffect::Next,
            (_, Some(known)) if carried.last.end() <= known => CarriedEffect::Known,
            (_, Some(known)) if carried.after > known => CarriedEffect::Unknown,
            (_, Some(_)) => CarriedEffect::Next,
        };
        if effect != CarriedEffect::Known {
            self.0.retain(|origin| origin.log != carried.origin);
            self.0.truncate(LOGS_MAX - 1);
            self.0.push_front(Origin { log: carried.origin, last: carried.last, noted_at: end });
        }
        effect
    }

    /// Returns how far a log has been carried.
    pub fn position(&self, log: LogId) -> Option<Origin> {
        self.0.iter().find(|origin| origin.log == log).copied()
    }

    /// Forgets everything, because this region's log is read from its beginning.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use store::backing::LogRecord;
    use store::purge::PurgeId;

    use super::*;

    const LOG: LogId = LogId([1; 16]);

    fn carried(after: u64, end: u64, what: CarriedWhat) -> Carried {
        let record = LogRecord { bytes: Bytes::new(), end: LogOffset(end) };
        let last = LastRecord::new(LogOffset(end.saturating_sub(5)), &record);
        Carried { id: PurgeId([0; 16]), origin: LOG, after: LogOffset(after), last, what }
    }

    fn purge(after: u64, end: u64) -> Carried {
        carried(after, end, CarriedWhat::Purge(Bytes::from_static(b"purge")))
    }

    fn check(records: &[Carried], effect: CarriedEffect, end: u64) {
        let mut origins = Origins::default();
        let effects: Vec<_> = records.iter().map(|record| origins.note(record, LogOffset(9))).collect();
        assert_eq!(effects.last(), Some(&effect), "{records:?}");
        assert_eq!(origins.position(LOG).unwrap().last.end(), LogOffset(end), "{records:?}");
    }

    #[test]
    fn each_record_counts_once_and_a_gap_is_noticed() {
        use CarriedEffect::{Known, Next, Unknown};
        let (position, beginning) =
            (|at| carried(at, at, CarriedWhat::Position), |at| carried(at, at, CarriedWhat::Beginning));
        check(&[purge(5, 10)], Next, 10);
        check(&[beginning(5), purge(5, 10)], Next, 10);
        check(&[beginning(5), purge(5, 10), purge(10, 20)], Next, 20);
        check(&[beginning(5), purge(5, 10), purge(5, 10)], Known, 10);
        check(&[beginning(5), purge(5, 10), purge(10, 20), purge(5, 10)], Known, 20);
        // Two carriers, one of which had skipped a record that isn't carried.
        check(&[beginning(5), purge(5, 10), purge(5, 20)], Next, 20);
        // The log of this region has lost its end, and a carrier doesn't know that.
        check(&[beginning(5), purge(10, 20)], Unknown, 20);
        check(&[beginning(5), position(10)], Unknown, 10);
        check(&[beginning(5), purge(5, 10), position(10)], Next, 10);
        check(&[beginning(5), purge(5, 10), carried(10, 30, CarriedWhat::Position)], Next, 30);
        check(&[beginning(5), purge(5, 10), purge(10, 20), position(10)], Known, 20);
        // The log of the peer was set back.
        check(&[beginning(5), purge(5, 50), beginning(10)], Unknown, 10);
        check(&[beginning(5), purge(5, 50), beginning(10), purge(10, 20)], Next, 20);
    }
}
