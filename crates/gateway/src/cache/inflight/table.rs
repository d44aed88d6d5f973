//! Collapse requests (RFC 9111 section 4): one forward per key, any number of requests that wait for it.
//!
//! The forward belongs to nobody's connection (see `driven` for who drives it): a client that leaves takes
//! nobody with it. Those who wait are woken when the response head arrives and then follow the fill; nothing
//! is polled. Whoever can't use the answer (another variant, uncacheable) leaves and forwards alone.

mod purge;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use telemetry::trace::TraceContext;
use tokio::sync::Notify;

pub(crate) use self::purge::Doom;

use crate::cache::epochs::membership::LookUp;
use crate::cache::inflight::answer::Answer;
use crate::cache::inflight::order::{Exchanged, Order, Turn};
use crate::cache::inflight::relief;
use crate::cache::record::stored::StoredHead;
use crate::upstream::Interim;

/// Interim responses of one forward that are kept for those who wait for it: they are hints, and an origin may send
/// them without end.
const INTERIMS_KEPT_MAX: usize = 32;

/// Fetches in progress, by cache key, variant and scope.
pub(crate) struct FetchTable {
    shards: Box<[Shard]>,
    /// How often something was invalidated, by hash of the key.
    invalidations: Box<[AtomicU64]>,
    hasher: RandomState,
    lone: AtomicU64,
    turns: AtomicU64,
}

type Shard = Mutex<Listed>;
type Listed = HashMap<Box<[u8]>, Arc<InFlight>>;

/// One forward in progress.
pub(crate) struct InFlight {
    key: Box<[u8]>,
    primary_bytes: usize,
    began: Turn,
    /// For those who want to join it: what is looked up from then on, this one answers. `None` where nobody can join.
    open_since: Option<LookUp>,
    order: relief::Order,
    /// Where it is listed, once that is another place.
    moved: OnceLock<Box<[u8]>>,
    /// The forward that takes this one's place for those who wait. Set under the lock of the shard.
    relief: OnceLock<Arc<Self>>,
    /// Where the request is recorded that leads it.
    trace: OnceLock<TraceContext>,
    progress: Mutex<Progress>,
    changed: Notify,
    waiters: Arc<AtomicUsize>,
    invalidated: AtomicBool,
    personal: AtomicBool,
}

#[derive(Default)]
struct Progress {
    interims: Vec<Arc<Interim>>,
    answer: Option<Answer>,
    answered: Turn,
    rival: Option<Arc<StoredHead>>,
}

/// How a request takes part in a forward.
pub(crate) enum Join {
    /// It must start the forward.
    Lead(Waiter),
    /// It waits for one that is under way.
    Wait(Waiter),
    /// Too many wait already.
    Full,
}

const SHARDS: usize = 64;
const INVALIDATION_COUNTS: usize = 1024;

/// How often forwards for a key, or for one of those that share its count, were invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invalidations(u64);

