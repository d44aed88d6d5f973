//! Tests leases and responses fetched under them, with failures of the tier and of other instances.

use cache::RemoteTier;
use cache::entry::stored::{CacheEntry, Uncacheable};
use cache::sample::{KEY, inline};
use caching::RefusalScope;
use message::clock::now;
use message::reason::Reason;
use store::Change;
use store::backing::double::{Behaviour, Double};
use store::backing::{Backing, Lease, Tracking};
use store::format::{NoteKind, RecordKind, decode_record};
use telemetry::trace::TraceFlags;
use tokio::time::sleep;

use super::*;
use crate::answer::RemoteState;
use crate::tier::behind::tests::Bench;

const DEADLINE: Duration = Duration::from_millis(50);
const SILENT: Behaviour = Behaviour { silent_permille: 1000, ..Behaviour::GOOD };
const UNREACHABLE: Behaviour = Behaviour { unreachable_permille: 1000, ..Behaviour::GOOD };

impl Bench {
    async fn take(&self) -> Taking {
        let known = self.tier.pending(KEY);
        let wanted = WantedLease { key: KEY, variant: b"", known: known.as_ref(), trace: None };
        self.tier.take_lease(wanted).await
    }

    async fn taken(&self) -> Arc<HeldLease> {
        match self.take().await {
            Taking::Taken(held) => held,
            Taking::Held(_) | Taking::Failed => panic!("no other instance wants it"),
        }
    }

    fn put_under(&self, held: &Arc<HeldLease>, body: &'static [u8]) -> Arc<CacheEntry> {
        let entry = Arc::new(self.world.entry(vec![inline(self.head(), body)]));
        let put = Arc::clone(&entry);
        self.tier.update_under((KEY, Some(held)), |_| Change::Put(put));
        entry
    }

    /// Returns the kind of the note under the key, and the number of responses in the same record.
    async fn note(&self) -> Option<(Option<NoteKind>, usize)> {
        let record = self.there().await?;
        let record = decode_record(&record, RecordKind::Primary, KEY, None).unwrap();
        Some((record.note.map(|note| note.kind), record.variants.len()))
    }
}

/// Takes the lease for another instance.
async fn other_takes(other: &Double, mode: LeaseMode) -> Option<Lease> {
    let name = names::of_record(KEY).unwrap();
    let request = LeaseRequest { ttl: Duration::from_secs(3), note: b"", mode };
    match other.take_lease(&name, request).await.unwrap() {
        TakeOutcome::Taken(lease) => Some(lease),
        TakeOutcome::Held { .. } => None,
    }
}

#[test]
fn a_response_frees_the_lease_and_news_of_it_are_written_as_anything_else() {
    let bench = Bench::new();
    let other = bench.server.connect(Behaviour::GOOD);
    bench.runtime.block_on(async {
        let held = bench.taken().await;
        sleep(Duration::from_secs(10)).await;
        assert!(other_takes(&other, LeaseMode::IfFree).await.is_none(), "it is renewed");
        bench.put_under(&held, b"first");
        bench.tier.written(KEY).await;
        assert!(other_takes(&other, LeaseMode::IfFree).await.is_some());
        let before = bench.there().await;
        bench.put_under(&held, b"second");
        bench.tier.written(KEY).await;
        assert_ne!(bench.there().await, before);
        drop(held);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(bench.note().await, Some((None, 1)), "there is nothing more to say");
    });
    assert_eq!(bench.tier.counts().leases_lost, 0);
}

/// A record that other instances have changed in the meantime is read again.
#[test]
fn what_was_read_under_a_lease_is_not_read_again_to_write() {
    let bench = Bench::new();
    bench.runtime.block_on(async {
        let written_upon = async |there: RemoteState| {
            let held = bench.taken().await;
            held.attach(there);
            let before = bench.double.operations();
            bench.put_under(&held, b"stored");
            bench.tier.written(KEY).await;
            assert_eq!(bench.note().await, Some((None, 1)));
            bench.double.operations() - before
        };
        let unread = written_upon(RemoteState::Unread).await;
        let record =
            bench.tier.record(&names::of_record(KEY).unwrap(), Tracking::Off).await.unwrap().unwrap();
        assert_eq!(written_upon(RemoteState::Record(record.clone())).await, unread - 1);
        for outdated in [RemoteState::Nothing, RemoteState::Record(record)] {
            assert_eq!(written_upon(outdated).await, unread, "one write in vain, and no reading");
        }
    });
}

