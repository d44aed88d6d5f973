//! Encoding of the log, as specified in `docs/internals/remote-tier.md`.

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::backing::{LOG_APPEND_BYTES_MAX, LogId, LogOffset, LogRecord, LogState};

/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 32;
/// Length of the header of each record in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 8;
/// Number of bytes per read, enough for the longest record.
pub(super) const READ_BYTES: usize = LOG_APPEND_BYTES_MAX + RECORD_HEADER_BYTES;

/// Header of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: LogId,
    /// Offset of the first byte after the header.
    pub(crate) floor: LogOffset,
}

/// Damage in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogError {
    #[error("wrong checksum of a log record")]
    Checksum,
    #[error("log record exceeds the limit or the end of the log")]
    Length,
}

impl Header {
    /// Returns the header of a new log with this id.
    pub(super) fn new(id: [u8; 16]) -> Self {
        Self { id: LogId(id), floor: LogOffset(0) }
    }

    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..MARK.len()].copy_from_slice(&MARK);
        bytes[8..24].copy_from_slice(&self.id.0);
        bytes[24..].copy_from_slice(&self.floor.0.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if the bytes aren't a log of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MARK)?;
        let (id, floor) = rest.split_first_chunk()?;
        Some(Self { id: LogId(*id), floor: LogOffset(u64::from_le_bytes(floor.try_into().ok()?)) })
    }

    /// Returns the extent of a log of this length with this header.
    pub(crate) fn state(self, log_bytes: u64) -> LogState {
        let behind = log_bytes.saturating_sub(HEADER_BYTES as u64);
        LogState { id: self.id, floor: self.floor, end: LogOffset(self.floor.0.saturating_add(behind)) }
    }

    /// Returns the index in the value of the byte at `offset`; offsets below the floor count as the floor.
    pub(super) fn place(self, offset: LogOffset) -> u64 {
        HEADER_BYTES as u64 + offset.0.saturating_sub(self.floor.0)
    }
}

/// Encodes records for an append; `None` if they are too long.
pub(crate) fn encode(records: &[Bytes]) -> Option<Vec<u8>> {
    let content: usize = records.iter().map(Bytes::len).sum();
    let bytes = content + records.len() * RECORD_HEADER_BYTES;
    if content > LOG_APPEND_BYTES_MAX || bytes > APPEND_BYTES_MAX {
        return None;
    }
    let mut frames = Vec::with_capacity(bytes);
    for record in records {
        let length = u32::try_from(record.len()).ok()?;
        frames.extend_from_slice(&length.to_le_bytes());
        frames.extend_from_slice(&checksum(record).to_le_bytes());
        frames.extend_from_slice(record);
    }
    Some(frames)
}

/// Decodes the complete records in `read`, which begins at `start`, up to a total of `limit` bytes.
pub(crate) fn decode(read: &Bytes, start: LogOffset, limit: usize) -> Result<Vec<LogRecord>, LogError> {
    let mut records = Vec::new();
    let (mut at, mut content) = (0, 0);
    while let Some(header) = read.get(at..at + RECORD_HEADER_BYTES) {
        let (length, check) = header.split_at(4);
        let length = number(length) as usize;
        if length > LOG_APPEND_BYTES_MAX {
            return Err(LogError::Length);
        }
        let (begin, end) = (at + RECORD_HEADER_BYTES, at + RECORD_HEADER_BYTES + length);
        if end > read.len() || content + length > limit {
            break;
        }
        let bytes = read.slice(begin..end);
        if checksum(&bytes) != number(check) {
            return Err(LogError::Checksum);
        }
        (at, content) = (end, content + length);
        records.push(LogRecord { bytes, end: LogOffset(start.0.saturating_add(end as u64)) });
    }
    // The longest record would fit into a full read, so the log must end within this record.
    let is_torn = records.is_empty() && !read.is_empty() && read.len() < READ_BYTES;
    if is_torn { Err(LogError::Length) } else { Ok(records) }
}