impl FetchTable {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let invalidations = (0..INVALIDATION_COUNTS).map(|_| AtomicU64::new(0)).collect();
        let hasher = RandomState::new();
        Self { shards, invalidations, hasher, lone: AtomicU64::new(0), turns: AtomicU64::new(0) }
    }

    /// The next turn. To be taken before a request is sent for a forward that is listed only once its response is there.
    pub(crate) fn turn(&self) -> Turn {
        Turn::new(self.turns.fetch_add(1, Ordering::AcqRel))
    }

    /// Joins the forward for `primary` + `variant`, or becomes the one that starts it. One that was overtaken by an
    /// invalidation of its URL, which is more than [`Self::invalidate`] knows the keys of, makes room.
    pub(crate) fn join(
        &self,
        (primary, variant): (&[u8], &[u8]),
        waiters_max: usize,
        now: LookUp,
        is_overtaken: impl Fn(LookUp) -> bool,
    ) -> Join {
        let key = [primary, variant].concat();
        let mut shard = self.shard(primary).lock();
        if let Some(listed) = shard.get(key.as_slice()).filter(|listed| !listed.makes_room(&is_overtaken)) {
            let relief = listed.relief.get().filter(|relief| is_listed(&shard, relief));
            let in_flight = relief.unwrap_or(listed);
            if in_flight.waiters.load(Ordering::Relaxed) > waiters_max {
                return Join::Full;
            }
            return Join::Wait(Waiter::new(in_flight));
        }
        let in_flight =
            InFlight::new(key.into_boxed_slice(), primary.len(), self.turn(), relief::Order::First);
        let in_flight = Arc::new(InFlight { open_since: Some(now), ..in_flight });
        shard.insert(in_flight.key.clone(), Arc::clone(&in_flight));
        Join::Lead(Waiter::new(&in_flight))
    }

    /// Takes part in the forward that relieves the one of `waiter`: starts it, unless another has. There is one
    /// relief, whoever asks for it and when: it may have failed before some of those who wait learn that it began.
    pub(crate) fn relieve(&self, waiter: &Waiter, now: LookUp) -> Join {
        let late = &waiter.in_flight;
        let mut shard = self.shard(late.primary()).lock();
        if let Some(relief) = late.relief.get() {
            return Join::Wait(Waiter::new(relief));
        }
        let (key, joined) = match shard.get(&late.key) {
            // It is still under way, and stays listed: who wants to join it is sent on to the relief.
            Some(listed) if Arc::ptr_eq(listed, late) => (self.lone_key(late.primary()), None),
            // A request that came in between has begun anew.
            Some(other) => (late.key.clone(), Some(Arc::clone(other))),
            None => (late.key.clone(), None),
        };
        let is_begun = joined.is_some();
        let relief = joined.unwrap_or_else(|| {
            let relief = InFlight::new(key, late.primary_bytes, self.turn(), relief::Order::Relief);
            let relief = Arc::new(InFlight { open_since: Some(now), ..relief });
            shard.insert(relief.key.clone(), Arc::clone(&relief));
            relief
        });
        let waiter = Waiter::new(&relief);
        // Under the lock of the shard nobody else has set it.
        let _ = late.relief.set(relief);
        if is_begun { Join::Wait(waiter) } else { Join::Lead(waiter) }
    }

    /// Who wants what this forward brings begins anew from now on: its answer is too old for those who wait. It may still be stored, and stays
    /// listed, so that it can be invalidated.
    pub(crate) fn make_room(&self, waiter: &Waiter) {
        let in_flight = &waiter.in_flight;
        let mut shard = self.shard(in_flight.primary()).lock();
        if in_flight.moved.get().is_none() && is_listed(&shard, in_flight) {
            shard.remove(&in_flight.key);
            let key = in_flight.moved.get_or_init(|| self.lone_key(in_flight.primary())).clone();
            shard.insert(key, Arc::clone(in_flight));
        }
    }

    /// How much of a complete response a forward in progress has brought; `None` without such a forward.
    pub(crate) fn arrived_bytes(&self, primary: &[u8], variant: &[u8]) -> Option<u64> {
        let in_flight = self.shard(primary).lock().get([primary, variant].concat().as_slice()).cloned()?;
        let progress = in_flight.progress.lock();
        match &progress.answer {
            None => Some(0),
            Some(Answer::Filling(filling)) => Some(filling.fill.arrived_bytes()),
            Some(_) => None,
        }
    }

    /// A forward that nobody can join. It is listed all the same, so that it can be invalidated.
    pub(crate) fn alone(&self, primary: &[u8]) -> Waiter {
        self.list_alone(primary, self.turn())
    }

    fn list_alone(&self, primary: &[u8], began: Turn) -> Waiter {
        let in_flight =
            Arc::new(InFlight::new(self.lone_key(primary), primary.len(), began, relief::Order::First));
        self.shard(primary).lock().insert(in_flight.key.clone(), Arc::clone(&in_flight));
        Waiter::new(&in_flight)
    }

    /// A key that nobody else asks for.
    fn lone_key(&self, primary: &[u8]) -> Box<[u8]> {
        let number = self.lone.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        // No variant begins so: it would be longer than any memory.
        [primary, &[0xff; 8], &number].concat().into_boxed_slice()
    }

    /// To be taken before a request is sent for a forward that is listed only once its response is there.
    pub(crate) fn invalidations(&self, primary: &[u8]) -> Invalidations {
        Invalidations(self.invalidation_count(primary).load(Ordering::Acquire))
    }

    /// A forward that nobody can join, which began at this turn, when the invalidations were these.
    pub(crate) fn alone_since(&self, primary: &[u8], began: Turn, invalidations: Invalidations) -> Waiter {
        let waiter = self.list_alone(primary, began);
        if self.invalidations(primary) != invalidations {
            waiter.in_flight.invalidated.store(true, Ordering::Release);
        }
        waiter
    }

    /// Forbids all forwards in progress for `primary` but `spared` to store what they bring, and hides them from new
    /// requests. Returns how many there were.
    pub(crate) fn invalidate(&self, primary: &[u8], spared: Option<&Waiter>) -> usize {
        let mut shard = self.shard(primary).lock();
        self.invalidation_count(primary).fetch_add(1, Ordering::AcqRel);
        let before = shard.len();
        shard.retain(|_, in_flight| {
            let is_spared = spared.is_some_and(|spared| Arc::ptr_eq(&spared.in_flight, in_flight));
            let hit = in_flight.primary() == primary && !is_spared;
            if hit {
                in_flight.doom();
            }
            !hit
        });
        before - shard.len()
    }

    /// The same for those that a newer response replaces, whose bodies are still on the way. A client that has read from both has
    /// seen the newer one last, and must not get the older one again. Those that may be older or newer get it as their rival.
    //= RFC 9111 section 4: the most recent of several
    pub(crate) fn supersede(
        &self,
        (primary, by): (&[u8], Exchanged),
        rival: &Arc<StoredHead>,
        is_replaced: impl Fn(&Arc<StoredHead>) -> bool,
    ) {
        let mut shard = self.shard(primary).lock();
        shard.retain(|_, in_flight| {
            // The one that brings it is in no order with itself.
            if in_flight.primary() != primary || in_flight.began == by.began {
                return true;
            }
            let mut progress = in_flight.progress.lock();
            let answered = match &progress.answer {
                Some(Answer::Filling(filling)) if is_replaced(&filling.head) => Some(progress.answered),
                Some(_) => return true,
                None => None,
            };
            match (Exchanged { began: in_flight.began, answered }).order(by) {
                Order::Before => in_flight.invalidated.store(true, Ordering::Release),
                Order::Unknown => progress.rival = Some(Arc::clone(rival)),
                Order::After => {}
            }
            !in_flight.is_invalidated()
        });
    }

    /// Forwards in progress whose answer may be stored.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whoever has come since a purge has begun anew, and stays listed in its place.
    fn list_again(&self, in_flight: &Arc<InFlight>) {
        let mut shard = self.shard(in_flight.primary()).lock();
        if is_listed(&shard, in_flight) || !in_flight.is_invalidated() {
            return;
        }
        if shard.contains_key(in_flight.listed_as()) {
            let _ = in_flight.moved.set(self.lone_key(in_flight.primary()));
        }
        in_flight.invalidated.store(false, Ordering::Release);
        shard.insert(in_flight.listed_as().into(), Arc::clone(in_flight));
    }

    fn remove(&self, in_flight: &Arc<InFlight>) {
        let mut shard = self.shard(in_flight.primary()).lock();
        if is_listed(&shard, in_flight) {
            shard.remove(in_flight.listed_as());
        }
    }

    fn invalidation_count(&self, primary: &[u8]) -> &AtomicU64 {
        &self.invalidations[self.hasher.hash_one(primary) as usize % INVALIDATION_COUNTS]
    }

    fn shard(&self, primary: &[u8]) -> &Shard {
        &self.shards[self.hasher.hash_one(primary) as usize % SHARDS]
    }
}

