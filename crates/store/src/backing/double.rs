//! Test double of a tier behind memory: it exists in this process, keeps the whole contract, and fails on demand.
//!
//! Instances share a [`DoubleServer`]; each has its own connection, a [`Double`], with its own faults, which follow from a seed. Time is
//! tokio's, so a test may pause it; call everything inside a tokio runtime. A double has no deadlines: wrap it in [`Guarded`] like any
//! other tier.

mod behaviour;
mod link;
mod state;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use breaker::{Options, Settings};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

pub use self::behaviour::Behaviour;

use self::behaviour::{FaultKind, FaultTiming};
use self::link::{Link, Push};
use self::state::{Change, HeldLease, LinkId, NewRecord, State};
use super::contract::{Backing, Pending};
use super::error::BackingError;
use super::guard::{Deadlines, Guarded};
use super::lease::{LEASE_NOTE_BYTES_MAX, Lease, LeaseMode, LeaseRequest, RenewOutcome, TakeOutcome, Token};
use super::log::{AppendOutcome, LOG_APPEND_BYTES_MAX, LogCursor, LogId, LogPart, LogState};
use super::record::{
    Expected, KEY_BYTES_MAX, Loaded, PutOutcome, RECORD_BYTES_MAX, SEGMENT_FRAME_BYTES_MAX, Tracking,
    Version, WaitOutcome, Write,
};
use super::rng::Rng;
use super::watch::{CopyStatus, Source, Watcher};
use crate::{FillId, Refusal, SegmentId, SegmentPut};

/// Limits of a double.
#[derive(Debug, Clone, Copy)]
pub struct DoubleLimits {
    /// Maximum size of all records and segments; beyond it, entries are evicted.
    pub bytes_max: usize,
    /// Maximum number of followed keys, for all instances together.
    pub tracked_max: usize,
    /// Time for which a silent connection can be relied upon.
    pub verification: Duration,
}

impl Default for DoubleLimits {
    fn default() -> Self {
        Self { bytes_max: 64 << 20, tracked_max: 10_000, verification: Duration::from_secs(2) }
    }
}

/// A server that instances share.
#[derive(Clone)]
pub struct DoubleServer {
    shared: Arc<Shared>,
}

/// State of a server at some point in time.
pub struct Saved(State);

struct Shared {
    state: Mutex<State>,
    chance: Mutex<Rng>,
    links: Mutex<Vec<Weak<Link>>>,
    links_count: AtomicU32,
    changed: Notify,
    limits: DoubleLimits,
    begun: Instant,
}

/// Connection of one instance, shared by all clones.
#[derive(Clone)]
pub struct Double {
    shared: Arc<Shared>,
    link: Arc<Link>,
}

impl DoubleServer {
    /// Creates an empty server. Ids and tokens follow from the seed.
    pub fn new(limits: DoubleLimits, seed: u64) -> Self {
        let mut chance = Rng::new(seed);
        let state = State::new(limits.bytes_max, limits.tracked_max, LogId(chance.id()));
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                chance: Mutex::new(chance),
                links: Mutex::default(),
                links_count: AtomicU32::new(0),
                changed: Notify::new(),
                limits,
                begun: Instant::now(),
            }),
        }
    }

    /// Connects an instance.
    pub fn connect(&self, behaviour: Behaviour) -> Double {
        let id = self.shared.links_count.fetch_add(1, Relaxed);
        let link = Link::new(id, self.shared.limits.verification, behaviour);
        let mut links = self.shared.links.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        drop(links);
        Double { shared: Arc::clone(&self.shared), link }
    }

    /// Loses the log, as a fail-over to an empty server would.
    pub fn lose_log(&self) {
        let next = LogId(self.shared.chance.lock().id());
        self.shared.act(|state, _| state.lose_log(next));
    }

    /// Returns the current state, which [`Self::set_back`] can restore.
    pub fn saved(&self) -> Saved {
        Saved(self.shared.act(|state, _| state.clone()))
    }

    /// Returns to an earlier state, as a fail-over to a replica would: every connection ends, and is replaced by a new one.
    pub fn set_back(&self, saved: &Saved) {
        self.shared.act(|state, _| state.set_back(&saved.0));
        let links: Vec<_> = self.shared.links.lock().iter().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|link| reconnect(&self.shared, link));
    }

    /// Restores the record that was saved under a key, if there was one.
    pub fn set_record_back(&self, saved: &Saved, key: &[u8]) {
        self.shared.act(|state, _| state.set_record_back(&saved.0, key));
    }

    /// Returns the record under a key.
    pub fn record(&self, key: &[u8]) -> Option<Bytes> {
        self.shared.act(|state, _| state.record(key)).map(|(bytes, _)| bytes)
    }

    /// Evicts a record or a segment, selected by the number.
    pub fn evict(&self, which: u64) {
        self.shared.act(|state, _| state.evict(which));
    }
}

