//! The contract suite on the memory tier, on a plain model, and on models that break one promise each.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::contract_suite::{SuiteRecord, Violation, answer_at_once, check_tier};
use crate::{
    Applied, Budget, Change, FillId, Memory, MemoryConfig, Refusal, Segment, SegmentId, SegmentPut, Store,
    StoreError,
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    ForgetsAll,
    FoldsKeys,
    KeepsTheFirst,
    ShowsUpdatesNothing,
    DropsUpdatesInBetween,
    RemovesNothing,
    RefusesButKeepsTheOld,
    TakesAnySize,
    ReplacesSegments,
    MixesFills,
    LeavesRemovedSegments,
    Fails,
}

/// The contract in its plainest form.
struct Model {
    fault: Fault,
    records: Mutex<HashMap<Vec<u8>, Arc<SuiteRecord>>>,
    segments: Mutex<HashMap<SegmentId, Segment>>,
}

const RECORD_BYTES_MAX: usize = 4 << 10;

impl Model {
    fn new(fault: Fault) -> Self {
        Self { fault, records: Mutex::default(), segments: Mutex::default() }
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        if self.fault == Fault::FoldsKeys { key.to_ascii_lowercase() } else { key.to_vec() }
    }

    fn id(&self, id: SegmentId) -> SegmentId {
        let fill = if self.fault == Fault::MixesFills { FillId { process: 0, sequence: 0 } } else { id.fill };
        SegmentId { fill, ..id }
    }

    fn put(&self, key: Vec<u8>, record: Arc<SuiteRecord>) -> Applied {
        let mut records = self.records.lock();
        if record.payload.len() > RECORD_BYTES_MAX && self.fault != Fault::TakesAnySize {
            if self.fault != Fault::RefusesButKeepsTheOld {
                records.remove(&key);
            }
            return Applied::NotStored(Refusal::TooLarge);
        }
        match self.fault {
            Fault::ForgetsAll => {}
            Fault::KeepsTheFirst => {
                records.entry(key).or_insert(record);
            }
            _ => {
                records.insert(key, record);
            }
        }
        Applied::Stored
    }

    fn take(&self, key: &[u8]) -> bool {
        match self.fault {
            Fault::RemovesNothing => self.records.lock().contains_key(key),
            _ => self.records.lock().remove(key).is_some(),
        }
    }
}

impl Store<SuiteRecord> for Model {
    async fn load(&self, key: &[u8]) -> Result<Option<Arc<SuiteRecord>>, StoreError> {
        if self.fault == Fault::Fails {
            return Err(StoreError::StoreUnreachable("no route".into()));
        }
        Ok(self.records.lock().get(&self.key(key)).cloned())
    }

    async fn update<F>(&self, key: &[u8], mut decide: F) -> Result<Applied, StoreError>
    where
        F: FnMut(Option<&Arc<SuiteRecord>>) -> Change<SuiteRecord> + Send,
    {
        let key = self.key(key);
        let current = self.records.lock().get(&key).cloned();
        let shown = current.as_ref().filter(|_| self.fault != Fault::ShowsUpdatesNothing);
        let change = decide(shown);
        if self.fault == Fault::DropsUpdatesInBetween {
            yield_once().await;
        }
        Ok(match change {
            Change::Keep => Applied::Kept,
            Change::Put(record) => self.put(key, record),
            Change::Remove if self.take(&key) => Applied::Removed,
            Change::Remove => Applied::Absent,
        })
    }

    async fn remove(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.take(&self.key(key)))
    }

    async fn load_segment(&self, id: SegmentId) -> Result<Option<Segment>, StoreError> {
        Ok(self.segments.lock().get(&self.id(id)).cloned())
    }

    async fn put_segment(&self, id: SegmentId, segment: Segment) -> Result<SegmentPut, StoreError> {
        let mut segments = self.segments.lock();
        let id = self.id(id);
        if segments.contains_key(&id) && self.fault != Fault::ReplacesSegments {
            return Ok(SegmentPut::AlreadyThere);
        }
        segments.insert(id, segment);
        Ok(SegmentPut::Stored)
    }

    async fn remove_segments(&self, fill: FillId, count: u32) -> Result<(), StoreError> {
        if self.fault == Fault::LeavesRemovedSegments {
            return Ok(());
        }
        let mut segments = self.segments.lock();
        (0..count).for_each(|index| drop(segments.remove(&self.id(SegmentId { fill, index }))));
        Ok(())
    }
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut yielded, true) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// Polls until the end; the model's futures wake themselves.
fn drive<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn check_model(fault: Fault) -> Result<(), Violation> {
    let budget = Budget::new(64 << 20, 64 << 20, None);
    drive(check_tier(&Model::new(fault), &budget, RECORD_BYTES_MAX + 1))
}

#[test]
fn memory_keeps_the_contract() {
    for file_bytes_min in [None, Some(0), Some(100_000)] {
        let config = MemoryConfig { file_bytes_min, ..MemoryConfig::with_bytes_max(32 << 20) };
        let memory = Memory::new(config);
        let over = (32 << 20) / 8;
        answer_at_once(check_tier(&memory, memory.budget(), over)).unwrap();
    }
}

#[test]
fn the_model_keeps_the_contract() {
    check_model(Fault::None).unwrap();
}

#[test]
fn the_suite_finds_each_fault() {
    let faults = [
        (Fault::ForgetsAll, "load returns what the last update put"),
        (Fault::FoldsKeys, "every byte of a key counts"),
        (Fault::KeepsTheFirst, "load returns what the last update put"),
        (Fault::ShowsUpdatesNothing, "an update sees the current record"),
        (Fault::DropsUpdatesInBetween, "concurrent updates lose nothing"),
        (Fault::RemovesNothing, "a removed record is gone"),
        (Fault::RefusesButKeepsTheOld, "a refused record does not leave the older one"),
        (Fault::TakesAnySize, "a record over the limit is refused"),
        (Fault::ReplacesSegments, "a second segment of one id is told"),
        (Fault::LeavesRemovedSegments, "a removed segment is a hole"),
        (Fault::MixesFills, "one fill's removal leaves the other's segments"),
    ];
    for (fault, promise) in faults {
        let Err(Violation::BrokenPromise(found)) = check_model(fault) else {
            panic!("{fault:?} was not found");
        };
        assert_eq!(found, promise, "{fault:?}");
    }
    assert!(matches!(check_model(Fault::Fails), Err(Violation::TierFailed(_))));
}
