//! Promises under faults: the tier fails, is late, forgets, or loses pushes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::super::contract::Backing;
use super::super::lease::{LeaseMode, LeaseRequest, TakeOutcome};
use super::super::log::{AppendOutcome, LogCursor};
use super::super::record::{Expected, Loaded, PutOutcome, Tracking, Version, Write};
use super::super::rng::Rng;
use super::super::watch::{CopyStatus, Source, Watcher};
use super::log::read_all;
use super::{Bench, PATIENCE, Violation, ensure, new_key, write};
use crate::FillId;

/// Checks the promises that must hold under any faults. Two instances change, lease, copy and log, `rounds` times each.
///
/// # Errors
/// Returns the first broken promise. Errors of the tier are ignored.
pub async fn check_under_faults(bench: &Bench, rounds: u32, seed: u64) -> Result<(), Violation> {
    let witness = Witness::new(["a", "b", "c"].map(new_key), bench.verification);
    let from = persist(|| async { Ok(bench.own.log_state().await?) }).await?.cursor();
    let workers = [&bench.own, &bench.other, &bench.own, &bench.other];
    let [one, two, three, four] = [0, 1, 2, 3].map(|number| {
        let chance = Rng::new(seed + number);
        let copies = Copies::of(&**workers[number as usize]);
        Worker { tier: &**workers[number as usize], witness: &witness, copies, chance, number }.work(rounds)
    });
    let (one, two, three, four) = tokio::join!(one, two, three, four);
    one.and(two).and(three).and(four)?;
    witness.check_log(bench, from).await
}

/// Knowledge shared by all workers.
struct Witness {
    keys: [Vec<u8>; 3],
    /// For each replaced version, the first time at which the replacement was known.
    superseded: Mutex<HashMap<(usize, Version), Instant>>,
    /// For each key, the time at which the latest granted lease was requested.
    last_asked: [AtomicU64; 3],
    /// Logical clock of all workers.
    moments: AtomicU64,
    appended: Mutex<Vec<Bytes>>,
    staleness_max: Duration,
}

impl Witness {
    fn new(keys: [Vec<u8>; 3], verification: Duration) -> Self {
        // The limit includes a margin for a busy machine.
        let staleness_max = verification * 2 + Duration::from_millis(300);
        Self {
            keys,
            superseded: Mutex::default(),
            last_asked: [const { AtomicU64::new(0) }; 3],
            moments: AtomicU64::new(0),
            appended: Mutex::default(),
            staleness_max,
        }
    }

    /// Checks that every acknowledged record is in the log, and no record twice.
    async fn check_log(&self, bench: &Bench, from: LogCursor) -> Result<(), Violation> {
        let mut reads = Vec::new();
        for tier in [&bench.own, &bench.other] {
            reads.push(persist(|| read_all(&**tier, from)).await?);
        }
        let [first, second] = [&reads[0], &reads[1]];
        // Other workers may have appended between the two reads.
        ensure(second.starts_with(first), 15, "all read the same")?;
        let read: HashSet<&Bytes> = first.iter().collect();
        ensure(read.len() == first.len(), 15, "no record appears twice")?;
        let appended = self.appended.lock();
        ensure(appended.iter().all(|record| read.contains(record)), 15, "acknowledged records are in the log")
    }
}

struct Worker<'w> {
    tier: &'w dyn Backing,
    witness: &'w Witness,
    copies: Arc<Copies>,
    chance: Rng,
    number: u64,
}

