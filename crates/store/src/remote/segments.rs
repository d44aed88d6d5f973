//! Operations on segments, on a separate connection.

use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd, pipe};
use tokio::sync::SemaphorePermit;

use super::connections::{BULK_ROOM_KIB, Connections};
use super::records::ttl_ms;
use super::reply::{self, Written};
use crate::backing::{BackingError, SEGMENT_FRAME_BYTES_MAX};
use crate::{FillId, Refusal, SegmentId, SegmentPut};

pub(super) async fn load(
    connections: &Connections,
    fill: FillId,
    indexes: &[u32],
) -> Result<Vec<Option<Bytes>>, BackingError> {
    if indexes.is_empty() {
        return Ok(Vec::new());
    }
    let _room = room(connections, indexes.len().saturating_mul(SEGMENT_FRAME_BYTES_MAX)).await?;
    let mut question = pipe();
    for &index in indexes {
        let name = connections.names.segment(SegmentId { fill, index });
        question.cmd("GETRANGE").arg(name).arg(0).arg(SEGMENT_FRAME_BYTES_MAX);
    }
    let answers = connections.bulk()?.ask(&question).await?;
    answers.into_iter().map(|answer| reply::part(answer, SEGMENT_FRAME_BYTES_MAX)).collect()
}

pub(super) async fn put(
    connections: &Connections,
    id: SegmentId,
    bytes: &Bytes,
    ttl: Duration,
) -> Result<SegmentPut, BackingError> {
    if bytes.len() > SEGMENT_FRAME_BYTES_MAX {
        return Ok(SegmentPut::NotStored(Refusal::TooLarge));
    }
    let _room = room(connections, bytes.len()).await?;
    let mut question = pipe();
    question
        .cmd("SET")
        .arg(connections.names.segment(id))
        .arg(&bytes[..])
        .arg("PX")
        .arg(ttl_ms(ttl))
        .arg("NX");
    let [answer] = connections.bulk()?.ask_for(&question).await?;
    match reply::written(answer)? {
        Written::Yes => Ok(SegmentPut::Stored),
        Written::No => Ok(SegmentPut::AlreadyThere),
        Written::NoRoom => Ok(SegmentPut::NotStored(Refusal::OverBudget)),
    }
}

/// Extends the lifetime of segments. Returns the number of segments found.
pub(super) async fn extend(
    connections: &Connections,
    fill: FillId,
    indexes: &[u32],
    ttl: Duration,
) -> Result<usize, BackingError> {
    if indexes.is_empty() {
        return Ok(0);
    }
    let mut question = pipe();
    for &index in indexes {
        question.cmd("PEXPIRE").arg(connections.names.segment(SegmentId { fill, index })).arg(ttl_ms(ttl));
    }
    let answers = connections.bulk()?.ask(&question).await?;
    let count = |sum, answer: Value| Ok(sum + usize::from(reply::integer(answer)? == 1));
    answers.into_iter().try_fold(0, count)
}

pub(super) async fn remove(
    connections: &Connections,
    fill: FillId,
    indexes: &[u32],
) -> Result<(), BackingError> {
    if indexes.is_empty() {
        return Ok(());
    }
    let mut question = cmd("UNLINK");
    for &index in indexes {
        question.arg(connections.names.segment(SegmentId { fill, index }));
    }
    reply::done(connections.bulk()?.ask_one(&question).await?)
}

/// Waits until there is room for bytes in flight. A request larger than the whole limit is sent alone.
async fn room(connections: &Connections, bytes: usize) -> Result<SemaphorePermit<'_>, BackingError> {
    let kib = bytes.div_ceil(1 << 10).min(BULK_ROOM_KIB);
    let permits = u32::try_from(kib).unwrap_or(u32::MAX);
    let room = connections.bulk_room.acquire_many(permits).await;
    room.map_err(|error| BackingError::Unreachable(Box::new(error)))
}
