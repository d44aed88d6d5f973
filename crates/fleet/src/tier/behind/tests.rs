//! Tests the final contents of the tier, whatever fails during the writes.

use std::sync::{Arc, mpsc};
use std::thread;

use cache::RemoteTier;
use cache::entry::segmented::sample;
use cache::entry::stored::{StoredBody, StoredHead, StoredResponse, Uncacheable};
use cache::invalidation::{Invalidations, Purgers};
use cache::sample::{Asked, KEY, NOW, World, at, inline};
use caching::{ExchangeTimes, RefusalScope, Rules, Timestamp};
use message::reason::Reason;
use store::Change;
use store::backing::double::{Behaviour, Double, DoubleLimits, DoubleServer};
use store::backing::{Backing, Tracking};
use store::format::{Content, RecordKind, Run, decode_record};
use store::purge::{PurgeId, PurgeMode, PurgeRecord, PurgeTarget};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::*;
use crate::counts::TierCounts;
use crate::leases::LeaseLimits;
use crate::{Coherence, MemoryUse, StartTier, TIER_WRITERS, Tier};

const VERIFICATION: Duration = Duration::from_secs(2);
const LEASES: LeaseLimits = LeaseLimits { time: Duration::from_secs(3), wait_max: Duration::from_secs(5) };

/// One instance with running writers. Paused time advances while all tasks are idle.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) server: DoubleServer,
    pub(crate) double: Double,
    pub(crate) tier: Arc<Tier>,
    pub(crate) runtime: Runtime,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_memory(MemoryUse::Kept)
    }

    fn with_memory(memory_use: MemoryUse) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        Self::with(World::new(Rules::default()), memory_use, runtime)
    }

    fn with(world: World, memory_use: MemoryUse, runtime: Runtime) -> Self {
        let entered = runtime.enter();
        let server = DoubleServer::new(DoubleLimits::default(), 1);
        let double = server.connect(Behaviour::default());
        let backing = Arc::new(double.guarded());
        let tier = StartTier {
            backing,
            memory_use,
            coherence: Coherence::Available,
            name: String::new(),
            verification: VERIFICATION,
            leases: LEASES,
            region: None,
        };
        let tier = Arc::new(Tier::new(tier, Arc::clone(&world.memory), Arc::clone(&world.invalidations)));
        tier.log.pretend_to_be_in_step();
        for _ in 0..TIER_WRITERS {
            let tier = Arc::clone(&tier);
            runtime.spawn(async move { tier.write_behind().await });
        }
        drop(entered);
        Self { world, server, double, tier, runtime }
    }

    pub(crate) fn head(&self) -> StoredHead {
        self.head_at(NOW)
    }

    fn head_at(&self, time: Timestamp) -> StoredHead {
        self.head_of(at(time))
    }

    fn head_of(&self, times: ExchangeTimes) -> StoredHead {
        let asked = Asked { method: "GET", lines: &[] };
        self.world.stored(asked, (200, &[("cache-control", b"max-age=3600")]), times).unwrap()
    }

    pub(crate) fn put(&self, response: StoredResponse) {
        self.put_at(KEY, response);
    }

    fn put_at(&self, key: &[u8], response: StoredResponse) {
        let entry = Arc::new(self.world.entry(vec![response]));
        self.tier.update_under((key, None), |_| Change::Put(entry));
    }

    fn remove(&self) {
        self.tier.update_under((KEY, None), |_| Change::Remove);
    }

    /// Returns the record under the key, as another instance sees it.
    pub(crate) async fn there(&self) -> Option<Vec<u8>> {
        let name = names::of_record(KEY).unwrap();
        let mut loaded = self.double.load(&[&name], Tracking::Off).await.unwrap();
        loaded.remove(0).map(|loaded| loaded.bytes.to_vec())
    }

    async fn failed(&self) {
        while self.tier.counts().writes_failed == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn variants(record: &[u8]) -> usize {
    decode_record(record, RecordKind::Primary, KEY, None).unwrap().variants.len()
}

/// A put gets no answer, and takes effect only after its record has been removed.
#[test]
fn what_was_removed_does_not_come_back_by_a_put_of_before() {
    let late = Duration::from_secs(60);
    for is_tried_again in [false, true] {
        let bench = Bench::new();
        bench.runtime.block_on(async {
            bench.double.behave(Behaviour { late_puts: late, ..Behaviour::default() });
            bench.put(inline(bench.head(), b"old"));
            bench.failed().await;
            if is_tried_again {
                bench.double.behave(Behaviour::default());
                bench.tier.written(KEY).await;
                assert_eq!(bench.there().await.map(|record| variants(&record)), Some(1));
            }
            bench.remove();
            bench.double.behave(Behaviour::default());
            bench.tier.written(KEY).await;
            assert_eq!(bench.tier.counts().pending, 0);
            sleep(late).await;
            let there = bench.there().await;
            assert_eq!(there.map_or(0, |record| variants(&record)), 0, "{is_tried_again}");
            sleep(LATE_MAX).await;
            assert_eq!(bench.there().await, None, "nothing is left of it");
            bench.put(inline(bench.head(), b"new"));
            bench.tier.written(KEY).await;
            bench.remove();
            bench.tier.written(KEY).await;
            assert_eq!(bench.there().await, None, "there is no doubt any more");
        });
    }
}

/// Pending records wait until the log has a purge. There are so many pending records that the first one is due again before the last one
/// was tried. Even then, the task that reads the log has to run.
#[test]
fn many_who_wait_for_a_purge_leave_turns_to_who_reads_of_it() {
    const KEYS: usize = 2_000;
    let (told, written) = mpsc::sync_channel(1);
    // The test runs in a separate thread, because the test would never end if the other tasks never ran.
    thread::spawn(move || {
        let mut world = World::new(Rules::default());
        world.invalidations = Arc::new(Invalidations::new(Purgers::Several));
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let bench = Bench::with(world, MemoryUse::Kept, runtime);
        bench.runtime.block_on(async {
            let (log, invalidations) = (&bench.tier.log, &bench.world.invalidations);
            let record = PurgeRecord {
                id: PurgeId([1; 16]),
                at_ms: 1,
                mode: PurgeMode::Hard,
                what: PurgeTarget::Everything,
            };
            invalidations.purge(record.clone(), &[]);
            let posted = log.post(&record);
            invalidations.record_posted(record.id, posted);
            let keys = (0..KEYS).map(|key| [KEY, key.to_string().as_bytes()].concat());
            let keys: Vec<_> = keys.collect();
            keys.iter().for_each(|key| bench.put_at(key, inline(bench.head(), b"body")));
            for _ in 0..10 {
                yield_now().await;
            }
            assert_eq!(bench.tier.counts().written, 0, "it is too early");
            invalidations.own_are_read(posted);
            for key in &keys {
                bench.tier.written(key).await;
            }
            let _ = told.send(bench.tier.counts().written);
        });
    });
    assert_eq!(written.recv_timeout(Duration::from_secs(30)), Ok(KEYS as u64));
}

/// An earlier record in the tier is still removed.
#[test]
fn what_is_of_no_use_any_more_is_not_written() {
    let bench = Bench::new();
    bench.runtime.block_on(async {
        let long_ago = now().plus_ms(-10 * 86_400_000);
        bench.put(inline(bench.head_at(long_ago), b"expired"));
        bench.tier.written(KEY).await;
    });
    let TierCounts { written, removed, given_up, pending, .. } = bench.tier.counts();
    assert_eq!((written, removed, given_up, pending), (0, 1, 1, 0));
}

/// With [`MemoryUse::Forgotten`], memory keeps only records that aren't written to the tier.
#[test]
fn a_memory_that_forgets_keeps_notes_alone() {
    let bench = Bench::with_memory(MemoryUse::Forgotten);
    let memory = &bench.world.memory;
    let note = || {
        let until = now().plus_ms(60_000);
        let note = Uncacheable { until, because: Reason::TooLarge.into(), scope: RefusalScope::All };
        Some(Arc::new(CacheEntry::new(memory.budget(), Vec::new(), Some(note)).unwrap()))
    };
    bench.runtime.block_on(async {
        bench.tier.update_in_memory(KEY, &mut |_| note().map_or(Change::Keep, Change::Put));
        assert!(memory.get(KEY).is_some_and(|entry| entry.uncacheable().is_some()));
        assert_eq!(bench.tier.counts().pending, 0);
        bench.put(inline(bench.head(), b"stored"));
        assert!(memory.get(KEY).is_none());
        assert!(bench.tier.pending(KEY).is_some());
        bench.tier.written(KEY).await;
        bench.tier.update_in_memory(KEY, &mut |_| note().map_or(Change::Keep, Change::Put));
        assert_eq!(bench.there().await.map(|record| variants(&record)), Some(1), "it says nothing of it");
    });
}

/// Memory loses some cells before they are written.
#[test]
fn a_record_names_what_the_tier_was_given() {
    let bench = Bench::new();
    let body = sample::read(&bench.world.memory, "hkhhkkkk", Vec::new());
    let fill = body.group.fill();
    bench.runtime.block_on(async {
        let head = Arc::new(bench.head());
        bench.put(StoredResponse { head, body: StoredBody::Segments(Box::new(body)) });
        bench.tier.written(KEY).await;
        let record = bench.there().await.unwrap();
        let record = decode_record(&record, RecordKind::Primary, KEY, None).unwrap();
        let body = &record.variants[0].response.as_ref().unwrap().body;
        let Content::Segments(layout) = &body.content else { panic!("it lies in segments") };
        let run = |first, count| Run { first, count };
        assert_eq!((layout.fill, &layout.runs[..]), (fill, &[run(0, 1), run(2, 2)][..]));
        let has = bench.double.load_segments(fill, &[0, 1, 2, 3]).await.unwrap();
        assert_eq!(has.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true]);
    });
}