/// Returns the end of the last complete record in `read`, which begins at `start`, that ends at or before `upto`.
pub(super) fn last_boundary(read: &[u8], start: LogOffset, upto: LogOffset) -> Result<LogOffset, LogError> {
    let mut at = start;
    let mut rest = read;
    while let Some((length, behind)) = rest.split_at_checked(4) {
        let length = number(length) as usize;
        if length > LOG_APPEND_BYTES_MAX {
            return Err(LogError::Length);
        }
        let end = LogOffset(at.0.saturating_add((RECORD_HEADER_BYTES + length) as u64));
        match behind.get(RECORD_HEADER_BYTES - 4 + length..) {
            Some(next) if end <= upto => (at, rest) = (end, next),
            _ => break,
        }
    }
    Ok(at)
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Returns the checksum of a record. It covers the length, so that zeros aren't a valid record.
fn checksum(bytes: &[u8]) -> u32 {
    XxHash3_64::oneshot_with_seed(bytes.len() as u64, bytes) as u32
}

/// First bytes of a log: "LAR", version 1, kind L.
const MARK: [u8; 8] = *b"LAR\x01L\0\0\0";
/// Maximum length of an append with its headers: at least 8,192 empty records.
const APPEND_BYTES_MAX: usize = 2 * LOG_APPEND_BYTES_MAX;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: LogOffset = LogOffset(1000);

    fn texts(texts: &[&'static str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
    }

    #[test]
    fn a_log_begins_with_its_header() {
        let header = Header { id: LogId([7; 16]), floor: LogOffset(0x0102) };
        let bytes = header.encode();
        assert_eq!(bytes[..8], *b"LAR\x01L\0\0\0");
        assert_eq!((&bytes[8..24], &bytes[24..]), (&[7; 16][..], &[2, 1, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(Header::decode(&bytes), Some(header));
        for foreign in [&bytes[..31], b"", b"LAR\x02L\0\0\0", &[0; 32]] {
            assert_eq!(Header::decode(foreign), None, "{foreign:?}");
        }
        let state = header.state(40);
        assert_eq!((state.floor, state.end), (LogOffset(0x0102), LogOffset(0x010a)));
        assert_eq!((header.place(LogOffset(0x0103)), header.place(LogOffset(0))), (33, 32));
    }

    #[test]
    fn records_are_as_the_page_says() {
        let frames = encode(&texts(&["ab"])).unwrap();
        assert_eq!((&frames[..4], &frames[8..]), (&[2, 0, 0, 0][..], &b"ab"[..]));
        assert_eq!(frames[4..8], (XxHash3_64::oneshot_with_seed(2, b"ab") as u32).to_le_bytes());
        assert_eq!(encode(&[]), Some(Vec::new()));
        assert_eq!(encode(&[Bytes::from(vec![0; LOG_APPEND_BYTES_MAX + 1])]), None);
        assert_eq!(encode(&vec![Bytes::new(); 1 << 20]), None);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        let frames = encode(&texts(&["one", "two"])).unwrap();
        let check = |bytes: Vec<u8>, expected| {
            assert_eq!(decode(&bytes.into(), START, usize::MAX).map(|records| records.len()), expected);
        };
        check(frames.clone(), Ok(2));
        check(frames[..frames.len() - 1].to_vec(), Ok(1));
        check(frames[..5].to_vec(), Err(LogError::Length));
        check(vec![0; 16], Err(LogError::Checksum));
        check(vec![0xff; 16], Err(LogError::Length));
        check(frames[1..].to_vec(), Err(LogError::Length));
        let mut changed = frames;
        changed[9] ^= 1;
        check(changed, Err(LogError::Checksum));
    }

    proptest! {
        #[test]
        fn records_come_back(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
            cut in 0usize..2000,
            limit in 0usize..500,
        ) {
            let records: Vec<Bytes> = records.into_iter().map(Bytes::from).collect();
            let frames = Bytes::from(encode(&records).unwrap());
            let all = decode(&frames, START, usize::MAX).unwrap();
            prop_assert_eq!(all.iter().map(|record| record.bytes.clone()).collect::<Vec<_>>(), records);
            prop_assert_eq!(all.last().map_or(START, |last| last.end), LogOffset(START.0 + frames.len() as u64));
            let part = frames.slice(..cut.min(frames.len()));
            if let Ok(some) = decode(&part, START, limit) {
                prop_assert!(all.starts_with(&some));
                prop_assert!(some.iter().map(|record| record.bytes.len()).sum::<usize>() <= limit);
            }
        }
    }
}
