//! Bodies assembled from memory, a tier and the origin.

use std::sync::Arc;
use std::time::Duration;

use cache::entry::segmented::Segmented;
use cache::entry::segmented::sample::{COMPLETE_BYTES, content, memory, read};
use caching::ByteRange;
use fleet::segments::{LOAD_BYTES_MAX, TierSegments};
use proptest::prelude::*;
use store::backing::Backing;
use store::backing::double::{Behaviour, Double, DoubleLimits, DoubleServer};
use store::format::{Layout, Run, SegmentFrame, encode_segment};
use store::{Budget, FillId, Placement, SegmentId};

use super::{FromTier, Turn};

const HOUR: Duration = Duration::from_secs(3600);

/// Result of reading a reply: its bytes, the ranges requested from the origin, and the number of loads.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    bytes: Vec<u8>,
    asked: Vec<(u64, u64)>,
    loads: usize,
}

fn connect() -> Double {
    DoubleServer::new(DoubleLimits::default(), 1).connect(Behaviour::default())
}

/// Reads the bytes from `start` to `end` as a reply does, and calls `between` before each step.
async fn read_all(
    body: &Segmented,
    tier: &TierSegments,
    (start, end): (u64, u64),
    mut between: impl FnMut(u64),
) -> Read {
    let mut from_tier = FromTier::new();
    let mut reply = Read { bytes: Vec::new(), asked: Vec::new(), loads: 0 };
    loop {
        let position = start + reply.bytes.len() as u64;
        if position >= end {
            return reply;
        }
        between(position);
        match from_tier.turn(body, position, end).expect("no concurrent changes") {
            Turn::Held(piece) => reply.bytes.extend_from_slice(&piece.into_bytes().unwrap()),
            Turn::Absent(absent) => {
                reply.loads += 1;
                let answer = tier.load(&absent, Placement::Heap).await.ok();
                from_tier.take(body, &absent, answer);
            }
            Turn::Missing(range) => {
                assert_eq!(range.first, position);
                reply.asked.push((range.first, range.last));
                reply.bytes.extend(content(range));
            }
        }
    }
}

/// Creates a tier with the cells marked `t` in `cells`.
async fn tier_with(double: &Double, budget: &Arc<Budget>, body: &Segmented, cells: &str) -> TierSegments {
    let tier = TierSegments::new(Arc::new(double.guarded()), Arc::clone(budget), Arc::default());
    for (index, _) in cells.bytes().enumerate().filter(|(_, cell)| *cell == b't') {
        let range =
            ByteRange { first: index as u64 * 8, last: (index as u64 * 8 + 7).min(COMPLETE_BYTES - 1) };
        let data = content(range);
        let id = SegmentId { fill: body.group.fill(), index: index as u32 };
        let mut out = Vec::new();
        let frame = SegmentFrame { id, cell_bytes: 8, data: &data };
        encode_segment(&frame, None, &mut out).unwrap();
        double.put_segment(id, out.into(), HOUR).await.unwrap();
    }
    tier
}

/// Each case has the cells in memory (`h`), known from the record (`k`) and in the tier (`t`), and the ranges that are requested from
/// the origin.
#[tokio::test]
async fn each_byte_comes_from_the_nearest_place() {
    let nothing: &[(u64, u64)] = &[];
    for (cells, in_tier, asked, loads) in [
        ("hhhhhhhh", "--------", nothing, 0),
        ("kkkkkkkk", "tttttttt", nothing, 1),
        ("hkkhhkkh", "-tt--tt-", nothing, 2),
        ("hkkkkkkh", "-ttt-tt-", &[(32, 39)], 2),
        ("hkkk--kh", "-ttt--t-", &[(32, 47)], 2),
        ("kkkkkkkk", "-ttttttt", &[(0, 7)], 1),
        // A load without a result isn't repeated immediately.
        ("kkkkkkkk", "--------", &[(0, 60)], 1),
        ("kkhkkkkk", "--------", &[(0, 15), (24, 60)], 1),
        ("--------", "tttttttt", &[(0, 60)], 0),
    ] {
        let memory = memory();
        let body = read(&memory, cells, Vec::new());
        let tier = tier_with(&connect(), memory.budget(), &body, in_tier).await;
        let reply = read_all(&body, &tier, (0, COMPLETE_BYTES), |_| {}).await;
        let expected = content(ByteRange { first: 0, last: COMPLETE_BYTES - 1 });
        assert_eq!(reply, Read { bytes: expected, asked: asked.to_vec(), loads }, "{cells} {in_tier}");
    }
}

