//! Promises 8 to 10.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::super::contract::Backing;
use super::super::record::{Expected, Tracking, Write};
use super::super::watch::{CopyStatus, Source, Watcher};
use super::{Bench, SHORT, Violation, ensure, eventually, new_key, put, write};

pub(super) async fn check(bench: &Bench) -> Result<(), Violation> {
    changes_are_told(bench).await?;
    it_is_told_once_for_each_load(bench).await?;
    a_push_may_overtake_but_is_not_lost(bench).await?;
    a_source_that_works_stays_verified(bench).await
}

/// Watcher that records announcements.
#[derive(Default)]
pub(super) struct Notes {
    suspect: Mutex<Vec<Vec<u8>>>,
}

impl Notes {
    pub(super) fn of(tier: &dyn Backing) -> Arc<Self> {
        let notes = Arc::new(Self::default());
        let watcher: Weak<Self> = Arc::downgrade(&notes);
        tier.watch(watcher);
        notes
    }

    fn count(&self, key: &[u8]) -> usize {
        self.suspect.lock().iter().filter(|told| *told == key).count()
    }
}

impl Watcher for Notes {
    fn suspect(&self, keys: &[&[u8]]) {
        self.suspect.lock().extend(keys.iter().map(|key| key.to_vec()));
    }

    fn all_suspect(&self, _source: Option<Source>) {}

    fn log_changed(&self) {}
}

async fn track(tier: &dyn Backing, key: &[u8]) -> Result<(), Violation> {
    let found = tier.load(&[key], Tracking::UntilChanged).await?.pop().flatten();
    let tracked = found.is_some_and(|found| found.tracking == Tracking::UntilChanged);
    ensure(tracked, 8, "the next change after a tracking load is announced")
}

async fn changes_are_told(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let notes = Notes::of(&**own);
    let [replaced, removed, expired, absent] = ["replaced", "removed", "expired", "absent"].map(new_key);
    let source = own.source();
    let nothing = own.load(&[&absent], Tracking::UntilChanged).await?;
    ensure(nothing == [None], 1, "nothing was put there")?;
    ensure(own.standing(source) == CopyStatus::Verified, 9, "a source that works is verified")?;
    for key in [&replaced, &removed] {
        put(&**other, key, b"one").await?;
        track(&**own, key).await?;
    }
    other.put(&expired, Write { ttl: SHORT, ..write(b"one", Expected::Any) }).await?;
    track(&**own, &expired).await?;
    put(&**other, &replaced, b"two").await?;
    other.remove(&removed).await?;
    put(&**other, &absent, b"one").await?;
    eventually(8, "a change is announced", async || {
        // Some tiers notice an expiry only when the key is accessed.
        other.load(&[&expired], Tracking::Off).await?;
        Ok([&replaced, &removed, &expired, &absent].iter().all(|key| notes.count(key) > 0))
    })
    .await
}

async fn it_is_told_once_for_each_load(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let notes = Notes::of(&**own);
    let [key, own_key, untracked] = ["again", "own", "untracked"].map(new_key);
    put(&**other, &key, b"one").await?;
    put(&**other, &untracked, b"one").await?;
    put(&**other, &own_key, b"one").await?;
    own.load(&[&untracked], Tracking::Off).await?;
    for round in 1..=2 {
        track(&**own, &key).await?;
        put(&**other, &key, &[round]).await?;
        let told = async || Ok(notes.count(&key) >= usize::from(round));
        eventually(10, "another load gets another announcement", told).await?;
    }
    track(&**own, &own_key).await?;
    put(&**own, &own_key, b"two").await?;
    eventually(8, "an own put is announced", async || Ok(notes.count(&own_key) > 0)).await?;
    put(&**other, &untracked, b"two").await?;
    ensure(notes.count(&untracked) == 0, 8, "only tracking loads lead to announcements")
}

/// If a load returns the old record while a put is in progress, that put is announced.
async fn a_push_may_overtake_but_is_not_lost(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let notes = Notes::of(&**own);
    for round in 0..20u8 {
        let key = new_key("race");
        put(&**other, &key, &[0]).await?;
        let change = write(&[1, round], Expected::Any);
        let keys = [&key[..]];
        let (loaded, changed) =
            tokio::join!(own.load(&keys, Tracking::UntilChanged), other.put(&key, change));
        changed?;
        let is_old = loaded?.pop().flatten().is_some_and(|copy| copy.bytes == [0][..]);
        if is_old {
            eventually(8, "a change right after the load is announced", async || Ok(notes.count(&key) > 0))
                .await?;
        }
    }
    Ok(())
}

async fn a_source_that_works_stays_verified(
    Bench { own, verification, .. }: &Bench,
) -> Result<(), Violation> {
    let key = new_key("source");
    put(&**own, &key, b"x").await?;
    let source = super::found(&**own, &key).await?.source;
    let end = Instant::now() + *verification * 2;
    while Instant::now() < end {
        ensure(own.standing(source) == CopyStatus::Verified, 9, "a source that works is verified")?;
        sleep(*verification / 10).await;
    }
    let never = Source { generation: source.generation.wrapping_add(1_000_000), ..source };
    ensure(own.standing(never) != CopyStatus::Verified, 9, "another generation is not verified")
}