impl Worker<'_> {
    async fn work(mut self, rounds: u32) -> Result<(), Violation> {
        for round in 0..rounds {
            let key = (self.chance.next() % 3) as usize;
            let begun = Instant::now();
            let done = match self.chance.next() % 8 {
                0..=2 => self.change(key, round).await,
                3 => self.publish(key, round).await,
                4 => self.append(round).await,
                _ => self.look(key).await,
            };
            match done {
                Ok(()) | Err(Violation::TierFailed(_)) => {}
                broken @ Err(_) => return broken,
            }
            ensure(begun.elapsed() < PATIENCE, 19, "every operation answers within its deadline")?;
            sleep(Duration::from_micros(self.chance.next() % 4000)).await;
        }
        Ok(())
    }

    fn bytes(&self, key: usize, round: u32) -> Bytes {
        let name = String::from_utf8_lossy(&self.witness.keys[key]);
        Bytes::from(format!("{name} {} {round}", self.number))
    }

    fn ensure_own(&self, key: usize, found: &Loaded) -> Result<(), Violation> {
        let name = String::from_utf8_lossy(&self.witness.keys[key]);
        ensure(found.bytes.starts_with(name.as_bytes()), 1, "a load returns a record of the key")
    }

    async fn load(&self, key: usize, tracking: Tracking) -> Result<Option<Loaded>, Violation> {
        let found = self.tier.load(&[&self.witness.keys[key]], tracking).await?.pop().flatten();
        found.iter().try_for_each(|found| self.ensure_own(key, found))?;
        Ok(found)
    }

    /// Puts a record on condition of the version. At most one such put is stored.
    async fn change(&self, key: usize, round: u32) -> Result<(), Violation> {
        let known = self.load(key, Tracking::Off).await?;
        let expected = known.as_ref().map_or(Expected::Absent, Expected::Is);
        let write = write(&self.bytes(key, round), expected);
        if let (PutOutcome::Stored(_), Some(known)) =
            (self.tier.put(&self.witness.keys[key], write).await?, &known)
        {
            let before = self.witness.superseded.lock().insert((key, known.version), Instant::now());
            ensure(before.is_none(), 2, "of two puts on the same record, one is stored")?;
        }
        Ok(())
    }

    /// Publishes under a lease. A lease must not publish if a later one has been requested and granted.
    async fn publish(&self, key: usize, round: u32) -> Result<(), Violation> {
        let witness = self.witness;
        let mode = if round.is_multiple_of(4) { LeaseMode::Overwrite } else { LeaseMode::IfFree };
        let request = LeaseRequest { ttl: Duration::from_millis(20), note: b"worker", mode };
        let asked = witness.moments.fetch_add(1, SeqCst);
        let TakeOutcome::Taken(lease) = self.tier.take_lease(&witness.keys[key], request).await? else {
            return Ok(());
        };
        let taken = witness.moments.fetch_add(1, SeqCst);
        witness.last_asked[key].fetch_max(asked, SeqCst);
        sleep(Duration::from_millis(u64::from(round % 5))).await;
        let is_last = witness.last_asked[key].load(SeqCst) < taken;
        let write = Write { lease: Some(&lease), ..write(&self.bytes(key, round), Expected::Any) };
        let put = match round.is_multiple_of(2) {
            true => self.tier.put(&witness.keys[key], write).await?,
            false => self.tier.release_lease(&lease, write).await?,
        };
        ensure(is_last || !matches!(put, PutOutcome::Stored(_)), 12, "an older lease publishes nothing")
    }

    async fn append(&self, round: u32) -> Result<(), Violation> {
        let FillId { process, sequence } = FillId::next();
        let record = Bytes::from(format!("{process:x} {sequence} {} {round}", self.number));
        if let AppendOutcome::Taken(_) = self.tier.append_log(std::slice::from_ref(&record)).await? {
            self.witness.appended.lock().push(record);
        }
        Ok(())
    }

    /// Checks a copy. If a verified copy that isn't suspect has been replaced, this must have happened only a moment
    /// ago.
    async fn look(&self, key: usize) -> Result<(), Violation> {
        let looked = Instant::now();
        let copy = self.copies.of_key(&self.witness.keys[key]);
        let is_good = |copy: &Loaded| self.tier.standing(copy.source) == CopyStatus::Verified;
        if let Some(copy) = copy.filter(is_good) {
            let superseded = self.witness.superseded.lock().get(&(key, copy.version)).copied();
            let is_current = superseded.is_none_or(|at| looked <= at + self.witness.staleness_max);
            return ensure(is_current, 9, "changes older than the verification time are announced");
        }
        self.copies.expect(&self.witness.keys[key]);
        let found = self.load(key, Tracking::UntilChanged).await?;
        self.copies
            .keep(&self.witness.keys[key], found.filter(|found| found.tracking == Tracking::UntilChanged));
        Ok(())
    }
}

/// Copies of an instance, with a mark for each key that is set before the load.
#[derive(Default)]
struct Copies {
    kept: Mutex<HashMap<Vec<u8>, Slot>>,
}

enum Slot {
    Expected,
    Kept(Loaded),
}

impl Copies {
    fn of(tier: &dyn Backing) -> Arc<Self> {
        let copies = Arc::new(Self::default());
        let watcher: Weak<Self> = Arc::downgrade(&copies);
        tier.watch(watcher);
        copies
    }

    fn of_key(&self, key: &[u8]) -> Option<Loaded> {
        match self.kept.lock().get(key) {
            Some(Slot::Kept(copy)) => Some(copy.clone()),
            Some(Slot::Expected) | None => None,
        }
    }

    fn expect(&self, key: &[u8]) {
        self.kept.lock().insert(key.to_vec(), Slot::Expected);
    }

    /// Keeps a loaded record, unless a push arrived during the load.
    fn keep(&self, key: &[u8], found: Option<Loaded>) {
        let mut kept = self.kept.lock();
        let (Some(mark), Some(found)) = (kept.get_mut(key), found) else { return };
        *mark = Slot::Kept(found);
    }
}

impl Watcher for Copies {
    fn suspect(&self, keys: &[&[u8]]) {
        let mut kept = self.kept.lock();
        keys.iter().for_each(|key| drop(kept.remove(*key)));
    }

    fn all_suspect(&self, _source: Option<Source>) {
        self.kept.lock().clear();
    }

    fn log_changed(&self) {}
}

/// Repeats an operation until it succeeds or a promise is broken.
async fn persist<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Violation>
where
    F: Future<Output = Result<T, Violation>>,
{
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match ask().await {
            Err(Violation::TierFailed(_)) if left > 0 => sleep(Duration::from_millis(20)).await,
            answer => return answer,
        }
    }
}

const ATTEMPTS: u32 = 2000;
