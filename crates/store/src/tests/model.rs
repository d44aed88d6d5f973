//! Sequences of operations, compared with a plain map: the tier may forget entries, but must not differ otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{assert_sums, expiring};
use crate::files::Extent;
use crate::sample::SampleRecord;
use crate::{
    Applied, Change, Charge, FillId, Memory, MemoryConfig, Placement, Record, Segment, SegmentId,
    allocated_bytes,
};

#[derive(Debug, Clone, Copy)]
enum Operation {
    Put { key: u8, payload_bytes: usize },
    PutExpiring { key: u8, expires_at_ms: u64 },
    Remove { key: u8 },
    Read { key: u8 },
    PutSegment { fill: u8, index: u32, bytes: usize },
    RemoveSegments { fill: u8 },
    ReadSegment { fill: u8, index: u32 },
    Reserve { bytes: usize },
    LetGo,
    Sweep { now_ms: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = || 0..40u8;
    let fill = || 0..6u8;
    let index = || 0..4u32;
    prop_oneof![
        4 => (key(), 0..9000usize).prop_map(|(key, payload_bytes)| Operation::Put { key, payload_bytes }),
        1 => (key(), 0..1000u64).prop_map(|(key, expires_at_ms)| Operation::PutExpiring { key, expires_at_ms }),
        1 => key().prop_map(|key| Operation::Remove { key }),
        3 => key().prop_map(|key| Operation::Read { key }),
        3 => (fill(), index(), 0..9000usize)
            .prop_map(|(fill, index, bytes)| Operation::PutSegment { fill, index, bytes }),
        1 => fill().prop_map(|fill| Operation::RemoveSegments { fill }),
        2 => (fill(), index()).prop_map(|(fill, index)| Operation::ReadSegment { fill, index }),
        1 => (0..20_000usize).prop_map(|bytes| Operation::Reserve { bytes }),
        1 => Just(Operation::LetGo),
        1 => (0..1000u64).prop_map(|now_ms| Operation::Sweep { now_ms }),
    ]
}

/// The tier, with a model of its maximum possible content.
struct Pair {
    memory: Memory<SampleRecord>,
    file_bytes_min: Option<usize>,
    fills: Vec<FillId>,
    records: BTreeMap<u8, Arc<SampleRecord>>,
    segments: BTreeMap<(u8, u32), Vec<u8>>,
    readers: Vec<Arc<SampleRecord>>,
    segment_readers: Vec<Segment>,
    fills_running: Vec<Charge>,
}

impl Pair {
    fn new(file_bytes_min: Option<usize>) -> Self {
        let config = MemoryConfig { file_bytes_min, ..MemoryConfig::with_bytes_max(64 << 10) };
        Self {
            memory: Memory::new(config),
            file_bytes_min,
            fills: (0..6).map(|_| FillId::next()).collect(),
            records: BTreeMap::new(),
            segments: BTreeMap::new(),
            readers: Vec::new(),
            segment_readers: Vec::new(),
            fills_running: Vec::new(),
        }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Put { key, payload_bytes } => {
                if let Ok(record) = SampleRecord::new(self.memory.budget(), &vec![key; payload_bytes]) {
                    self.put(key, &record);
                }
            }
            Operation::PutExpiring { key, expires_at_ms } => {
                if self.memory.budget().reserve_record(size_of::<SampleRecord>()).is_ok() {
                    let record = expiring(&self.memory, expires_at_ms);
                    self.put(key, &record);
                }
            }
            Operation::Remove { key } => self.remove(key),
            Operation::Read { key } => self.readers.extend(self.memory.get(&[key])),
            Operation::PutSegment { fill, index, bytes } => self.put_segment(fill, index, bytes),
            Operation::RemoveSegments { fill } => {
                self.memory.remove_segments(self.fills[usize::from(fill)], 4);
                self.segments.retain(|&(of, _), _| of != fill);
            }
            Operation::ReadSegment { fill, index } => {
                let id = SegmentId { fill: self.fills[usize::from(fill)], index };
                self.segment_readers.extend(self.memory.segment(id));
            }
            Operation::Reserve { bytes } => self.fills_running.extend(self.memory.budget().reserve(bytes)),
            Operation::LetGo => self.let_go(),
            Operation::Sweep { now_ms } => self.sweep(now_ms),
        }
    }

    fn put(&mut self, key: u8, record: &Arc<SampleRecord>) {
        // The model must not hold records that the tier has dropped; otherwise, eviction would free nothing.
        let outcome = self.memory.update(&[key], |_| Change::Put(Arc::clone(record)));
        self.records.remove(&key);
        if outcome == Applied::Stored {
            self.records.insert(key, Arc::clone(record));
        }
    }

