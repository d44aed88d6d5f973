//! Promises 1 to 5.

use super::super::record::{Expected, KEY_BYTES_MAX, PutOutcome, RECORD_BYTES_MAX, Tracking, Write};
use super::{Bench, SHORT, Violation, ensure, eventually, found, load, new_key, put, write};
use crate::Refusal;

pub(super) async fn check(bench: &Bench) -> Result<(), Violation> {
    a_load_gives_the_last_put(bench).await?;
    keys_are_apart(bench).await?;
    of_two_puts_upon_the_same_one_succeeds(bench).await?;
    versions_name_bytes(bench).await?;
    removed_is_gone(bench).await?;
    ended_is_gone(bench).await?;
    too_large_is_refused(bench).await
}

async fn a_load_gives_the_last_put(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("last");
    ensure(load(&**own, &key).await?.is_none(), 1, "a new key has no record")?;
    for round in 0..3u8 {
        put(&**own, &key, &[round, 0, 13, 10]).await?;
        for tier in [own, other] {
            ensure(
                found(&**tier, &key).await?.bytes == [round, 0, 13, 10][..],
                1,
                "a load gives the last put",
            )?;
        }
    }
    Ok(())
}

async fn keys_are_apart(Bench { own, .. }: &Bench) -> Result<(), Violation> {
    let base = new_key("keys");
    let endings: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"/a/b", b"/a:b", b"/A/b", b"{x}y", &[b'k'; 9000]];
    let keys: Vec<Vec<u8>> = endings.iter().map(|ending| [&base, *ending].concat()).collect();
    for (number, key) in (0..).zip(&keys) {
        put(&**own, key, &[number]).await?;
    }
    let absent = new_key("absent");
    let asked: Vec<&[u8]> = keys.iter().rev().map(Vec::as_slice).chain([&absent[..]]).collect();
    let answer = own.load(&asked, Tracking::Off).await?;
    let bytes: Vec<Option<u8>> =
        answer.iter().map(|found| found.as_ref().map(|found| found.bytes[0])).collect();
    let expected = [7, 6, 5, 4, 3, 2, 1, 0].map(Some).into_iter().chain([None]);
    ensure(bytes == expected.collect::<Vec<_>>(), 1, "every byte of a key counts, and answers are in order")
}

async fn of_two_puts_upon_the_same_one_succeeds(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("set");
    let first = own.put(&key, write(b"first", Expected::Absent)).await?;
    ensure(matches!(first, PutOutcome::Stored(_)), 2, "a put that expects no record is stored")?;
    let late = other.put(&key, write(b"late", Expected::Absent)).await?;
    let known = found(&**own, &key).await?;
    let is_given = matches!(&late, PutOutcome::Conflict(Some(current)) if current.bytes == known.bytes);
    ensure(is_given, 2, "the second put gets the current record")?;
    let [one, two] = [(own, b"one"), (other, b"two")]
        .map(|(tier, bytes)| tier.put(&key, write(bytes, Expected::Is(&known))));
    let (one, two) = tokio::join!(one, two);
    let stored = [one?, two?].iter().filter(|put| matches!(put, PutOutcome::Stored(_))).count();
    ensure(stored == 1, 2, "of two puts on the same record, one succeeds")?;
    own.remove(&key).await?;
    let upon_nothing = own.put(&key, write(b"x", Expected::Is(&known))).await?;
    ensure(upon_nothing == PutOutcome::Conflict(None), 2, "a removed record meets no condition")
}

async fn versions_name_bytes(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("version");
    let version = put(&**own, &key, b"one").await?;
    let known = found(&**other, &key).await?;
    ensure(known.version == version, 3, "a put returns the version of a load")?;
    put(&**own, &key, b"two").await?;
    ensure(found(&**other, &key).await?.version != version, 3, "other bytes have another version")
}

async fn removed_is_gone(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("removed");
    ensure(!own.remove(&key).await?, 4, "a missing record is reported")?;
    put(&**own, &key, b"one").await?;
    ensure(other.remove(&key).await?, 4, "removing a record is reported")?;
    ensure(load(&**own, &key).await?.is_none(), 4, "a removed record is gone")
}

async fn ended_is_gone(Bench { own, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("ttl");
    let short = Write { ttl: SHORT, ..write(b"short", Expected::Any) };
    own.put(&key, short).await?;
    ensure(load(&**own, &key).await?.is_some(), 4, "a record lasts for its time to live")?;
    eventually(4, "no record outlives its time", async || Ok(load(&**own, &key).await?.is_none())).await
}

async fn too_large_is_refused(Bench { own, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("large");
    let largest = vec![b'x'; RECORD_BYTES_MAX];
    put(&**own, &key, &largest).await?;
    ensure(found(&**own, &key).await?.bytes == largest, 5, "a record at the limit is taken")?;
    let refused = PutOutcome::NotStored(Refusal::TooLarge);
    let larger = own.put(&key, write(&vec![b'y'; RECORD_BYTES_MAX + 1], Expected::Any)).await?;
    ensure(larger == refused, 5, "a record over the limit is refused")?;
    ensure(found(&**own, &key).await?.bytes == largest, 5, "a refused record leaves the current one")?;
    let long_key = vec![b'k'; KEY_BYTES_MAX + 1];
    let long = own.put(&long_key, write(b"x", Expected::Any)).await?;
    ensure(long == refused, 5, "a key over the limit is refused")
}