fn is_listed(shard: &Listed, in_flight: &Arc<InFlight>) -> bool {
    shard.get(in_flight.listed_as()).is_some_and(|listed| Arc::ptr_eq(listed, in_flight))
}

impl InFlight {
    fn new(key: Box<[u8]>, primary_bytes: usize, began: Turn, order: relief::Order) -> Self {
        Self {
            key,
            primary_bytes,
            began,
            open_since: None,
            order,
            moved: OnceLock::new(),
            relief: OnceLock::new(),
            trace: OnceLock::new(),
            progress: Mutex::default(),
            changed: Notify::new(),
            waiters: Arc::default(),
            invalidated: AtomicBool::new(false),
            personal: AtomicBool::new(false),
        }
    }

    fn primary(&self) -> &[u8] {
        &self.key[..self.primary_bytes]
    }

    fn listed_as(&self) -> &[u8] {
        self.moved.get().unwrap_or(&self.key)
    }

    /// Whether who wants to join it begins anew in its place. What it brings is not stored then: it is listed no longer.
    fn makes_room(&self, is_overtaken: impl Fn(LookUp) -> bool) -> bool {
        let makes_room = self.open_since.is_some_and(is_overtaken);
        if makes_room {
            self.doom();
        }
        makes_room
    }

    /// The request that leads it is recorded there, if at all.
    pub(crate) fn is_led_by(&self, trace: Option<TraceContext>) {
        if let Some(trace) = trace {
            let _ = self.trace.set(trace);
        }
    }