#[test]
fn what_was_fetched_under_a_lost_lease_is_not_written() {
    let bench = Bench::new();
    let other = bench.server.connect(Behaviour::GOOD);
    bench.runtime.block_on(async {
        let held = bench.taken().await;
        other_takes(&other, LeaseMode::Overwrite).await.unwrap();
        for _ in 0..2 {
            let entry = bench.put_under(&held, b"late");
            bench.tier.written(KEY).await;
            assert_eq!(bench.there().await, None);
            assert!(bench.tier.is_suspect(&entry), "the tier is queried before its next use");
        }
        drop(held);
        sleep(Duration::from_millis(100)).await;
        assert!(other_takes(&other, LeaseMode::IfFree).await.is_none(), "the other instance still holds it");
    });
    assert_eq!(bench.tier.counts().leases_lost, 1);
}

/// If one of two combined changes comes after another instance's change, it is unknown which responses are
/// still valid.
#[test]
fn a_late_response_that_is_to_be_written_with_another_change_leaves_nothing() {
    let bench = Bench::new();
    let other = bench.server.connect(Behaviour::GOOD);
    bench.runtime.block_on(async {
        bench.put(inline(bench.head(), b"before"));
        bench.tier.written(KEY).await;
        let held = bench.taken().await;
        other_takes(&other, LeaseMode::Overwrite).await.unwrap();
        bench.double.behave(UNREACHABLE);
        bench.put(inline(bench.head(), b"other"));
        bench.put_under(&held, b"late");
        bench.double.behave(Behaviour::GOOD);
        bench.tier.written(KEY).await;
        assert_eq!(bench.note().await.map_or(0, |(_, variants)| variants), 0);
    });
    assert_eq!(bench.tier.counts().given_up, 1);
}

#[test]
fn a_lease_that_is_dropped_is_freed_with_a_word() {
    let bench = Bench::new();
    let other = bench.server.connect(Behaviour::GOOD);
    bench.runtime.block_on(async {
        drop(bench.taken().await);
        assert_eq!(awaited(&bench, &other).await, Some((Some(NoteKind::GaveUp), 0)));

        bench.put(inline(bench.head(), b"stored"));
        bench.tier.written(KEY).await;
        drop(bench.taken().await);
        assert_eq!(awaited(&bench, &other).await, Some((Some(NoteKind::GaveUp), 1)), "what is there stays");

        let held = bench.taken().await;
        let until = now().plus_ms(60_000);
        held.note(Uncacheable { until, because: Reason::TooLarge.into(), scope: RefusalScope::All });
        drop(held);
        assert_eq!(awaited(&bench, &other).await, Some((Some(NoteKind::NotShared), 1)));

        let before = bench.there().await;
        let held = bench.taken().await;
        held.give_back_unused();
        drop(held);
        awaited(&bench, &other).await;
        assert_eq!(bench.there().await, before);
    });
}

/// Other instances wait for a lease until it expires.
#[test]
fn a_lease_is_given_back_as_long_as_it_lasts() {
    let part = str::from_utf8(KEY).expect("it is text");
    for (away_ms, late, never) in [(30, 0, 0), (2500, 1, 0), (4000, 0, 1)] {
        let bench = Bench::new();
        let other = bench.server.connect(Behaviour::GOOD);
        bench.runtime.block_on(async {
            let held = bench.taken().await;
            bench.double.behave(Behaviour { contended_keys: part, ..Behaviour::GOOD });
            drop(held);
            sleep(Duration::from_millis(away_ms)).await;
            assert_eq!(other_takes(&other, LeaseMode::IfFree).await.is_some(), never == 1, "{away_ms} ms");
            bench.double.behave(Behaviour::GOOD);
            sleep(Duration::from_millis(40)).await;
            assert_eq!(other_takes(&other, LeaseMode::IfFree).await.is_some(), never == 0, "{away_ms} ms");
        });
        let counts = bench.tier.counts();
        assert_eq!((counts.leases_released_late, counts.leases_not_released), (late, never), "{away_ms} ms");
    }
}

