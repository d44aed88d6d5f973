//! Tests writing segments to a tier and loading them, even if the tier fails in between.

use cache::entry::segmented::sample::{COMPLETE_BYTES, content, empty, memory, read};
use store::SegmentGroup;
use store::backing::double::{Behaviour, Double, DoubleLimits, DoubleServer};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::counts::TierCounts;

const HOUR: Duration = Duration::from_secs(3600);
const ALL: ByteRange = ByteRange { first: 0, last: COMPLETE_BYTES - 1 };

fn server() -> DoubleServer {
    DoubleServer::new(DoubleLimits::default(), 1)
}

fn tier(double: &Double, budget: &Arc<Budget>) -> TierSegments {
    TierSegments::new(Arc::new(double.guarded()), Arc::clone(budget), Arc::default())
}

fn whole() -> Vec<u8> {
    content(ALL)
}

fn bytes_of(body: &Segmented, range: ByteRange) -> Option<Vec<u8>> {
    let pieces = body.pieces(range.first, range.last + 1)?;
    Some(pieces.into_iter().flat_map(|piece| piece.into_bytes().unwrap()).collect())
}

/// Returns the number of a group's segments that memory holds.
fn held(group: &SegmentGroup) -> usize {
    (0..group.count()).filter(|index| group.segment(*index).is_some()).count()
}

#[tokio::test]
async fn what_one_instance_gives_another_loads() {
    let server = server();
    let (memory, other) = (memory(), memory());
    let body = read(&memory, "hhhhhhhh", Vec::new());
    let giving = tier(&server.connect(Behaviour::GOOD), memory.budget());
    let layout = giving.store(&body, HOUR).await.unwrap().unwrap();
    assert_eq!(Some(&layout), body.layout().as_ref());

    let loading = tier(&server.connect(Behaviour::GOOD), other.budget());
    let body = Segmented::restored(&other, &layout, Some(COMPLETE_BYTES)).unwrap();
    let ranges = [ByteRange { first: 3, last: 4 }, ByteRange { first: 20, last: 33 }];
    let some = loading.complete(&body, &ranges, Placement::Heap).await.unwrap();
    for range in ranges {
        assert_eq!(bytes_of(&some, range), Some(content(range)));
    }
    assert_eq!(held(&body.group), 4, "memory keeps what was loaded, and nothing else was");
    let all = loading.complete(&body, &[ALL], Placement::Heap).await.unwrap();
    assert_eq!(bytes_of(&all, ALL), Some(whole()));
    drop((all, some));
    assert_eq!(bytes_of(&body, ALL), Some(whole()), "from memory now");
}

#[tokio::test]
async fn fragments_are_given_and_loaded_too() {
    let (server, memory) = (server(), memory());
    let range = ByteRange { first: 17, last: 21 };
    let segment = Segment::copy(memory.budget(), Placement::Heap, &content(range)).unwrap();
    let body = empty(&memory, Some(COMPLETE_BYTES)).followed().with_part(&memory, 17, vec![segment], None);
    let segments = tier(&server.connect(Behaviour::GOOD), memory.budget());
    let layout = segments.store(&body, HOUR).await.unwrap().unwrap();
    assert_eq!((layout.runs.len(), layout.fragments.len()), (0, 1));
    drop(body);
    let body = Segmented::restored(&memory, &layout, Some(COMPLETE_BYTES)).unwrap();
    assert!(body.pieces(17, 22).is_none());
    let body = segments.complete(&body, &[range], Placement::Heap).await.unwrap();
    assert_eq!(bytes_of(&body, range), Some(content(range)));
    assert!(segments.complete(&body, &[ALL], Placement::Heap).await.is_none(), "the rest is a hole");
}

