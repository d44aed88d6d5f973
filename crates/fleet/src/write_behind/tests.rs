use store::{Memory, MemoryConfig};
use tokio::time::Instant;

use super::*;
use crate::queue::{Pause, QueueTurn};

/// An event for one key.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Entry 0 or 1 is put. The put keeps all responses of other instances but one.
    Put(usize),
    /// Entry 0 or 1 is put after all responses were replaced.
    PutAlone(usize),
    Removed,
    /// The last operation was written.
    Done,
    /// The operation before the last one was written.
    DoneBefore,
    GivenUp,
}

use Step::{Done, DoneBefore, GivenUp, Put, PutAlone, Removed};

struct Bench {
    write_behind: WriteBehind,
    entries: [Arc<CacheEntry>; 2],
}

const KEY: &[u8] = b"key";
const LIMITS: Limits = Limits { keys_max: 2, bytes_max: 1 << 20 };

impl Bench {
    fn new() -> Self {
        let memory = Memory::<CacheEntry>::new(MemoryConfig::with_bytes_max(1 << 20));
        let entry = || Arc::new(CacheEntry::new(memory.budget(), Vec::new(), None).unwrap());
        Self { write_behind: WriteBehind::default(), entries: [entry(), entry()] }
    }

    fn put(&self, index: usize, theirs: Theirs) {
        let put = Pending::Put { entry: Arc::clone(&self.entries[index]), theirs, claim: None };
        assert_eq!(self.write_behind.note(KEY, put, LIMITS), Noted::Taken);
    }

    fn next(&self) -> Option<Box<[u8]>> {
        match self.write_behind.queue.next(Instant::now()) {
            QueueTurn::Key(key) => Some(key),
            QueueTurn::At(_) | QueueTurn::Nobody => None,
        }
    }

    fn remove(&self) {
        assert_eq!(self.write_behind.note(KEY, Pending::Removed, LIMITS), Noted::Taken);
    }

    fn take(&self, step: Step) {
        let number = || self.write_behind.pending(KEY).map_or(0, |numbered| numbered.number);
        match step {
            Put(index) => self.put(index, Theirs::Kept { dropped: vec![FillId::next()] }),
            PutAlone(index) => self.put(index, Theirs::Gone),
            Removed => self.remove(),
            Done => drop(self.write_behind.done(KEY, number())),
            DoneBefore => assert!(!self.write_behind.done(KEY, number() - 1)),
            GivenUp => self.write_behind.give_up(KEY, number()),
        }
    }

    /// State that a look-up sees.
    fn seen(&self) -> String {
        match self.write_behind.known(KEY) {
            KnownRecord::Entry(entry) => {
                let index = self.entries.iter().position(|known| Arc::ptr_eq(known, &entry));
                format!("entry {}", index.expect("one of the two"))
            }
            KnownRecord::Nothing => "nothing".to_owned(),
            KnownRecord::Unknown => "unknown".to_owned(),
        }
    }

    /// Returns the pending operation.
    fn left(&self) -> String {
        match self.write_behind.pending(KEY).map(|numbered| numbered.pending) {
            Some(Pending::Put { theirs: Theirs::Kept { dropped }, .. }) => {
                format!("put, without {}", dropped.len())
            }
            Some(Pending::Put { theirs: Theirs::Gone, .. }) => "put alone".to_owned(),
            Some(Pending::Removed) => "removed".to_owned(),
            None => "nothing".to_owned(),
        }
    }
}

fn check(steps: &[Step], seen: &str, left: &str) {
    let bench = Bench::new();
    steps.iter().for_each(|step| bench.take(*step));
    assert_eq!((bench.seen().as_str(), bench.left().as_str()), (seen, left), "{steps:?}");
    assert_eq!(bench.write_behind.pending_keys(), usize::from(left != "nothing"), "{steps:?}");
}