impl Double {
    /// Changes the behaviour from now on. Faults that were already drawn still happen.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.link.behaviour.lock() = behaviour;
    }

    /// Returns the same connection behind the default deadlines and a circuit breaker that opens late.
    pub fn guarded(&self) -> Guarded {
        let options = Options { requests_min: 1000, ..Options::default() };
        let settings = Settings::new(options).expect("defaults with one valid change are valid");
        Guarded::new(Box::new(self.clone()), Deadlines::default(), settings)
    }

    /// Returns the number of requested operations.
    pub fn operations(&self) -> u64 {
        self.link.operations.load(Relaxed)
    }

    /// Breaks the connection, and reconnects.
    pub fn reconnect(&self) {
        reconnect(&self.shared, &self.link);
    }

    /// Runs one operation: latency, fault, effect, latency, reply.
    async fn ask<T>(&self, effect: impl FnOnce(&mut State, u64) -> T) -> Result<T, BackingError> {
        let faults = self.link.faults();
        let half = self.link.behaviour().latency / 2;
        delay(half).await;
        if let Some((fault, FaultTiming::BeforeEffect)) = faults.fault {
            return fail_with(fault).await;
        }
        let answer = self.shared.act(|state, now_ms| {
            if let Some(which) = faults.evicted {
                state.evict(which);
            }
            effect(state, now_ms)
        });
        delay(half).await;
        match faults.fault {
            Some((fault, _)) => fail_with(fault).await,
            None => Ok(answer),
        }
    }

    /// Runs one operation that changes a record.
    async fn change<T>(
        &self,
        key: &[u8],
        effect: impl FnOnce(&mut State, u64) -> T,
    ) -> Result<T, BackingError> {
        if self.link.behaviour().is_contended(key) {
            return Err(BackingError::Contended { attempts: 1 });
        }
        self.ask(effect).await
    }

    /// Makes a put take effect late, after its caller has stopped waiting.
    async fn put_late(
        &self,
        key: &[u8],
        write: &Write<'_>,
        late: Duration,
    ) -> Result<PutOutcome, BackingError> {
        let (double, key, bytes, ttl) = (self.clone(), key.to_vec(), write.bytes.clone(), write.ttl);
        let (known, is_absent) = match write.expected {
            Expected::Is(known) => (Some(known.clone()), false),
            expected => (None, matches!(expected, Expected::Absent)),
        };
        tokio::spawn(async move {
            sleep(late).await;
            let expected = match &known {
                Some(known) => Expected::Is(known),
                None if is_absent => Expected::Absent,
                None => Expected::Any,
            };
            let write = Write { bytes, expected, ttl, lease: None };
            double.shared.act(|state, now_ms| double.put_one(state, &key, &write, now_ms));
        });
        std::future::pending().await
    }

    fn loaded(&self, state: &State, key: &[u8], tracking: Tracking) -> Option<Loaded> {
        let (bytes, version) = state.record(key)?;
        Some(Loaded { bytes, version, source: self.link.source(), tracking })
    }

    fn load_one(&self, state: &mut State, key: &[u8], tracking: Tracking) -> Option<Loaded> {
        let tracked = tracking == Tracking::UntilChanged && state.track(key, self.link.id);
        self.loaded(state, key, if tracked { Tracking::UntilChanged } else { Tracking::Off })
    }

    fn put_one(&self, state: &mut State, key: &[u8], write: &Write<'_>, now_ms: u64) -> PutOutcome {
        if write.bytes.len() > RECORD_BYTES_MAX || key.len() > KEY_BYTES_MAX {
            return PutOutcome::NotStored(Refusal::TooLarge);
        }
        if write.lease.is_some_and(|lease| *lease.key != *key || !state.is_held(key, lease.token)) {
            return PutOutcome::LeaseLost;
        }
        let current = self.loaded(state, key, Tracking::Off);
        let is_expected = match write.expected {
            Expected::Any => true,
            Expected::Absent => current.is_none(),
            Expected::Is(known) => current.as_ref().is_some_and(|current| current.version == known.version),
        };
        if !is_expected {
            return PutOutcome::Conflict(current);
        }
        let record = NewRecord { bytes: write.bytes.clone(), ends_at_ms: ends_at_ms(now_ms, write.ttl) };
        PutOutcome::Stored(state.put(key, record))
    }

    /// Returns the result of a wait if it ends now, or else how long it may continue. `lease_ends_at_ms` is the last known expiry of the
    /// lease.
    fn waited(
        &self,
        key: &[u8],
        seen: Option<Version>,
        lease_ends_at_ms: &mut u64,
    ) -> Result<WaitOutcome, Duration> {
        self.shared.act(|state, now_ms| {
            let current = self.loaded(state, key, Tracking::Off);
            if current.as_ref().map(|current| current.version) != seen {
                return Ok(WaitOutcome::Changed(current));
            }
            match state.lease(key) {
                None if *lease_ends_at_ms <= now_ms => Ok(WaitOutcome::Expired),
                None => Ok(WaitOutcome::Free),
                Some(held) => {
                    *lease_ends_at_ms = held.ends_at_ms;
                    let record_ends_at_ms = state.record_ends_at_ms(key).unwrap_or(u64::MAX);
                    let next_ms = held.ends_at_ms.min(record_ends_at_ms);
                    Err(Duration::from_millis(next_ms.saturating_sub(now_ms).max(1)))
                }
            }
        })
    }

    async fn wait_for(&self, key: &[u8], seen: Option<Version>, limit: Duration) -> WaitOutcome {
        let end = Instant::now() + limit;
        let mut lease_ends_at_ms = u64::MAX;
        loop {
            // `changed` receives all changes from here on, so none is missed between the check and the wait.
            let changed = self.shared.changed.notified();
            let next = match self.waited(key, seen, &mut lease_ends_at_ms) {
                Ok(waited) => return waited,
                Err(left) => left,
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return WaitOutcome::StillHeld;
            }
            let _ = timeout(left.min(next), changed).await;
        }
    }
}