/// Each case has the cells 0 to 7 of a body: those in the tier before the write, those in memory, and those
/// in the tier after the write.
#[tokio::test]
async fn only_what_is_lacking_is_given_and_the_rest_lives_on() {
    let half = HOUR / 2;
    for (before, body, after) in [
        ("--------", "hhhhhhhh", vec![(0, 8)]),
        ("hhhhhhhh", "kkkkkkkk", vec![(0, 8)]),
        ("hh-hhhh-", "kkhkkkkh", vec![(0, 8)]),
        ("h-h-h-h-", "kkkkkkkk", vec![(0, 1), (2, 1), (4, 1), (6, 1)]),
        ("hh----hh", "hhhkkhhh", vec![(0, 3), (5, 3)]),
        ("--------", "kkkkkkkk", vec![]),
    ] {
        tokio::time::pause();
        let (server, memory) = (server(), memory());
        let segments = tier(&server.connect(Behaviour::GOOD), memory.budget());
        let body = read(&memory, body, Vec::new());
        let known = read(&memory, before, Vec::new()).layout().unwrap();
        for index in known.runs.iter().flat_map(|run| run.first..run.first + run.count) {
            let first = u64::from(index) * 8;
            let range = ByteRange { first, last: (first + 7).min(COMPLETE_BYTES - 1) };
            let given = Given {
                bytes: &|_| Some(content(range).into()),
                fill: body.group.fill(),
                cell_bytes: 8,
                ttl: HOUR,
            };
            assert!(segments.put(&given, index).await.unwrap());
        }
        tokio::time::advance(half).await;
        let layout = segments.store(&body, HOUR).await.unwrap().unwrap();
        let runs: Vec<_> = layout.runs.iter().map(|run| (run.first, run.count)).collect();
        assert_eq!(runs, after, "{before}");
        // The lifetime of all acknowledged cells begins with the write.
        tokio::time::advance(half + Duration::from_secs(60)).await;
        let indexes: Vec<u32> = (0..8).collect();
        let loaded = segments.load_indexes(layout.fill, &indexes, 8, Placement::Heap).await.unwrap();
        let found: Vec<bool> = loaded.iter().map(Option::is_some).collect();
        let expected: Vec<bool> = indexes
            .iter()
            .map(|at| after.iter().any(|(first, count)| (*first..first + count).contains(at)))
            .collect();
        assert_eq!(found, expected, "{before}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_small_body_is_one_segment() {
    let (server, memory) = (server(), memory());
    let segments = tier(&server.connect(Behaviour::GOOD), memory.budget());
    let (fill, data) = (FillId::next(), Bytes::from(whole()));
    assert!(segments.store_small(fill, 64 << 10, &data, HOUR).await.unwrap());
    assert!(segments.store_small(fill, 64 << 10, &data, HOUR).await.unwrap(), "again");
    let loaded = segments.load_indexes(fill, &[0, 1], 64 << 10, Placement::Heap).await.unwrap();
    assert_eq!(loaded[0].as_ref().unwrap().to_bytes().unwrap(), data);
    assert!(loaded[1].is_none());
}

/// Clients that read the same body at the same time cause a single load.
#[tokio::test]
async fn many_who_lack_the_same_ask_once() {
    let (server, memory) = (server(), memory());
    let double = server.connect(Behaviour { latency: Duration::from_millis(1), ..Behaviour::GOOD });
    let segments = Arc::new(tier(&double, memory.budget()));
    let body = read(&memory, "hhhhhhhh", Vec::new());
    let layout = segments.store(&body, HOUR).await.unwrap().unwrap();
    drop(body);
    let body = Segmented::restored(&memory, &layout, Some(COMPLETE_BYTES)).unwrap();
    let absent = body.absent_at(0, COMPLETE_BYTES, LOAD_BYTES_MAX).unwrap();
    let before = double.operations();
    let mut clients = JoinSet::new();
    for _ in 0..100 {
        let (segments, absent) = (Arc::clone(&segments), absent.clone());
        clients.spawn(async move { segments.load_together(&absent, Placement::Heap).await });
    }
    let loaded = clients.join_all().await;
    let of_one = |loaded: Option<Vec<Option<Segment>>>| {
        let segments = loaded.unwrap().into_iter();
        segments.flat_map(|segment| segment.unwrap().to_bytes().unwrap()).collect::<Vec<_>>()
    };
    assert!(loaded.into_iter().all(|loaded| of_one(loaded) == whole()));
    assert_eq!(double.operations() - before, 1);
}

/// No load waits longer than the tier's deadline, and a failed load only leaves a hole.
#[tokio::test(start_paused = true)]
async fn a_tier_in_trouble_has_nothing_in_time() {
    let latency = Duration::from_millis(40);
    let deadline = Duration::from_millis(500);
    let table = [
        (Behaviour { latency, ..Behaviour::GOOD }, true, latency),
        (Behaviour { latency: deadline * 2, ..Behaviour::GOOD }, false, deadline),
        (Behaviour { silent_permille: 1000, ..Behaviour::GOOD }, false, deadline),
        (Behaviour { unreachable_permille: 1000, ..Behaviour::GOOD }, false, Duration::ZERO),
    ];
    for (behaviour, is_loaded, time) in table {
        let (server, memory) = (server(), memory());
        let double = server.connect(Behaviour::GOOD);
        let segments = tier(&double, memory.budget());
        let body = read(&memory, "hhhhhhhh", Vec::new());
        let layout = segments.store(&body, HOUR).await.unwrap().unwrap();
        drop(body);
        double.behave(behaviour);
        let body = Segmented::restored(&memory, &layout, Some(COMPLETE_BYTES)).unwrap();
        let begun = Instant::now();
        let loaded = segments.complete(&body, &[ALL], Placement::Heap).await;
        assert_eq!((loaded.is_some(), begun.elapsed()), (is_loaded, time), "{behaviour:?}");
        drop(loaded);
        assert_eq!(memory.usage().filling_bytes, 0, "no room is kept");
        if !is_loaded {
            let body = read(&memory, "hhhhhhhh", Vec::new());
            assert!(segments.store(&body, HOUR).await.is_err(), "and nothing is acknowledged: {behaviour:?}");
        }
    }
}

#[tokio::test]
async fn what_is_not_the_segment_is_missing_and_goes_where_it_is_of_no_use_to_anybody() {
    let id = |index| SegmentId { fill: FillId { process: 1, sequence: 2 }, index };
    let encoded = |index| {
        let mut out = Vec::new();
        let data = &whole()[8..16];
        encode_segment(&SegmentFrame { id: id(index), cell_bytes: 8, data }, None, &mut out).unwrap();
        out
    };
    let mut newer = encoded(0);
    newer[3] = 200;
    let mut damaged = encoded(0);
    damaged[30] ^= 1;
    // Each case has the bytes under the id, and four results: whether the bytes are loaded, whether they stay
    // in the tier, and how many count as corrupt and as forged.
    for (what, bytes, expected) in [
        ("right", encoded(0), (true, true, 0, 0)),
        ("garbage", b"nothing that is ours, of any kind".to_vec(), (false, false, 1, 0)),
        ("damaged", damaged, (false, false, 1, 0)),
        ("empty", Vec::new(), (false, false, 1, 0)),
        ("of another index", encoded(1), (false, true, 0, 0)),
        ("of another version", newer, (false, true, 0, 0)),
    ] {
        let (server, memory) = (server(), memory());
        let double = server.connect(Behaviour::GOOD);
        double.put_segment(id(0), bytes.into(), HOUR).await.unwrap();
        let segments = tier(&double, memory.budget());
        let loaded = segments.load_indexes(id(0).fill, &[0], 8, Placement::Heap).await.unwrap();
        let stays = double.load_segments(id(0).fill, &[0]).await.unwrap()[0].is_some();
        let TierCounts { corrupt, forged, .. } = segments.counts.read(0, 0);
        let found = (loaded[0].is_some(), stays, corrupt, forged);
        assert_eq!(found, expected, "{what}");
    }
}

/// Segments are neither loaded nor written without room in the budget.
#[tokio::test]
async fn there_is_room_for_what_is_on_its_way() {
    let (server, memory) = (server(), memory());
    let segments = tier(&server.connect(Behaviour::GOOD), memory.budget());
    let body = read(&memory, "hhhhhhhk", Vec::new());
    segments.store(&body, HOUR).await.unwrap();
    let _all = memory.budget().reserve(31 << 20).unwrap();
    let _rest: Vec<_> = (0..).map_while(|_| memory.budget().reserve(64).ok()).collect();
    let fill = body.group.fill();
    assert!(matches!(
        segments.load_indexes(fill, &[0], 8, Placement::Heap).await,
        Err(Unavailable::NoRoom(_))
    ));
    let fresh = FillId::next();
    let given = segments.store_small(fresh, 8, &Bytes::from_static(b"x"), HOUR).await;
    assert!(matches!(given, Err(Unavailable::NoRoom(_))));
}

/// If a body must be complete before the reply begins, only a limited part is loaded.
#[tokio::test]
async fn no_more_is_loaded_ahead_than_is_allowed() {
    let (server, memory) = (server(), memory());
    let segments = tier(&server.connect(Behaviour::GOOD), memory.budget());
    let run = |count| vec![Run { first: 0, count }];
    for (cells, is_loaded) in [(8, true), (9, false)] {
        let layout =
            Layout { fill: FillId::next(), cell_bytes: 1 << 20, runs: run(cells), fragments: Vec::new() };
        let data = Bytes::from(vec![7; 1 << 20]);
        for index in 0..cells {
            let bytes = |_| Some(data.clone());
            let given = Given { bytes: &bytes, fill: layout.fill, cell_bytes: 1 << 20, ttl: HOUR };
            assert!(segments.put(&given, index).await.unwrap());
        }
        let bytes = u64::from(cells) << 20;
        let body = Segmented::restored(&memory, &layout, Some(bytes)).unwrap();
        let all = ByteRange { first: 0, last: bytes - 1 };
        let loaded = segments.complete(&body, &[all], Placement::Heap).await;
        assert_eq!(loaded.is_some(), is_loaded, "{cells}");
    }
}