#[test]
fn what_is_not_written_yet_is_seen() {
    check(&[], "unknown", "nothing");
    check(&[Put(0)], "entry 0", "put, without 1");
    check(&[Put(0), Put(1)], "entry 1", "put, without 2");
    check(&[Put(0), Removed], "nothing", "removed");
    check(&[Removed], "nothing", "removed");
    check(&[Removed, Done], "unknown", "nothing");
    check(&[Put(0), DoneBefore], "entry 0", "put, without 1");
}

#[test]
fn what_was_written_is_seen_as_long_as_it_is_in_use() {
    check(&[Put(0), Done], "entry 0", "nothing");
    let mut bench = Bench::new();
    bench.take(Put(0));
    bench.take(Done);
    bench.entries[0] = Arc::clone(&bench.entries[1]);
    assert_eq!(bench.seen(), "unknown");
}

#[test]
fn what_was_removed_does_not_come_back_beside_what_is_put_then() {
    check(&[Removed, Put(0)], "entry 0", "put alone");
    check(&[PutAlone(0), Put(1)], "entry 1", "put alone");
    check(&[Removed, Done, Put(0)], "entry 0", "put, without 1");
}

#[test]
fn what_cant_be_written_is_removed() {
    check(&[Put(0), GivenUp], "nothing", "removed");
    check(&[Put(0), GivenUp, Done], "unknown", "nothing");
}

#[test]
fn each_key_is_one_writers() {
    let bench = Bench::new();
    bench.put(0, Theirs::Gone);
    bench.put(1, Theirs::Gone);
    assert_eq!(bench.next().as_deref(), Some(KEY));
    assert_eq!(bench.next(), None);
    bench.remove();
    assert_eq!(bench.next(), None, "its writer will see the new operation");
    bench.take(Done);
    bench.remove();
    assert_eq!(bench.next().as_deref(), Some(KEY));
}

#[test]
fn what_failed_waits_behind_the_others() {
    let bench = Bench::new();
    let limits = Limits { keys_max: 10, ..LIMITS };
    let note = |key: &[u8]| assert_eq!(bench.write_behind.note(key, Pending::Removed, limits), Noted::Taken);
    let (now, pause) = (Instant::now(), std::time::Duration::from_millis(250));
    let next = |now| bench.write_behind.queue.next(now);
    let key = |key: &[u8]| QueueTurn::Key(key.into());
    note(b"fails");
    note(b"other");
    assert_eq!(next(now), key(b"fails"));
    let number = bench.write_behind.pending(b"fails").unwrap().number;
    assert_eq!([(); 2].map(|()| bench.write_behind.failed(b"fails", number)), [1, 2]);
    assert_eq!(bench.write_behind.failed(b"fails", number - 1), 0, "that is nothing new");
    bench.write_behind.queue.pause(b"fails"[..].into(), Pause::Failed, now);
    assert_eq!(next(now), key(b"other"));
    assert_eq!(next(now), QueueTurn::At(now + pause));
    note(b"third");
    assert_eq!((next(now + pause), next(now + pause)), (key(b"third"), key(b"fails")));
    note(b"fails");
    assert_eq!(next(now + pause), QueueTurn::Nobody, "its writer will see the new operation");
    let number = bench.write_behind.pending(b"fails").unwrap().number;
    assert_eq!(bench.write_behind.failed(b"fails", number), 1, "it is another operation");
}

#[test]
fn removals_come_first_at_the_end() {
    let bench = Bench::new();
    let limits = Limits { keys_max: 10, ..LIMITS };
    let now = Instant::now();
    for key in [b"1", b"2", b"3", b"4"] {
        let put = Pending::Put { entry: Arc::clone(&bench.entries[0]), theirs: Theirs::Gone, claim: None };
        let next = if key[0] % 2 == 0 { Pending::Removed } else { put };
        assert_eq!(bench.write_behind.note(key, next, limits), Noted::Taken);
    }
    let first = bench.next().unwrap();
    bench.write_behind.queue.pause(first, Pause::Failed, now + std::time::Duration::from_secs(9));
    bench.write_behind.removals_first();
    let turns: Vec<_> = std::iter::from_fn(|| bench.next()).flatten().collect();
    assert_eq!((&turns[..], bench.write_behind.removals()), (&b"2431"[..], 2));
}