/// Returns the record after the lease is freed. Another instance takes the lease and lets it expire.
async fn awaited(bench: &Bench, other: &Double) -> Option<(Option<NoteKind>, usize)> {
    let name = names::of_record(KEY).unwrap();
    let began = Instant::now();
    let loaded = other.load(&[&name], Tracking::Off).await.unwrap().remove(0);
    let seen = loaded.map(|loaded| loaded.version);
    other.wait(&name, seen, Duration::from_secs(60)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "no instance waits until it expires");
    assert!(other_takes(other, LeaseMode::IfFree).await.is_some());
    sleep(Duration::from_secs(4)).await;
    bench.note().await
}

/// Reading the record under the key doesn't wait for the lease, and sees everything that was written before the lease was taken.
#[test]
fn a_lease_comes_with_what_lies_there_in_one_round_trip() {
    const ROUND_TRIP: Duration = Duration::from_millis(20);
    let bench = Bench::new();
    let far = Behaviour { latency: ROUND_TRIP, ..Behaviour::GOOD };
    bench.runtime.block_on(async {
        bench.put_under(&bench.taken().await, b"first");
        bench.tier.written(KEY).await;
        // This instance reads the record once more, so that the tier follows it.
        sleep(Duration::from_millis(100)).await;
        bench.double.behave(far);
        let began = Instant::now();
        let wanted = WantedLease { key: KEY, variant: b"", known: None, trace: None };
        let asker = Asker { rules: bench.world.rules(), site_key: None };
        let (taking, looked) = bench.tier.take_lease_and_look(wanted, asker).await;
        assert!(began.elapsed() <= ROUND_TRIP + Duration::from_millis(2), "{:?}", began.elapsed());
        let looked = looked.expect("the tier answers");
        assert!(matches!(looked.remote, RemoteState::Record(_)), "{looked:?}");
        assert!(matches!(taking, Taking::Taken(_)));
    });
}

/// In the note of a lease, older versions write the id of the forward, and newer versions may leave out
/// words.
#[test]
fn what_others_say_of_a_lease_is_read_by_its_place() {
    let ours = "00000000000000ab 0000000000000000 cache-1";
    let trace = TraceContext::root(TraceFlags::SAMPLED);
    let read = |note: &str| holder_of(note.as_bytes(), ours);
    let older = format!("00000000000000ab 0123456789abcdef {} cache-2", trace.to_traceparent());
    assert_eq!(read(&older), Holder { is_same_variant: true, trace: Some(trace) });
    assert_eq!(read(ours), Holder { is_same_variant: true, trace: None });
    for note in ["", "00000000000000cd", "00000000000000cd 0000000000000000"] {
        assert_eq!(read(note), Holder { is_same_variant: false, trace: None }, "{note:?}");
    }
}

/// With a failing tier, no request waits longer than one deadline, and no lease is taken.
#[test]
fn a_tier_in_trouble_costs_one_deadline() {
    for trouble in [SILENT, UNREACHABLE] {
        let bench = Bench::new();
        bench.runtime.block_on(async {
            bench.double.behave(trouble);
            let began = Instant::now();
            assert!(matches!(bench.take().await, Taking::Failed));
            assert!(began.elapsed() <= DEADLINE + Duration::from_millis(2), "{:?}", began.elapsed());
            let (began, limit) = (Instant::now(), Duration::from_secs(1));
            assert_eq!(bench.tier.await_other(KEY, &mut None, limit).await, LeaseEvent::Failed);
            assert!(began.elapsed() <= limit + DEADLINE + Duration::from_millis(2), "{:?}", began.elapsed());
        });
    }
}

/// A key has one lease for all its variants, with a note that identifies the variant.
#[test]
fn a_lease_tells_for_which_variant_it_is_and_who_asks() {
    let bench = Bench::new();
    bench.runtime.block_on(async {
        let trace = Some(TraceContext::root(TraceFlags::SAMPLED));
        let wanted = |variant| WantedLease { key: KEY, variant, known: None, trace: None };
        let leader = WantedLease { trace, ..wanted(b"en") };
        let Taking::Taken(_held) = bench.tier.take_lease(leader).await else {
            panic!("no other instance wants it");
        };
        for (variant, is_same_variant) in [(&b"en"[..], true), (b"de", false)] {
            match bench.tier.take_lease(wanted(variant)).await {
                Taking::Held(found) => assert_eq!(found, Holder { is_same_variant, trace }),
                Taking::Taken(_) | Taking::Failed => panic!("it is held"),
            }
        }
    });
}
