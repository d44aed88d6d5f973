//! Tests of the bytes that a fill keeps, delivers and counts.

use std::time::Duration;

use message::piece::PieceMax;
use store::{Memory, MemoryConfig};
use tokio::time::timeout;

use super::*;
use crate::entry::stored::CacheEntry;

const LIMITS: FillLimits = FillLimits {
    body_bytes_max: 1 << 20,
    segment_bytes: 100_000,
    first_segment_bytes: 100_000,
    place: Placement::File,
};
const SOON: Duration = Duration::from_secs(20);

fn memory(bytes_max: u64) -> Memory<CacheEntry> {
    Memory::new(MemoryConfig::with_bytes_max(bytes_max))
}

fn fill(memory: &Memory<CacheEntry>, limits: FillLimits) -> Arc<Fill> {
    Fill::new(Arc::clone(memory.budget()), limits, None, Arc::default())
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
}

async fn read_all(mut reader: FillReader) -> Result<Vec<u8>, Aborted> {
    let mut all = Vec::new();
    while let Some(data) = reader.chunk(PieceMax::SENT).await? {
        all.extend_from_slice(&data.into_bytes().unwrap());
    }
    Ok(all)
}

async fn next(reader: &mut FillReader) -> Bytes {
    let data = reader.chunk(PieceMax::SENT).await.unwrap().expect("more");
    data.into_bytes().unwrap()
}

async fn write_all(fill: &Fill, data: &[u8], piece: usize) -> Vec<Written> {
    let mut written = Vec::new();
    for part in data.chunks(piece) {
        written.push(fill.write(Bytes::copy_from_slice(part), || Pacing::Allowed).await);
    }
    written
}

fn complete(fill: &Fill) -> Option<CompleteBody> {
    let body = fill.body();
    fill.complete(None);
    body
}

/// Requests wait no longer for an origin that sends very slowly than for an origin that stalls.
#[tokio::test(start_paused = true)]
async fn a_body_that_drips_stands_still() {
    const PAUSE_MAX: Duration = Duration::from_secs(2);
    for (piece_bytes, goes_on) in [(1, false), (1_000, true)] {
        let memory = memory(64 << 20);
        let fill = fill(&memory, LIMITS);
        for _ in 0..10 {
            tokio::time::advance(Duration::from_millis(700)).await;
            write_all(&fill, &pattern(piece_bytes), piece_bytes).await;
        }
        assert_eq!(fill.comes(PAUSE_MAX).await, goes_on, "{piece_bytes} bytes per write");
        let is_deserted =
            timeout(Duration::from_millis(1), fill.deserted(Some(PAUSE_MAX), &SetOnce::new())).await.is_ok();
        assert_eq!(is_deserted, !goes_on, "{piece_bytes} bytes per write");
    }
}

/// A part may end where the first segment ends.
#[tokio::test]
async fn a_small_body_that_fills_its_segments() {
    let memory = memory(64 << 20);
    for (first_segment_bytes, bytes) in [(10, 10), (10, 110), (10, 11), (100, 300)] {
        let limits = FillLimits { segment_bytes: 100, first_segment_bytes, ..LIMITS };
        let fill = fill(&memory, limits);
        write_all(&fill, &pattern(bytes), 7).await;
        let Some(CompleteBody::Segments(segments)) = complete(&fill) else { panic!("in segments") };
        let stored: Vec<u8> = segments.iter().flat_map(|segment| segment.to_bytes().unwrap()).collect();
        assert_eq!(stored, pattern(bytes), "{first_segment_bytes}, {bytes}");
    }
}