    /// Between which turns the origin has answered it.
    pub(crate) fn exchanged(&self) -> Exchanged {
        let progress = self.progress.lock();
        Exchanged { began: self.began, answered: progress.answer.as_ref().map(|_| progress.answered) }
    }

    /// What others got meanwhile, and may be newer.
    pub(crate) fn rival(&self) -> Option<Arc<StoredHead>> {
        self.progress.lock().rival.clone()
    }

    /// Whether the origin answered this request, and no other, with something that isn't stored, and isn't a failure of its own.
    pub(crate) fn is_answered_in_vain(&self) -> bool {
        let progress = self.progress.lock();
        matches!(&progress.answer, Some(Answer::Private(private)) if private.status < 500)
    }

    /// Whether a purge, an invalidation or a newer response came since the forward began.
    pub(crate) fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Acquire)
    }

    /// Nothing that it brings is stored, from now on.
    fn doom(&self) {
        self.invalidated.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Resolves when that is so.
    pub(crate) async fn doomed(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_invalidated() {
                return;
            }
            changed.await;
        }
    }

    /// The answer may be one user's, until its head tells: interim responses are for the leader.
    pub(crate) fn make_personal(&self) {
        self.personal.store(true, Ordering::Release);
    }

    /// The count of requests that wait for the answer, for the fill.
    pub(crate) fn promised(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiters)
    }

    /// Keeps an interim response for those who wait and those who join; too many are not kept.
    //= RFC 8297 section 2: 103 says nothing about the final response
    pub(crate) fn push_interim(&self, interim: Interim) {
        let mut progress = self.progress.lock();
        if progress.interims.len() < INTERIMS_KEPT_MAX {
            progress.interims.push(Arc::new(interim));
            drop(progress);
            self.changed.notify_waiters();
        }
    }

    /// Resolves when nobody waits for an answer that is not there yet.
    pub(crate) async fn nobody_waits(&self) {
        self.until(|waiters, is_answered| waiters == 0 && !is_answered).await;
    }

    /// Resolves when somebody does, or the answer is there.
    pub(crate) async fn somebody_waits(&self) {
        self.until(|waiters, is_answered| waiters > 0 || is_answered).await;
    }

    async fn until(&self, holds: impl Fn(usize, bool) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let is_answered = self.progress.lock().answer.is_some();
            if holds(self.waiters.load(Ordering::Acquire), is_answered) {
                return;
            }
            changed.await;
        }
    }

    fn settle(&self, answer: Answer, turn: Turn) {
        let mut progress = self.progress.lock();
        if progress.answer.is_none() {
            (progress.answer, progress.answered) = (Some(answer), turn);
        }
        drop(progress);
        self.changed.notify_waiters();
    }
}