    fn remove(&mut self, key: u8) {
        let expected = self.memory.get(&[key]).is_some();
        assert_eq!(self.memory.remove(&[key]), expected);
        self.records.remove(&key);
    }

    fn put_segment(&mut self, fill: u8, index: u32, bytes: usize) {
        let id = SegmentId { fill: self.fills[usize::from(fill)], index };
        let data = vec![index as u8; bytes];
        let Ok(segment) = Segment::copy(self.memory.budget(), Placement::File, &data) else { return };
        if self.memory.put_segment(id, segment) == crate::SegmentPut::Stored {
            self.segments.insert((fill, index), data);
        }
    }

    fn let_go(&mut self) {
        self.readers.clear();
        self.segment_readers.clear();
        self.fills_running.clear();
    }

    fn sweep(&mut self, now_ms: u64) {
        let mut sweep = self.memory.sweep();
        while !sweep.step(now_ms, 3).end {}
        self.records.retain(|_, record| record.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms));
    }

    fn check(&mut self) {
        assert_sums(&self.memory);
        let memory = &self.memory;
        let mut found = 0;
        for key in 0..40 {
            if let Some(record) = memory.get(&[key]) {
                found += 1;
                assert!(
                    self.records.get(&key).is_some_and(|last| Arc::ptr_eq(last, &record)),
                    "{key} is not the last put"
                );
            }
        }
        self.records.retain(|key, _| memory.get(&[*key]).is_some());
        let responses = || self.records.values().map(|record| record.responses());
        let notes = responses().filter(|count| *count == 0).count() as u64;
        let usage = memory.usage();
        assert_eq!((usage.entries, usage.notes), (found, notes));
        assert_eq!(usage.responses, responses().sum::<u64>());
        self.check_segments();
        self.check_live();
    }

    fn check_segments(&mut self) {
        let Self { memory, fills, segments, .. } = self;
        segments.retain(|&(fill, index), data| {
            let found = memory.segment(SegmentId { fill: fills[usize::from(fill)], index });
            assert!(found.as_ref().is_none_or(|found| found.to_bytes().unwrap() == *data));
            found.is_some()
        });
        assert_eq!(memory.usage().segments, segments.len() as u64);
    }

    /// Checks that the tier counts the bytes of each record and segment exactly once, and those of keys and table.
    fn check_live(&self) {
        let mut records: Vec<_> = self.readers.iter().chain(self.records.values()).collect();
        records.sort_by_key(|record| Arc::as_ptr(record));
        records.dedup_by_key(|record| Arc::as_ptr(record));
        let record_bytes = records.iter().map(|record| record.charge.bytes()).sum::<usize>();
        let running_bytes = self.fills_running.iter().map(Charge::bytes).sum::<usize>();
        let usage = self.memory.usage();
        let key_bytes = usage.entries * allocated_bytes(1) as u64;
        let overhead = (usage.entries + usage.segments) * crate::ENTRY_OVERHEAD_BYTES + key_bytes;
        let segments = self.segments.values().map(|data| self.segment_bytes(data)).sum::<usize>();
        let pinned_segments = self.pinned_segment_bytes();
        let held = record_bytes + running_bytes + segments + pinned_segments;
        let slack = self.memory.budget().slack_bytes();
        assert_eq!(self.memory.budget().live_bytes(), held as u64 + overhead + slack);
        assert_eq!(usage.filling_bytes, running_bytes as u64);
    }

    fn pinned_segment_bytes(&self) -> usize {
        let mut pinned: Vec<&Segment> = Vec::new();
        for segment in self.segment_readers.iter().filter(|segment| !self.is_stored(segment)) {
            if !pinned.iter().any(|seen| seen.is_same(segment)) {
                pinned.push(segment);
            }
        }
        pinned.iter().map(|segment| segment.charge().bytes()).sum()
    }

    fn is_stored(&self, segment: &Segment) -> bool {
        let stored = |&(fill, index): &(u8, u32)| {
            let id = SegmentId { fill: self.fills[usize::from(fill)], index };
            self.memory.segment(id).is_some_and(|found| found.is_same(segment))
        };
        self.segments.keys().any(stored)
    }

    fn segment_bytes(&self, data: &[u8]) -> usize {
        let is_in_file = self.file_bytes_min.is_some_and(|bytes_min| data.len() >= bytes_min);
        let bytes = if is_in_file { Extent::resident_bytes(data.len()) } else { allocated_bytes(data.len()) };
        bytes + Segment::OVERHEAD_BYTES
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_forgets_and_does_nothing_else(
        operations in vec(operation(), 1..120),
        file_bytes_min in prop_oneof![Just(None), Just(Some(2000))],
    ) {
        let mut pair = Pair::new(file_bytes_min);
        for operation in operations {
            pair.apply(operation);
            pair.check();
        }
    }
}
