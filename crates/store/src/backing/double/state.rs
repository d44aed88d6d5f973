//! State of the double: a plain model of a tier, without a clock or randomness.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::super::lease::Token;
use super::super::log::{LOG_APPEND_BYTES_MAX, LogCursor, LogId, LogOffset, LogPart, LogRecord, LogState};
use super::super::record::Version;
use crate::{FillId, SegmentId};

/// Connection of an instance.
pub(super) type LinkId = u32;

#[derive(Debug, Clone)]
pub(super) struct State {
    records: BTreeMap<Box<[u8]>, Entry<Version>>,
    segments: BTreeMap<SegmentId, Entry<()>>,
    leases: BTreeMap<Box<[u8]>, HeldLease>,
    tracked: BTreeMap<Box<[u8]>, BTreeSet<LinkId>>,
    tracked_max: usize,
    log: Log,
    bytes_max: usize,
    versions: u64,
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
struct Entry<V> {
    bytes: Bytes,
    version: V,
    ends_at_ms: u64,
}

#[derive(Debug, Clone)]
pub(super) struct HeldLease {
    pub(super) token: Token,
    pub(super) note: Box<[u8]>,
    pub(super) ends_at_ms: u64,
}

#[derive(Debug, Clone)]
struct Log {
    state: LogState,
    records: VecDeque<LogRecord>,
}

/// Change to be announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Record { key: Box<[u8]>, told: Vec<LinkId> },
    Log,
}

/// Record to put.
pub(super) struct NewRecord {
    pub(super) bytes: Bytes,
    pub(super) ends_at_ms: u64,
}

impl State {
    pub(super) fn new(bytes_max: usize, tracked_max: usize, log: LogId) -> Self {
        Self {
            records: BTreeMap::new(),
            segments: BTreeMap::new(),
            leases: BTreeMap::new(),
            tracked: BTreeMap::new(),
            tracked_max,
            log: Log::new(log),
            bytes_max,
            versions: 0,
            changes: Vec::new(),
        }
    }

    /// Removes expired entries and leases.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let ended = self.records.iter().filter(|(_, entry)| entry.ends_at_ms <= now_ms);
        let ended: Vec<_> = ended.map(|(key, _)| key.clone()).collect();
        for key in ended {
            self.remove(&key);
        }
        self.segments.retain(|_, entry| entry.ends_at_ms > now_ms);
        self.leases.retain(|_, held| held.ends_at_ms > now_ms);
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn record(&self, key: &[u8]) -> Option<(Bytes, Version)> {
        self.records.get(key).map(|entry| (entry.bytes.clone(), entry.version))
    }

    pub(super) fn record_ends_at_ms(&self, key: &[u8]) -> Option<u64> {
        self.records.get(key).map(|entry| entry.ends_at_ms)
    }

    /// Follows a key for a connection. Returns `false` if there is no room.
    pub(super) fn track(&mut self, key: &[u8], link: LinkId) -> bool {
        if !self.tracked.contains_key(key) && self.tracked.len() >= self.tracked_max {
            return false;
        }
        self.tracked.entry(key.into()).or_default().insert(link);
        true
    }

    pub(super) fn untrack_all(&mut self, link: LinkId) {
        self.tracked.retain(|_, links| {
            links.remove(&link);
            !links.is_empty()
        });
    }

    pub(super) fn put(&mut self, key: &[u8], record: NewRecord) -> Version {
        self.versions += 1;
        let version = Version(self.versions);
        let entry = Entry { bytes: record.bytes, version, ends_at_ms: record.ends_at_ms };
        self.records.insert(key.into(), entry);
        self.note_change(key);
        while self.bytes() > self.bytes_max && self.records.len() + self.segments.len() > 1 {
            self.evict(self.versions);
        }
        version
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let removed = self.records.remove(key).is_some();
        if removed {
            self.note_change(key);
        }
        removed
    }

    fn note_change(&mut self, key: &[u8]) {
        let told = self.tracked.remove(key).unwrap_or_default().into_iter().collect();
        self.changes.push(Change::Record { key: key.into(), told });
    }

    fn bytes(&self) -> usize {
        let records = self.records.values().map(|entry| entry.bytes.len());
        records.chain(self.segments.values().map(|entry| entry.bytes.len())).sum()
    }

    /// Evicts a record or a segment.
    pub(super) fn evict(&mut self, which: u64) {
        let entries = self.records.len() + self.segments.len();
        let Some(place) = which.checked_rem(entries as u64).map(|place| place as usize) else { return };
        if let Some(key) = self.records.keys().nth(place).cloned() {
            self.remove(&key);
        } else if let Some(id) = self.segments.keys().nth(place - self.records.len()).copied() {
            self.segments.remove(&id);
        }
    }