#[tokio::test]
async fn the_last_bytes_are_shown_when_they_are_released() {
    let memory = memory(64 << 20);
    for bytes in [10, 100_000, 250_001] {
        let fill = Fill::new(Arc::clone(memory.budget()), LIMITS, Some(bytes as u64), Arc::default());
        let data = pattern(bytes);
        let (first, last) = data.split_at(bytes - 7);
        let mut reader = fill.reader(0, None).unwrap();
        let mut seen = Vec::new();
        fill.write(Bytes::copy_from_slice(first), || Pacing::Allowed).await;
        assert_eq!(fill.write(Bytes::copy_from_slice(last), || Pacing::Allowed).await, Written::All);
        fill.body().expect("all of it is kept");
        while seen.len() < first.len() {
            seen.extend_from_slice(&next(&mut reader).await);
        }
        assert!(seen == first, "what came before, and no more");
        assert!(timeout(Duration::from_millis(5), reader.chunk(PieceMax::SENT)).await.is_err(), "withheld");
        fill.release();
        assert_eq!(timeout(SOON, next(&mut reader)).await.unwrap(), last);
    }
}

#[tokio::test]
async fn readers_see_every_byte_whenever_they_begin() {
    let memory = memory(64 << 20);
    for (bytes, piece) in [(0, 1), (10, 3), (100_000, 7_001), (100_001, 50_000), (350_000, 99_999)] {
        let (fill, data) = (fill(&memory, LIMITS), pattern(bytes));
        let early = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
        write_all(&fill, &data, piece).await;
        let late = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
        let body = complete(&fill).expect("all of it is kept");
        let stored_bytes = match &body {
            CompleteBody::Inline(data) => data.len(),
            CompleteBody::Segments(segments) => segments.iter().map(|segment| segment.len()).sum(),
        };
        assert_eq!(stored_bytes, bytes);
        for reader in [early, late, tokio::spawn(read_all(fill.reader(0, None).unwrap()))] {
            let read = timeout(SOON, reader).await.expect("woken").unwrap();
            assert_eq!(read, Ok(data.clone()), "{bytes} bytes in pieces of {piece}");
        }
    }
}

#[tokio::test]
async fn ranges_wait_for_their_bytes_and_end_where_they_should() {
    let memory = memory(64 << 20);
    let (fill, data) = (fill(&memory, LIMITS), pattern(250_000));
    let range = tokio::spawn(read_all(fill.reader(99_000, Some(201_000)).unwrap()));
    let beyond = tokio::spawn(read_all(fill.reader(249_000, Some(260_000)).unwrap()));
    write_all(&fill, &data, 10_000).await;
    complete(&fill);
    assert_eq!(timeout(SOON, range).await.unwrap().unwrap(), Ok(data[99_000..201_000].to_vec()));
    assert_eq!(timeout(SOON, beyond).await.unwrap().unwrap(), Err(Aborted { because: None }));
}

#[tokio::test]
async fn partial_writer_cancel_is_an_abort_for_every_reader() {
    let memory = memory(64 << 20);
    let fill = fill(&memory, LIMITS);
    let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
    write_all(&fill, &pattern(1_000), 100).await;
    fill.abort(None);
    assert_eq!(timeout(SOON, reader).await.unwrap().unwrap(), Err(Aborted { because: None }));
    assert_eq!(read_all(fill.reader(0, None).unwrap()).await, Err(Aborted { because: None }));
}