/// What the leader of a fetch holds: whatever happens to the task, those who wait are told and the table is cleared.
pub(crate) struct LeaderGuard {
    in_flight: Arc<InFlight>,
    fetch_table: Arc<FetchTable>,
}

impl LeaderGuard {
    pub(crate) fn new(waiter: &Waiter, fetch_table: &Arc<FetchTable>) -> Self {
        Self { in_flight: Arc::clone(&waiter.in_flight), fetch_table: Arc::clone(fetch_table) }
    }

    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The same, to keep.
    pub(crate) fn shared_in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// The forward has only waited until now, and asks the origin next: purges of before have taken nothing of what it will bring. Those that
    /// come from now on find it.
    pub(crate) fn begins_now(&self) {
        self.fetch_table.list_again(&self.in_flight);
    }

    /// Announces the answer; the fetch stays open for others to join.
    pub(crate) fn announce(&self, answer: Answer) {
        self.in_flight.settle(answer, self.fetch_table.turn());
    }

    /// Hides the fetch from requests that come later; those who wait still get the answer.
    pub(crate) fn hide(&self) {
        self.fetch_table.remove(&self.in_flight);
    }

    /// Announces the answer and closes the fetch: who comes later looks into the store or forwards anew.
    pub(crate) fn land(self, answer: Answer) {
        self.fetch_table.remove(&self.in_flight);
        self.in_flight.settle(answer, self.fetch_table.turn());
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        self.fetch_table.remove(&self.in_flight);
        self.in_flight.settle(Answer::GivenUp, self.fetch_table.turn());
    }
}

/// A request that takes part in a fetch.
pub(crate) struct Waiter {
    in_flight: Arc<InFlight>,
    interims_seen: usize,
}

/// What a waiter learns next.
pub(crate) enum News {
    Interim(Arc<Interim>),
    Answer(Answer),
}

impl Waiter {
    fn new(in_flight: &Arc<InFlight>) -> Self {
        if in_flight.waiters.fetch_add(1, Ordering::AcqRel) == 0 {
            in_flight.changed.notify_waiters();
        }
        Self { in_flight: Arc::clone(in_flight), interims_seen: 0 }
    }

    /// Whether its forward is a relief.
    pub(crate) fn order(&self) -> relief::Order {
        self.in_flight.order
    }

    /// Where the request is recorded that leads its forward.
    pub(crate) fn leader_trace(&self) -> Option<TraceContext> {
        self.in_flight.trace.get().copied()
    }

    /// Whether interim responses are for the leader alone.
    pub(crate) fn is_personal(&self) -> bool {
        self.in_flight.personal.load(Ordering::Acquire)
    }

    /// The next interim response, or the answer. May be dropped, and called again.
    pub(crate) async fn news(&mut self) -> News {
        let in_flight = Arc::clone(&self.in_flight);
        loop {
            let changed = in_flight.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(news) = self.poll_news() {
                return news;
            }
            changed.await;
        }
    }

    /// The same, if it is there.
    pub(crate) fn poll_news(&mut self) -> Option<News> {
        let progress = self.in_flight.progress.lock();
        if let Some(interim) = progress.interims.get(self.interims_seen) {
            self.interims_seen += 1;
            return Some(News::Interim(Arc::clone(interim)));
        }
        progress.answer.clone().map(News::Answer)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.in_flight.waiters.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.in_flight.changed.notify_waiters();
        }
        if let Some(Answer::Filling(filling)) = &self.in_flight.progress.lock().answer {
            filling.fill.promise_kept();
        }
    }
}