    pub(super) fn segment(&self, id: SegmentId) -> Option<Bytes> {
        self.segments.get(&id).map(|entry| entry.bytes.clone())
    }

    /// Stores a segment, and returns `true`, unless its id is already in use.
    pub(super) fn put_segment(&mut self, id: SegmentId, bytes: Bytes, ends_at_ms: u64) -> bool {
        if self.segments.contains_key(&id) {
            return false;
        }
        self.segments.insert(id, Entry { bytes, version: (), ends_at_ms });
        while self.bytes() > self.bytes_max && self.records.len() + self.segments.len() > 1 {
            self.evict(u64::from(id.index));
        }
        true
    }

    pub(super) fn extend_segments(&mut self, fill: FillId, indexes: &[u32], ends_at_ms: u64) -> usize {
        let mut found = 0;
        for &index in indexes {
            if let Some(entry) = self.segments.get_mut(&SegmentId { fill, index }) {
                entry.ends_at_ms = ends_at_ms;
                found += 1;
            }
        }
        found
    }

    pub(super) fn remove_segments(&mut self, fill: FillId, indexes: &[u32]) {
        indexes.iter().for_each(|&index| drop(self.segments.remove(&SegmentId { fill, index })));
    }

    pub(super) fn lease(&self, key: &[u8]) -> Option<&HeldLease> {
        self.leases.get(key)
    }

    pub(super) fn is_held(&self, key: &[u8], token: Token) -> bool {
        self.lease(key).is_some_and(|held| held.token == token)
    }

    pub(super) fn hold(&mut self, key: &[u8], held: HeldLease) {
        self.leases.insert(key.into(), held);
    }

    pub(super) fn renew(&mut self, key: &[u8], ends_at_ms: u64) {
        if let Some(held) = self.leases.get_mut(key) {
            held.ends_at_ms = ends_at_ms;
        }
    }

    pub(super) fn free(&mut self, key: &[u8]) {
        self.leases.remove(key);
    }

    pub(super) fn log(&self) -> LogState {
        self.log.state
    }

    pub(super) fn append(&mut self, records: &[Bytes]) -> LogState {
        for bytes in records {
            self.log.state.end.0 += bytes.len() as u64 + RECORD_HEADER_BYTES;
            self.log.records.push_back(LogRecord { bytes: bytes.clone(), end: self.log.state.end });
        }
        self.changes.push(Change::Log);
        self.log.state
    }

    pub(super) fn read_log(&self, from: LogCursor) -> LogPart {
        let Log { state, records } = &self.log;
        let mut bytes = 0;
        let fits = |record: &&LogRecord| {
            bytes += record.bytes.len();
            bytes <= LOG_APPEND_BYTES_MAX
        };
        let wanted = records.iter().filter(|record| state.id == from.id && record.end > from.offset);
        LogPart { state: *state, records: wanted.take_while(fits).cloned().collect() }
    }

    pub(super) fn trim_log(&mut self, floor: LogCursor) -> LogState {
        let Log { state, records } = &mut self.log;
        if state.id == floor.id && state.floor < floor.offset {
            state.floor = floor.offset.min(state.end);
            records.retain(|record| record.end > state.floor);
            self.changes.push(Change::Log);
        }
        self.log.state
    }

    pub(super) fn rename_log(&mut self, read: LogCursor, next: impl FnOnce() -> LogId) -> LogState {
        let state = &mut self.log.state;
        if state.id == read.id && state.end < read.offset {
            state.id = next();
            self.changes.push(Change::Log);
        }
        self.log.state
    }

    /// Returns to an earlier state, as a fail-over to a replica would. Later puts still get versions that were
    /// never used.
    pub(super) fn set_back(&mut self, then: &Self) {
        let versions = self.versions;
        *self = Self { versions, tracked: BTreeMap::new(), changes: Vec::new(), ..then.clone() };
        self.changes.push(Change::Log);
    }

    /// Restores a record, as a put that takes effect late would.
    pub(super) fn set_record_back(&mut self, then: &Self, key: &[u8]) {
        if let Some(entry) = then.records.get(key) {
            let record = NewRecord { bytes: entry.bytes.clone(), ends_at_ms: entry.ends_at_ms };
            self.put(key, record);
        }
    }

    /// Replaces the log with an empty one, as a fail-over to an empty server would.
    pub(super) fn lose_log(&mut self, next: LogId) {
        self.log = Log::new(next);
        self.changes.push(Change::Log);
    }
}

impl Log {
    fn new(id: LogId) -> Self {
        let state = LogState { id, floor: LogOffset(0), end: LogOffset(0) };
        Self { state, records: VecDeque::new() }
    }
}

/// Overhead of a log record in bytes, so that even an empty record has its own position.
const RECORD_HEADER_BYTES: u64 = 8;