#[tokio::test]
async fn leader_cancel_wakes_waiters() {
    let memory = memory(64 << 20);
    let fill = fill(&memory, LIMITS);
    let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
    let writer = Writer(Arc::clone(&fill));
    let task = tokio::spawn(async move {
        writer.0.write(Bytes::from_static(b"half"), || Pacing::Allowed).await;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    task.abort();
    assert_eq!(timeout(SOON, reader).await.expect("woken").unwrap(), Err(Aborted { because: None }));
}

#[tokio::test]
async fn too_large_bodies_go_on_to_their_reader_within_a_window() {
    let memory = memory(64 << 20);
    let fill = fill(&memory, LIMITS);
    let data = pattern(5 << 20);
    let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
    let written = timeout(SOON, write_all(&fill, &data, 60_000)).await.expect("the reader makes room");
    let not_kept = written.iter().filter(|step| matches!(step, Written::NoLongerKept(_))).count();
    assert_eq!(not_kept, 1);
    assert!(complete(&fill).is_none(), "nothing to store");
    assert_eq!(timeout(SOON, reader).await.unwrap().unwrap().map(|read| read == data), Ok(true));
    assert!(fill.reader(0, None).is_none(), "its beginning is gone");
}

#[tokio::test]
async fn a_body_that_is_not_kept_and_not_read_is_abandoned() {
    let memory = memory(64 << 20);
    let fill = fill(&memory, FillLimits { body_bytes_max: 10, ..LIMITS });
    drop(fill.reader(0, None));
    let data = Bytes::from_static(b"more than ten bytes");
    for expected in [Written::NoLongerKept(NotKept::TooLarge), Written::Abandoned] {
        let written = timeout(SOON, fill.write(data.clone(), || Pacing::Allowed)).await.unwrap();
        assert_eq!(written, expected);
    }
}

/// A body continues piece by piece however little memory is left, and pieces that its readers still hold are counted.
#[tokio::test]
async fn without_room_in_the_budget_a_window_is_one_piece() {
    let memory = memory(4 << 20);
    let budget = memory.budget();
    let all = budget.bytes_max();
    let mut taken = Vec::new();
    for bytes in [1 << 20, 1 << 14, 1000, 1] {
        taken.extend(std::iter::from_fn(|| budget.reserve(bytes).ok()).take((all as usize) / bytes));
    }
    let before = budget.live_bytes();
    let fill = Fill::window(Arc::clone(budget));
    let mut reader = fill.reader(0, None).unwrap();
    let piece = || Bytes::from(vec![7; 10_000]);
    for _ in 0..3 {
        let waited = timeout(Duration::from_millis(20), fill.write(piece(), || Pacing::Allowed)).await;
        assert!(waited.is_err(), "until the piece has been taken");
        assert_eq!((next(&mut reader).await.len(), budget.live_bytes()), (10_000, before));
    }
    drop(taken);
    fill.write(piece(), || panic!("there is room")).await;
    let in_hand = next(&mut reader).await;
    drop((reader, fill));
    assert_eq!(budget.live_bytes(), 10_000, "what a reader has taken is still there");
    drop(in_hand);
    assert_eq!(budget.live_bytes(), 0);
}

/// If too many bodies already wait for their readers, another one would take a slot at the origin from other requests.
#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_keep_up_may_be_one_too_many() {
    let memory = memory(64 << 20);
    let piece = || Bytes::from(vec![7; 100_000]);
    for pacing in [Pacing::Allowed, Pacing::Exceeded] {
        let fill = Fill::window(Arc::clone(memory.budget()));
        let mut reader = fill.reader(0, None).unwrap();
        for _ in 0..5 {
            assert_eq!(fill.write(piece(), || panic!("there is room")).await, Written::Kept);
        }
        let waited = timeout(SOON, fill.write(piece(), || pacing)).await;
        match pacing {
            Pacing::Allowed => assert!(waited.is_err(), "as long as the reader needs"),
            Pacing::Exceeded => assert_eq!(waited, Ok(Written::TooSlow)),
        }
        next(&mut reader).await;
    }
}

/// A slow reader doesn't set the pace for all readers. If it is the only reader, or no slower than the others, its time is unlimited.
#[tokio::test(start_paused = true)]
async fn a_reader_that_others_wait_for_is_cut_off() {
    for (others, bytes_a_second, is_cut_off) in
        [(0, 0, false), (1, 0, true), (3, 0, true), (1, 8_000, true), (1, 17_000, false), (1, 100_000, false)]
    {
        let memory = memory(64 << 20);
        let fill = Fill::window(Arc::clone(memory.budget()));
        let mut slow = fill.reader(0, None).unwrap();
        let fast: Vec<_> =
            (0..others).map(|_| tokio::spawn(read_all(fill.reader(0, None).unwrap()))).collect();
        let slow = tokio::spawn(async move {
            loop {
                let Some(rest) = slow.chunk(PieceMax::SENT).await? else { return Ok(()) };
                match bytes_a_second {
                    0 => std::future::pending().await,
                    rate => sleep(Duration::from_secs(1) * rest.len() as u32 / rate).await,
                }
            }
        });
        let writing = async {
            for _ in 0..20 {
                assert_eq!(
                    fill.write(Bytes::from(vec![7; 100_000]), || Pacing::Allowed).await,
                    Written::Kept
                );
            }
            fill.complete(None);
        };
        let was_written = timeout(Duration::from_secs(300), writing).await.is_ok();
        let case = format!("{others} others, {bytes_a_second} bytes a second");
        assert_eq!(was_written, others > 0, "{case}");
        for reading in fast {
            let read: Result<Vec<u8>, _> = reading.await.unwrap();
            assert_eq!(read.map(|read| read.len()), Ok(2_000_000), "{case}");
        }
        if bytes_a_second > 0 {
            let ended: Result<(), Aborted> = slow.await.unwrap();
            assert_eq!(ended.is_err(), is_cut_off, "{case}");
        }
    }
}

/// A slow reader's time counts only while others wait for it.
#[tokio::test(start_paused = true)]
async fn a_reader_that_was_as_slow_as_the_others_has_its_time() {
    let memory = memory(64 << 20);
    for (after_s, is_cut_off) in [(20, false), (40, true)] {
        let fill = Fill::window(Arc::clone(memory.budget()));
        let [early, late] = [60, 60 + after_s].map(|seconds| {
            let mut reader = fill.reader(0, None).unwrap();
            tokio::spawn(async move {
                reader.chunk(PieceMax::SENT).await?;
                sleep(Duration::from_secs(seconds)).await;
                read_all(reader).await.map(drop)
            })
        });
        for _ in 0..20 {
            fill.write(Bytes::from(vec![7; 100_000]), || Pacing::Allowed).await;
        }
        fill.complete(None);
        assert_eq!(early.await.unwrap(), Ok(()));
        assert_eq!(late.await.unwrap().is_err(), is_cut_off, "after {after_s} s");
    }
}

/// While the origin pauses, no reader is charged for holding up others.
#[tokio::test(start_paused = true)]
async fn waits_for_the_origin_count_for_no_reader() {
    let memory = memory(64 << 20);
    let fill = Fill::window(Arc::clone(memory.budget()));
    let fast = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
    let mut slow = fill.reader(0, None).unwrap();
    let slow = tokio::spawn(async move {
        slow.chunk(PieceMax::SENT).await?;
        sleep(Duration::from_secs(60)).await;
        read_all(slow).await
    });
    for pause in [0, 0, 0, 40].into_iter().chain([0; 16]) {
        sleep(Duration::from_secs(pause)).await;
        fill.write(Bytes::from(vec![7; 100_000]), || Pacing::Allowed).await;
    }
    fill.complete(None);
    assert!(fast.await.unwrap().is_ok() && slow.await.unwrap().is_ok());
}

#[tokio::test]
async fn rww_slow_writer_does_not_end_its_readers() {
    let memory = memory(64 << 20);
    let fill = fill(&memory, LIMITS);
    let mut reader = fill.reader(0, None).unwrap();
    let waiting = timeout(Duration::from_millis(20), reader.chunk(PieceMax::SENT)).await;
    assert!(waiting.is_err(), "nothing has arrived and nothing has ended");
    write_all(&fill, b"late", 4).await;
    assert_eq!(next(&mut reader).await, b"late".as_slice());
}

#[tokio::test]
async fn without_room_in_the_budget_nothing_is_kept() {
    let memory = memory(4 << 20);
    let fill = fill(&memory, FillLimits { body_bytes_max: 64 << 20, ..LIMITS });
    let data = pattern(8 << 20);
    let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
    let written = timeout(SOON, write_all(&fill, &data, 60_000)).await.unwrap();
    assert!(written.contains(&Written::NoLongerKept(NotKept::OverBudget)));
    assert!(complete(&fill).is_none());
    assert_eq!(timeout(SOON, reader).await.unwrap().unwrap().map(|read| read == data), Ok(true));
}