/// After a timeout of the tier, no further load is tried for the same reply.
#[tokio::test(start_paused = true)]
async fn a_silent_tier_costs_one_deadline() {
    let memory = memory();
    let body = read(&memory, "hkkhhkkh", Vec::new());
    let double = connect();
    let tier = tier_with(&double, memory.budget(), &body, "tttttttt").await;
    double.behave(Behaviour { silent_permille: 1000, ..Behaviour::default() });
    let begun = tokio::time::Instant::now();
    let reply = read_all(&body, &tier, (0, COMPLETE_BYTES), |_| {}).await;
    assert_eq!((reply.asked, reply.loads), (vec![(8, 23), (40, 55)], 1));
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
}

/// If memory keeps nothing, loaded bytes are still read, and loaded only once.
#[tokio::test]
async fn what_memory_refuses_is_read_from_the_reply() {
    let memory = memory();
    let body = read(&memory, "kkkkkkkk", Vec::new());
    let tier = tier_with(&connect(), memory.budget(), &body, "tttttttt").await;
    drop(memory);
    let reply = read_all(&body, &tier, (5, 50), |_| {}).await;
    assert_eq!(reply.bytes, content(ByteRange { first: 5, last: 49 }));
    assert_eq!((reply.asked, reply.loads), (vec![], 1));
}

/// Segments that are in memory when the reply begins may be evicted before the reply reaches them.
#[tokio::test]
async fn what_is_evicted_before_its_turn_is_loaded() {
    let memory = memory();
    let body = read(&memory, "hhhhhhhh", Vec::new());
    let tier = tier_with(&connect(), memory.budget(), &body, "tttttttt").await;
    let evict = |position| {
        if position == 16 {
            memory.remove_segments(body.group.fill(), 8);
        }
    };
    let reply = read_all(&body, &tier, (0, COMPLETE_BYTES), evict).await;
    assert_eq!(reply.bytes, content(ByteRange { first: 0, last: COMPLETE_BYTES - 1 }));
    assert_eq!((reply.asked, reply.loads), (vec![], 1));
}

/// If the tier has lost bytes of a large body, they are requested in increasingly large parts.
#[tokio::test]
async fn a_tier_that_has_lost_most_costs_the_origin_few_requests() {
    let memory = memory();
    let cells = 32;
    let runs = vec![Run { first: 0, count: cells }];
    let layout = Layout { fill: FillId::next(), cell_bytes: 1 << 20, runs, fragments: Vec::new() };
    let bytes = u64::from(cells) << 20;
    let body = Segmented::restored(&memory, &layout, Some(bytes)).unwrap();
    let tier = tier_with(&connect(), memory.budget(), &body, "").await;
    let reply = read_all(&body, &tier, (0, bytes), |_| {}).await;
    let sizes: Vec<u64> =
        reply.asked.iter().map(|(first, last)| (last + 1 - first) / LOAD_BYTES_MAX).collect();
    assert_eq!((sizes, reply.loads), (vec![1, 2, 4, 8, 1], 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wherever the bytes are, and whatever memory or the tier evicts, the reply is complete, and no bytes in memory are requested from
    /// the origin.
    #[test]
    fn the_bytes_are_right(
        cells in "[hk-]{8}", in_tier in "[t-]{8}", seed in any::<u64>(),
        (start, end) in (0..COMPLETE_BYTES, 0..COMPLETE_BYTES).prop_map(|(a, b)| (a.min(b), a.max(b) + 1)),
        (evicting, unreachable) in (0..500u16, 0..300u16), evicted_at in 0..COMPLETE_BYTES,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let memory = memory();
        let body = read(&memory, &cells, Vec::new());
        let double = connect();
        let reply = runtime.block_on(async {
            let tier = tier_with(&double, memory.budget(), &body, &in_tier).await;
            double.behave(Behaviour {
                seed,
                evicting_permille: evicting,
                unreachable_permille: unreachable,
                ..Behaviour::default()
            });
            let evict = |position| {
                if position >= evicted_at {
                    memory.remove_segments(body.group.fill(), 8);
                }
            };
            read_all(&body, &tier, (start, end), evict).await
        });
        prop_assert_eq!(&reply.bytes, &content(ByteRange { first: start, last: end - 1 }));
        for (first, last) in reply.asked {
            let was_held = |position: u64| cells.as_bytes()[(position / 8) as usize] == b'h';
            prop_assert!((first..=last).all(|at| at >= evicted_at || !was_held(at)), "{first} to {last}");
        }
    }
}