impl Shared {
    /// Applies an effect, and announces its changes before the caller gets the reply.
    fn act<T>(self: &Arc<Self>, effect: impl FnOnce(&mut State, u64) -> T) -> T {
        let (answer, changes) = {
            let mut state = self.state.lock();
            let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            state.expire(now_ms);
            let answer = effect(&mut state, now_ms);
            (answer, state.take_changes())
        };
        if !changes.is_empty() {
            self.changed.notify_waiters();
        }
        changes.into_iter().for_each(|change| self.tell(change));
        answer
    }

    fn tell(self: &Arc<Self>, change: Change) {
        let links: Vec<_> = self.links.lock().iter().filter_map(Weak::upgrade).collect();
        let (told, push): (Vec<LinkId>, Push) = match change {
            Change::Record { key, told } => (told, Push::Suspect(key)),
            Change::Log => (links.iter().map(|link| link.id).collect(), Push::Log),
        };
        for link in links.into_iter().filter(|link| told.contains(&link.id)) {
            let broken = (Arc::clone(self), Arc::clone(&link));
            link::send(&link, &push, move || reconnect(&broken.0, &broken.1));
        }
    }
}

fn reconnect(shared: &Shared, link: &Link) {
    // Loads from now on are tracked anew, with the new source.
    shared.state.lock().untrack_all(link.id);
    link.reconnect();
}

