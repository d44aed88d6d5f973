//! Purges of other regions in a log: `docs/internals/purge-log.md`, "Purges of other regions".

use bytes::Bytes;

use crate::backing::{LastRecord, LogId, LogOffset};
use crate::purge::{PurgeBytesError, PurgeId, PurgeRecord};

/// Record of a log that regions share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// A purge of this region.
    Purge(PurgeRecord),
    /// A purge of another region, or the position in its log.
    Carried(Carried),
}

/// Says how far the log of another region has been carried into this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Drawn for this record. Two records with the same bytes would hide that the log was set back between them.
    pub id: PurgeId,
    /// Log to which the purge was first appended.
    pub origin: LogId,
    /// Position up to which that log had been carried before. A reader that knows less has missed purges.
    pub after: LogOffset,
    /// Record of that log up to which everything has been carried. Without a record, `begins` and `end` are the same position.
    pub last: LastRecord,
    /// Content of the record.
    pub what: CarriedWhat,
}

/// Content of a carried record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedWhat {
    /// The purge in `last`, as in its first log.
    Purge(Bytes),
    /// No purge, only the position.
    Position,
    /// The beginning, at this position. Earlier purges of that log are unknown, so everything older counts as purged softly.
    Beginning,
}

const VERSION: u8 = 1;
const FORM: u8 = 4;
const PURGE: u8 = 1;
const POSITION: u8 = 2;
const BEGINNING: u8 = 3;

impl LogEntry {
    /// Decodes a record of a log.
    ///
    /// # Errors
    /// If the bytes aren't a record of this version.
    pub fn decode(bytes: &Bytes) -> Result<Self, PurgeBytesError> {
        match bytes.get(..2) {
            Some([VERSION, FORM]) => Carried::decode(bytes).map(Self::Carried),
            _ => PurgeRecord::decode(bytes).map(Self::Purge),
        }
    }
}

impl Carried {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let (kind, purge) = match &self.what {
            CarriedWhat::Purge(purge) => (PURGE, &purge[..]),
            CarriedWhat::Position => (POSITION, &[][..]),
            CarriedWhat::Beginning => (BEGINNING, &[][..]),
        };
        let head = [VERSION, FORM, kind, 0];
        [&head[..], &self.id.0, &self.origin.0, &self.after.0.to_le_bytes(), &self.last.encode(), purge]
            .concat()
            .into()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If the bytes can't have been written by [`Self::encode`].
    pub fn decode(bytes: &Bytes) -> Result<Self, PurgeBytesError> {
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or(PurgeBytesError::Length)?;
        let (id, rest) = rest.split_first_chunk().ok_or(PurgeBytesError::Length)?;
        let (origin, rest) = rest.split_first_chunk().ok_or(PurgeBytesError::Length)?;
        let (after, rest) = rest.split_first_chunk().ok_or(PurgeBytesError::Length)?;
        let (last, purge) = rest.split_first_chunk().ok_or(PurgeBytesError::Length)?;
        let what = match *head {
            [VERSION, FORM, PURGE, 0] if !purge.is_empty() => CarriedWhat::Purge(bytes.slice_ref(purge)),
            [VERSION, FORM, POSITION, 0] if purge.is_empty() => CarriedWhat::Position,
            [VERSION, FORM, BEGINNING, 0] if purge.is_empty() => CarriedWhat::Beginning,
            [VERSION, FORM, PURGE | POSITION | BEGINNING, 0] => return Err(PurgeBytesError::Length),
            [VERSION, FORM, value, 0] => {
                return Err(PurgeBytesError::Unknown { what: "the kind of a carried purge", value });
            }
            [VERSION, FORM, _, value] => return Err(PurgeBytesError::Unknown { what: "the flag", value }),
            [VERSION, value, ..] => return Err(PurgeBytesError::Unknown { what: "the form", value }),
            [version, ..] => return Err(PurgeBytesError::UnknownVersion(version)),
        };
        let after = LogOffset(u64::from_le_bytes(*after));
        Ok(Self { id: PurgeId(*id), origin: LogId(*origin), after, last: LastRecord::decode(last), what })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_carried_purge_comes_back(
            id: [u8; 16],
            origin: [u8; 16],
            after: u64,
            last: [u8; LastRecord::BYTES],
            purge: Vec<u8>,
            noise: Vec<u8>,
        ) {
            let what = [CarriedWhat::Position, CarriedWhat::Beginning, CarriedWhat::Purge(purge.into())];
            for what in what.into_iter().filter(|what| *what != CarriedWhat::Purge(Bytes::new())) {
                let last = LastRecord::decode(&last);
                let carried = Carried { id: PurgeId(id), origin: LogId(origin), after: LogOffset(after), last, what };
                prop_assert_eq!(Carried::decode(&carried.encode()), Ok(carried.clone()));
                prop_assert_eq!(LogEntry::decode(&carried.encode()), Ok(LogEntry::Carried(carried)));
            }
            // Decoding never panics, whatever the input.
            let noise = Bytes::from([&[VERSION, FORM][..], &noise].concat());
            let _ = (LogEntry::decode(&noise), Carried::decode(&noise.slice(1..)));
        }
    }
}
