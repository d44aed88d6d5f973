//! Promises 6 and 7.

use bytes::Bytes;

use super::super::record::SEGMENT_FRAME_BYTES_MAX;
use super::{Bench, LONG, SHORT, Violation, ensure, eventually};
use crate::{FillId, Refusal, SegmentId, SegmentPut};

pub(super) async fn check(bench: &Bench) -> Result<(), Violation> {
    the_first_stays(bench).await?;
    holes_are_none(bench).await?;
    fills_are_apart(bench).await?;
    they_live_for_their_time(bench).await
}

fn new_id() -> SegmentId {
    SegmentId { fill: FillId::next(), index: 0 }
}

async fn the_first_stays(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let id = new_id();
    let first = own.put_segment(id, Bytes::from_static(b"first"), LONG).await?;
    ensure(first == SegmentPut::Stored, 6, "a segment is stored")?;
    let second = other.put_segment(id, Bytes::from_static(b"second"), LONG).await?;
    ensure(second == SegmentPut::AlreadyThere, 6, "a second segment of an id is reported")?;
    let found = other.load_segments(id.fill, &[0]).await?;
    ensure(found == [Some(Bytes::from_static(b"first"))], 6, "the first segment of an id stays")
}

async fn holes_are_none(Bench { own, .. }: &Bench) -> Result<(), Violation> {
    let fill = FillId::next();
    for index in [4, 0, 9] {
        own.put_segment(SegmentId { fill, index }, Bytes::from(vec![index as u8]), LONG).await?;
    }
    let held = |index: u8| Some(Bytes::from(vec![index]));
    let found = own.load_segments(fill, &[9, 1, 0, 4]).await?;
    ensure(found == [held(9), None, held(0), held(4)], 7, "segments come in the order of the indexes")?;
    own.remove_segments(fill, &[0, 9, 77]).await?;
    let found = own.load_segments(fill, &[0, 4, 9]).await?;
    ensure(found == [None, held(4), None], 7, "a removed segment is a hole, and the others stay")
}

async fn fills_are_apart(Bench { own, .. }: &Bench) -> Result<(), Violation> {
    let [large, small] = [new_id(), new_id()];
    let largest = Bytes::from(vec![b'x'; SEGMENT_FRAME_BYTES_MAX]);
    own.put_segment(large, largest.clone(), LONG).await?;
    own.put_segment(small, Bytes::from_static(b"small"), LONG).await?;
    own.remove_segments(small.fill, &[0]).await?;
    let found = own.load_segments(large.fill, &[0]).await?;
    ensure(found == [Some(largest)], 6, "one fill's removal leaves the other's segments")?;
    let over = Bytes::from(vec![b'x'; SEGMENT_FRAME_BYTES_MAX + 1]);
    let refused = own.put_segment(new_id(), over, LONG).await?;
    ensure(refused == SegmentPut::NotStored(Refusal::TooLarge), 5, "a segment over the limit is refused")
}

async fn they_live_for_their_time(Bench { own, .. }: &Bench) -> Result<(), Violation> {
    let fill = FillId::next();
    for index in 0..2 {
        own.put_segment(SegmentId { fill, index }, Bytes::from_static(b"x"), SHORT).await?;
    }
    let extended = own.extend_segments(fill, &[1, 2], LONG).await?;
    ensure(extended == 1, 7, "the number of extended segments is returned")?;
    let first_ended = async || Ok(own.load_segments(fill, &[0]).await? == [None]);
    eventually(6, "no segment outlives its time", first_ended).await?;
    ensure(own.load_segments(fill, &[1]).await?[0].is_some(), 6, "extended segments stay")
}
