//! Promises 15 to 17. Tests of each tier cover the loss of a log, which this suite can't cause.

use bytes::Bytes;

use super::super::contract::Backing;
use super::super::log::{
    AppendOutcome, Continuity, LOG_APPEND_BYTES_MAX, LOG_KEPT_BYTES_MAX, LogCursor, LogOffset, LogState,
};
use super::{Bench, Violation, ensure};
use crate::Refusal;

pub(super) async fn check(bench: &Bench) -> Result<(), Violation> {
    all_read_the_same(bench).await?;
    long_reads_come_in_parts(bench).await?;
    the_floor_only_rises(bench).await?;
    a_long_log_is_trimmed_and_renamed(bench).await?;
    a_log_without_its_end_is_another_one(bench).await
}

async fn append(tier: &dyn Backing, records: &[Bytes]) -> Result<LogState, Violation> {
    match tier.append_log(records).await? {
        AppendOutcome::Taken(state) => Ok(state),
        AppendOutcome::NotStored(_) => {
            Err(Violation::BrokenPromise(15, "records within the limit are taken"))
        }
    }
}

/// Reads all records from a position on.
pub(super) async fn read_all(tier: &dyn Backing, mut from: LogCursor) -> Result<Vec<Bytes>, Violation> {
    let mut all = Vec::new();
    loop {
        let part = tier.read_log(from).await?;
        let Some(last) = part.records.last() else { return Ok(all) };
        ensure(last.end > from.offset && last.end <= part.state.end, 15, "a log is read forwards")?;
        from.offset = last.end;
        all.extend(part.records.into_iter().map(|record| record.bytes));
    }
}

async fn all_read_the_same(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let from = own.log_state().await?.cursor();
    let texts = |names: &[&'static str]| -> Vec<Bytes> {
        names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect()
    };
    let [one, two] = [texts(&["a1", "", "a3"]), texts(&["b1", "b2"])];
    let (first, second) = tokio::join!(append(&**own, &one), append(&**other, &two));
    let ends = [first?, second?];
    let read = read_all(&**own, from).await?;
    ensure(read == read_all(&**other, from).await?, 15, "all read the same")?;
    let orders = [[&one[..], &two[..]].concat(), [&two[..], &one[..]].concat()];
    ensure(
        orders.contains(&read),
        15,
        "each record is there once, and the records of one append are adjacent",
    )?;
    let end = ends[0].end.max(ends[1].end);
    ensure(
        read_all(&**own, LogCursor { offset: end, ..from }).await?.is_empty(),
        15,
        "there are no records past the end",
    )?;
    ensure(ends.iter().all(|state| state.continues(&from) == Continuity::Whole), 16, "no log is lost")?;
    let large = [Bytes::from(vec![0; LOG_APPEND_BYTES_MAX]), Bytes::from_static(b"x")];
    let refused = own.append_log(&large).await?;
    ensure(refused == AppendOutcome::NotStored(Refusal::TooLarge), 5, "an append over the limit is refused")
}

async fn long_reads_come_in_parts(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let from = own.log_state().await?.cursor();
    let records: Vec<Bytes> =
        (0..5u8).map(|number| Bytes::from(vec![number; LOG_APPEND_BYTES_MAX])).collect();
    for record in &records {
        append(&**own, std::slice::from_ref(record)).await?;
    }
    let part = other.read_log(from).await?;
    let bytes: usize = part.records.iter().map(|record| record.bytes.len()).sum();
    ensure(
        (1..=LOG_APPEND_BYTES_MAX).contains(&bytes),
        15,
        "one read is within the limit, and returns at least one record",
    )?;
    ensure(read_all(&**other, from).await? == records, 15, "the parts add up to the whole")
}

async fn the_floor_only_rises(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let before = own.log_state().await?;
    append(&**own, &[Bytes::from_static(b"below")]).await?;
    let floor = own.log_state().await?.cursor();
    append(&**own, &[Bytes::from_static(b"above")]).await?;
    let trimmed = own.trim_log(floor).await?;
    ensure(trimmed.floor == floor.offset, 17, "the floor rises to the given position")?;
    ensure(other.trim_log(before.cursor()).await?.floor == floor.offset, 17, "the floor only rises")?;
    let read = read_all(&**other, before.cursor()).await?;
    ensure(read == [Bytes::from_static(b"above")], 17, "only records below the floor are gone")?;
    ensure(
        trimmed.continues(&before.cursor()) == Continuity::Trimmed,
        17,
        "the log shows that some records are gone",
    )?;
    let foreign = LogCursor { id: super::super::log::LogId([7; 16]), offset: LogOffset(u64::MAX) };
    ensure(own.trim_log(foreign).await?.floor == floor.offset, 17, "the floor of another log stays")
}

/// A log is replaced as a whole, so its length matters.
async fn a_long_log_is_trimmed_and_renamed(Bench { own, .. }: &Bench) -> Result<(), Violation> {
    let record = Bytes::from(vec![b'x'; LOG_APPEND_BYTES_MAX]);
    let begun = own.log_state().await?;
    let mut state = begun;
    while state.end.0 - begun.end.0 < LOG_KEPT_BYTES_MAX * 3 / 2 {
        state = append(&**own, std::slice::from_ref(&record)).await?;
    }
    let beyond = LogCursor { offset: LogOffset(state.end.0 + 1), ..state.cursor() };
    let renamed = own.rename_log(beyond).await?;
    ensure(renamed.id != state.id && renamed.end == state.end, 17, "a long log gets another id")?;
    let rest = LogCursor { offset: renamed.floor, ..renamed.cursor() };
    ensure(!read_all(&**own, rest).await?.is_empty(), 15, "its end can be read")?;
    let floor = LogOffset(state.end.0 - LOG_KEPT_BYTES_MAX);
    let trimmed = own.trim_log(LogCursor { offset: floor, ..renamed.cursor() }).await?;
    let kept = trimmed.end.0 - trimmed.floor.0;
    ensure(
        kept >= LOG_KEPT_BYTES_MAX && kept < LOG_KEPT_BYTES_MAX + 2 * LOG_APPEND_BYTES_MAX as u64,
        17,
        "a long log is trimmed",
    )?;
    own.trim_log(trimmed.cursor()).await.map(drop)?;
    Ok(())
}

async fn a_log_without_its_end_is_another_one(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let read = own.log_state().await?.cursor();
    let before = append(&**own, &[Bytes::from_static(b"kept")]).await?;
    ensure(own.rename_log(before.cursor()).await? == before, 16, "a log without a loss keeps its id")?;
    ensure(own.rename_log(read).await? == before, 16, "a log that has grown keeps its id")?;
    let beyond = LogCursor { offset: LogOffset(before.end.0 + 1), ..before.cursor() };
    let renamed = own.rename_log(beyond).await?;
    ensure(
        renamed == LogState { id: renamed.id, ..before } && renamed.id != before.id,
        16,
        "only its id changes",
    )?;
    ensure(other.log_state().await? == renamed, 16, "all readers see the new id")?;
    ensure(other.rename_log(beyond).await? == renamed, 16, "only one of several readers renames the log")?;
    let from = LogCursor { id: renamed.id, ..read };
    ensure(read_all(&**other, from).await? == [Bytes::from_static(b"kept")], 16, "its remaining records stay")
}