async fn delay(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

async fn fail_with<T>(fault: FaultKind) -> Result<T, BackingError> {
    match fault {
        FaultKind::Unreachable => Err(BackingError::Unreachable("injected failure".into())),
        FaultKind::Silent => std::future::pending().await,
    }
}

fn ends_at_ms(now_ms: u64, ttl: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

impl Backing for Double {
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>> {
        Box::pin(
            self.ask(move |state, _| keys.iter().map(|key| self.load_one(state, key, tracking)).collect()),
        )
    }

    fn put<'a>(&'a self, key: &'a [u8], write: Write<'a>) -> Pending<'a, PutOutcome> {
        Box::pin(async move {
            match self.link.behaviour().late_puts {
                Duration::ZERO => {
                    self.change(key, |state, now_ms| self.put_one(state, key, &write, now_ms)).await
                }
                late => self.put_late(key, &write, late).await,
            }
        })
    }

    fn remove<'a>(&'a self, key: &'a [u8]) -> Pending<'a, bool> {
        Box::pin(self.change(key, move |state, _| state.remove(key)))
    }

    fn load_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>> {
        Box::pin(self.ask(move |state, _| {
            indexes.iter().map(|&index| state.segment(SegmentId { fill, index })).collect()
        }))
    }

    fn put_segment(&self, id: SegmentId, bytes: Bytes, ttl: Duration) -> Pending<'_, SegmentPut> {
        Box::pin(self.ask(move |state, now_ms| {
            if bytes.len() > SEGMENT_FRAME_BYTES_MAX {
                return SegmentPut::NotStored(Refusal::TooLarge);
            }
            let is_first = state.put_segment(id, bytes, ends_at_ms(now_ms, ttl));
            if is_first { SegmentPut::Stored } else { SegmentPut::AlreadyThere }
        }))
    }

    fn extend_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32], ttl: Duration) -> Pending<'a, usize> {
        Box::pin(self.ask(move |state, now_ms| state.extend_segments(fill, indexes, ends_at_ms(now_ms, ttl))))
    }

    fn remove_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, ()> {
        Box::pin(self.ask(move |state, _| state.remove_segments(fill, indexes)))
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.link.watchers.add(watcher);
    }

    fn source(&self) -> Source {
        self.link.source()
    }

    fn standing(&self, source: Source) -> CopyStatus {
        self.link.standing(source)
    }

    fn clock_ahead_ms(&self) -> Option<i64> {
        Some(0)
    }

    fn take_lease<'a>(&'a self, key: &'a [u8], request: LeaseRequest<'a>) -> Pending<'a, TakeOutcome> {
        Box::pin(self.ask(move |state, now_ms| {
            if let (Some(held), LeaseMode::IfFree) = (state.lease(key), request.mode) {
                let left = Duration::from_millis(held.ends_at_ms.saturating_sub(now_ms));
                return TakeOutcome::Held { note: held.note.clone(), left };
            }
            let token = Token(self.shared.chance.lock().id());
            let note = request.note[..request.note.len().min(LEASE_NOTE_BYTES_MAX)].into();
            state.hold(key, HeldLease { token, note, ends_at_ms: ends_at_ms(now_ms, request.ttl) });
            TakeOutcome::Taken(Lease { key: key.into(), token })
        }))
    }

    fn renew_lease<'a>(&'a self, lease: &'a Lease, ttl: Duration) -> Pending<'a, RenewOutcome> {
        Box::pin(self.ask(move |state, now_ms| {
            if !state.is_held(&lease.key, lease.token) {
                return RenewOutcome::Lost;
            }
            state.renew(&lease.key, ends_at_ms(now_ms, ttl));
            RenewOutcome::Renewed
        }))
    }

    fn release_lease<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome> {
        Box::pin(self.change(&lease.key, move |state, now_ms| {
            let write = Write { lease: Some(lease), ..write };
            let put = self.put_one(state, &lease.key, &write, now_ms);
            if matches!(put, PutOutcome::Stored(_)) {
                state.free(&lease.key);
            }
            put
        }))
    }

    fn wait<'a>(&'a self, key: &'a [u8], seen: Option<Version>, limit: Duration) -> Pending<'a, WaitOutcome> {
        Box::pin(async move {
            self.ask(|_, _| ()).await?;
            Ok(self.wait_for(key, seen, limit).await)
        })
    }

    fn log_state(&self) -> Pending<'_, LogState> {
        Box::pin(self.ask(|state, _| state.log()))
    }

    fn append_log<'a>(&'a self, records: &'a [Bytes]) -> Pending<'a, AppendOutcome> {
        Box::pin(self.ask(move |state, _| {
            if records.iter().map(Bytes::len).sum::<usize>() > LOG_APPEND_BYTES_MAX {
                return AppendOutcome::NotStored(Refusal::TooLarge);
            }
            AppendOutcome::Taken(state.append(records))
        }))
    }

    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart> {
        Box::pin(self.ask(move |state, _| state.read_log(from)))
    }

    fn trim_log(&self, floor: LogCursor) -> Pending<'_, LogState> {
        Box::pin(self.ask(move |state, _| state.trim_log(floor)))
    }

    fn rename_log(&self, read: LogCursor) -> Pending<'_, LogState> {
        Box::pin(self.ask(move |state, _| state.rename_log(read, || LogId(self.shared.chance.lock().id()))))
    }
}