/// Adding a note creates a new record with the same responses.
#[test]
fn what_waits_to_be_written_is_written_with_its_note() {
    let bench = Bench::new();
    let [before, after] = &bench.entries;
    bench.take(Put(0));
    let waiting = || bench.write_behind.pending_bytes.load(Ordering::Relaxed);
    let bytes = waiting();
    let number = bench.write_behind.pending(KEY).unwrap().number;
    bench.write_behind.replace(KEY, before, after);
    assert_eq!((bench.seen(), bench.left(), waiting()), ("entry 1".into(), "put, without 1".into(), bytes));
    assert!(bench.write_behind.done(KEY, number), "its writer need not start again");
    assert_eq!((bench.seen(), waiting()), ("entry 1".into(), 0));
    bench.write_behind.replace(KEY, before, after);
    bench.write_behind.replace(b"another", before, after);
    assert_eq!(bench.write_behind.pending_keys(), 0);
}

#[test]
fn no_more_keys_wait_than_may() {
    let bench = Bench::new();
    let note = |key: &[u8]| bench.write_behind.note(key, Pending::Removed, LIMITS);
    bench.put(0, Theirs::Gone);
    assert_eq!((note(b"second"), note(b"third")), (Noted::Taken, Noted::Refused));
    assert_eq!(note(KEY), Noted::Taken, "it waits already");
    let asking = bench.write_behind.ask(b"third");
    note(b"third");
    assert!(!asking.is_current(), "the look-up is outdated nevertheless");
}

#[test]
fn no_more_bytes_wait_than_may() {
    let bench = Bench::new();
    let [first, second] = &bench.entries;
    let limits = Limits { bytes_max: first.charge().bytes(), ..LIMITS };
    let put = |key: &[u8], entry: &Arc<CacheEntry>| {
        let put = Pending::Put { entry: Arc::clone(entry), theirs: Theirs::Gone, claim: None };
        assert_eq!(bench.write_behind.note(key, put, limits), Noted::Taken);
        matches!(bench.write_behind.known(key), KnownRecord::Entry(_))
    };
    assert!(put(KEY, first) && !put(b"second", second));
    bench.take(Done);
    assert!(put(b"second", second));
}

#[test]
fn what_the_tier_tells_late_is_not_believed() {
    let bench = Bench::new();
    let asking = bench.write_behind.ask(KEY);
    assert!(asking.is_current());
    bench.take(Put(0));
    bench.take(Done);
    assert!(!asking.is_current());
    assert!(!asking.found(&bench.entries[1], |_| ()));
    assert_eq!(bench.seen(), "entry 0");
    drop(asking);
    let asking = bench.write_behind.ask(KEY);
    assert!(asking.found(&bench.entries[1], |_| ()));
    assert_eq!(bench.seen(), "entry 1");
}

#[test]
fn nothing_is_left_of_keys_that_nobody_needs() {
    let bench = Bench::new();
    for number in 0..100_000_u32 {
        let key = number.to_be_bytes();
        let entry = Arc::clone(&bench.entries[0]);
        bench.write_behind.note(&key, Pending::Put { entry, theirs: Theirs::Gone, claim: None }, LIMITS);
        // Without a removal, the test would keep the entry in use, and its slot would stay.
        bench.write_behind.note(&key, Pending::Removed, LIMITS);
        assert_eq!(bench.next().as_deref(), Some(&key[..]));
        let number = bench.write_behind.pending(&key).map(|numbered| numbered.number);
        assert!(bench.write_behind.done(&key, number.unwrap()));
        bench.write_behind.ask(&key);
    }
    let left: usize = bench.write_behind.shards.iter().map(|shard| shard.lock().by_key.len()).sum();
    assert_eq!(left, 0);
}