/// A response waits to be written while another instance stores a newer one for the same requests. The request times decide which is newer,
/// because the answer to the older request may arrive last.
#[test]
fn what_was_asked_for_later_stays() {
    let bench = Bench::new();
    bench.runtime.block_on(async {
        // The times of the responses are in the past by this machine's clock, because a response from the future doesn't replace another.
        let before = |ms: i64| now().plus_ms(-ms);
        bench.put(inline(bench.head_at(before(1000)), b"newer"));
        bench.tier.written(KEY).await;
        let newer = bench.there().await.unwrap();
        let late = ExchangeTimes { request: before(2000), response: before(500), clock_ahead_ms: 0 };
        let older = Arc::new(bench.world.entry(vec![inline(bench.head_of(late), b"older")]));
        let put = |entry| Pending::Put { entry, theirs: Theirs::Kept { dropped: Vec::new() }, claim: None };
        let pending = put(Arc::clone(&older));
        let end = bench.tier.carry_out(KEY, &pending).await;
        assert!(matches!(end, End::Overtaken));
        assert_eq!(bench.there().await.unwrap(), newer);
        bench.tier.record_overtaken(&older);
        assert!(bench.tier.is_suspect(&older), "its next use reads the tier's record");
        let newest = bench.world.entry(vec![inline(bench.head_at(before(0)), b"newest")]);
        let pending = put(Arc::new(newest));
        assert!(matches!(bench.tier.carry_out(KEY, &pending).await, End::Stored(_)));
        assert_ne!(bench.there().await.unwrap(), newer);
    });
}
