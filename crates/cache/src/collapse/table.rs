//! Collapses requests (RFC 9111 section 4): one forward per key, with any number of waiters.
//!
//! A forward belongs to no connection: it runs in `crates/gateway/src/request/fetch/job.rs`, and continues for the other clients if one
//! leaves. Waiters are woken when the response head arrives and then follow the fill; nothing is polled. A request that can't use the
//! answer (another variant, or uncacheable) leaves and forwards alone. If a forward fails, the other waiters of its crowd forward in turn
//! (`turns`).
//!
//! Locks, in order: a shard, a crowd, the progress of a forward.

mod crowd;
mod leader;
mod purge;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use telemetry::trace::TraceContext;
use tokio::sync::Notify;

use self::crowd::Crowd;

pub use self::crowd::{Asker, Learned, Waiting};
pub use self::leader::{LeaderGuard, News, Waiter};
pub use self::purge::Doom;

use origin::Interim;

use crate::changed::until;
use crate::collapse::answer::Answer;
use crate::collapse::order::{Exchanged, Order, Sequence};
use crate::collapse::turns::{Effect, Ended};
use crate::entry::stored::StoredHead;
use crate::membership::LookUp;
use crate::settings::CollapseLimits;
use crate::sharded::Sharded;

/// Maximum number of interim responses that a forward keeps for its waiters. They are only hints, and an origin may send any number.
const INTERIMS_KEPT_MAX: usize = 32;

/// Fetches in progress, by cache key, variant and scope.
#[derive(Default)]
pub struct FetchTable {
    shards: Sharded<Listed>,
    /// Invalidation counts, by hash of the key.
    invalidations: Sharded<u64, 1024>,
    turns: AtomicU64,
}

#[derive(Default)]
struct Listed {
    /// Forwards whose answer may be stored, listed so that they can be invalidated.
    forwards: HashMap<Sequence, Arc<InFlight>>,
    /// Crowds that can be joined, by cache key, variant and scope.
    crowds: HashMap<Box<[u8]>, Arc<Crowd>>,
}

/// One forward in progress.
#[derive(Default)]
pub struct InFlight {
    /// Cache key.
    primary: Box<[u8]>,
    /// Position at which the forward began; unique.
    began: Sequence,
    /// Its waiters; `None` if requests can't join.
    crowd: Option<Arc<Crowd>>,
    /// Trace of the leading request, if recorded.
    pub trace: OnceLock<TraceContext>,
    progress: Mutex<Progress>,
    changed: Notify,
    /// Number of requests that wait for the answer, or for its first bytes.
    pub waiters: Arc<AtomicUsize>,
    invalidated: AtomicBool,
    personal: AtomicBool,
}

#[derive(Default)]
struct Progress {
    interims: Vec<Arc<Interim>>,
    answer: Option<Answer>,
    answered: Sequence,
    rival: Option<Arc<StoredHead>>,
}

/// Role of a request in a forward.
pub enum Join {
    /// The request must start the forward.
    Lead(Waiter),
    /// The request waits for a running forward.
    Wait(Waiting),
    /// Too many requests wait already.
    Full,
}

/// Invalidation count of a key and of the keys that share its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidationCount(u64);

impl FetchTable {
    /// Takes the next turn. If a forward is listed only once its response has arrived, take the turn before sending the request.
    pub fn turn(&self) -> Sequence {
        Sequence::new(self.turns.fetch_add(1, Ordering::AcqRel))
    }

    /// Joins the waiters for `primary` + `variant`, or becomes the leader of a new forward. If the URL of a running forward has been
    /// invalidated since it began, a new forward replaces it: a URL has more keys than [`Self::invalidate`] can list.
    pub fn join(
        self: &Arc<Self>,
        (primary, variant): (&[u8], &[u8]),
        (asker, limits): (Asker, CollapseLimits),
        now: LookUp,
        record_overtaken: impl Fn(LookUp) -> bool,
    ) -> Join {
        let key = [primary, variant].concat();
        let mut shard = self.shards.of(primary).lock();
        if let Some(crowd) =
            shard.crowds.get(key.as_slice()).filter(|crowd| !crowd.makes_room(&record_overtaken))
        {
            return match crowd.is_full() {
                true => Join::Full,
                false => Join::Wait(Waiting::enter(crowd, self, asker)),
            };
        }
        let crowd = Arc::new(Crowd::new((primary, key.into_boxed_slice()), now, limits));
        shard.crowds.insert(crowd.key().into(), Arc::clone(&crowd));
        let in_flight = self.begin(&mut shard, &crowd, asker);
        Join::Lead(Waiter::new(&in_flight))
    }

    /// Lists another forward for a crowd.
    fn begin(&self, shard: &mut Listed, crowd: &Arc<Crowd>, asker: Asker) -> Arc<InFlight> {
        let (primary, began) = (crowd.primary().into(), self.turn());
        let crowd_joined = Some(Arc::clone(crowd));
        let in_flight = Arc::new(InFlight { primary, began, crowd: crowd_joined, ..InFlight::default() });
        shard.forwards.insert(in_flight.began, Arc::clone(&in_flight));
        crowd.begins(&in_flight, asker);
        in_flight
    }

    /// Gives turns to waiters of a crowd, which then forward in addition to the running forwards.
    fn hand_on(self: &Arc<Self>, crowd: &Arc<Crowd>) {
        // The shard is locked until the end of this statement; a turn that is dropped locks it again.
        let undelivered = self.hand_on_in(&mut self.shards.of(crowd.primary()).lock(), crowd);
        drop(undelivered);
    }

    /// Like [`Self::hand_on`], in a locked shard. Returns the turns of waiters that have just left. The caller drops them after unlocking
    /// the shard, because the drop locks it again.
    fn hand_on_in(self: &Arc<Self>, shard: &mut Listed, crowd: &Arc<Crowd>) -> Vec<LeaderGuard> {
        let mut undelivered = Vec::new();
        while let Some((asker, turn)) = crowd.next() {
            let in_flight = self.begin(shard, crowd, asker);
            let leader = LeaderGuard { in_flight, fetch_table: Arc::clone(self) };
            undelivered.extend(turn.send(leader).err());
        }
        if crowd.is_deserted() {
            shard.close(crowd);
        }
        undelivered
    }

    /// Returns the number of bytes received by a running forward of a complete response; `None` without such a forward.
    pub fn arrived_bytes(&self, primary: &[u8], variant: &[u8]) -> Option<u64> {
        let crowd =
            self.shards.of(primary).lock().crowds.get([primary, variant].concat().as_slice()).cloned()?;
        match crowd.answer() {
            None => Some(0),
            Some(Answer::Filling(filling)) => Some(filling.fill.arrived_bytes()),
            Some(_) => None,
        }
    }

    /// Lists a forward that can't be joined, so that it can be invalidated.
    pub fn alone(&self, primary: &[u8]) -> Waiter {
        Waiter::new(&self.list_alone(primary, self.turn()))
    }

    fn list_alone(&self, primary: &[u8], began: Sequence) -> Arc<InFlight> {
        let in_flight = Arc::new(InFlight { primary: primary.into(), began, ..InFlight::default() });
        self.shards.of(primary).lock().forwards.insert(began, Arc::clone(&in_flight));
        in_flight
    }

    /// Returns the invalidation count of a key. If a forward is listed only once its response has arrived, take the count before sending
    /// the request.
    pub fn invalidations(&self, primary: &[u8]) -> InvalidationCount {
        InvalidationCount(*self.invalidations.of(primary).lock())
    }

    /// Lists a forward that can't be joined and that began at this turn. It is invalidated if the count has changed since then.
    pub fn alone_since(&self, primary: &[u8], began: Sequence, invalidations: InvalidationCount) -> Waiter {
        let in_flight = self.list_alone(primary, began);
        if self.invalidations(primary) != invalidations {
            in_flight.invalidated.store(true, Ordering::Release);
        }
        Waiter::new(&in_flight)
    }

    /// Forbids all running forwards for `primary` except `spared` to store their responses, and hides them from new requests. Returns the
    /// number of these forwards.
    pub fn invalidate(&self, primary: &[u8], spared: Option<&Waiter>) -> usize {
        let mut shard = self.shards.of(primary).lock();
        *self.invalidations.of(primary).lock() += 1;
        shard.remove(|in_flight| {
            let is_spared = spared.is_some_and(|spared| Arc::ptr_eq(&spared.in_flight, in_flight));
            let hit = *in_flight.primary == *primary && !is_spared;
            if hit {
                in_flight.doom();
            }
            hit
        })
    }

    /// Invalidates and hides running forwards, and fills, that a newer response replaces. A client that has seen the newer response must
    /// not get the older one afterwards. If the order of a forward and the response is unknown, the response becomes the forward's rival.
    //= RFC 9111 section 4: the most recent of several
    pub fn supersede(
        &self,
        (primary, by): (&[u8], Exchanged),
        rival: &Arc<StoredHead>,
        is_replaced: impl Fn(&Arc<StoredHead>) -> bool,
    ) {
        let mut shard = self.shards.of(primary).lock();
        shard.remove(|in_flight| {
            // Skips the forward that brings the response.
            if *in_flight.primary != *primary || in_flight.began == by.began {
                return false;
            }
            let mut progress = in_flight.progress.lock();
            let answered = match &progress.answer {
                Some(Answer::Filling(filling)) if is_replaced(&filling.head) => Some(progress.answered),
                Some(_) => return false,
                None => None,
            };
            match (Exchanged { began: in_flight.began, answered }).order(by) {
                Order::Before => in_flight.invalidated.store(true, Ordering::Release),
                Order::Unknown => progress.rival = Some(Arc::clone(rival)),
                Order::After => {}
            }
            in_flight.is_invalidated()
        });
    }

    /// Returns the number of running forwards whose answer may be stored.
    pub fn running(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().forwards.len()).sum()
    }

    /// Lists a forward again after a purge, unless a newer forward or crowd has taken its place.
    fn list_again(&self, in_flight: &Arc<InFlight>) {
        let mut shard = self.shards.of(&in_flight.primary).lock();
        if shard.forwards.contains_key(&in_flight.began) || !in_flight.is_invalidated() {
            return;
        }
        in_flight.invalidated.store(false, Ordering::Release);
        shard.forwards.insert(in_flight.began, Arc::clone(in_flight));
        if let Some(crowd) = &in_flight.crowd {
            shard.crowds.entry(crowd.key().into()).or_insert_with(|| Arc::clone(crowd));
        }
    }

    /// Hides a forward: its response won't be stored, and no request can join it.
    fn hide(&self, in_flight: &InFlight) {
        let mut shard = self.shards.of(&in_flight.primary).lock();
        shard.forwards.remove(&in_flight.began);
        in_flight.crowd.iter().for_each(|crowd| shard.close(crowd));
    }

    /// Ends a forward: its waiters get its result, or forward in turn.
    fn ended(self: &Arc<Self>, in_flight: &Arc<InFlight>, answer: &Answer) {
        let mut shard = self.shards.of(&in_flight.primary).lock();
        shard.forwards.remove(&in_flight.began);
        let Some(crowd) = &in_flight.crowd else { return };
        let undelivered = match crowd.ended(in_flight, answer) {
            Some(Effect::NextGoes) => self.hand_on_in(&mut shard, crowd),
            Some(Effect::AllGetIt) => {
                shard.close(crowd);
                return;
            }
            None => return,
        };
        drop(shard);
        drop(undelivered);
    }
}

impl Listed {
    /// Removes forwards from the list and closes their crowds. Returns their number.
    fn remove(&mut self, mut is_such: impl FnMut(&Arc<InFlight>) -> bool) -> usize {
        let removed: Vec<_> = self.forwards.extract_if(|_, in_flight| is_such(in_flight)).collect();
        removed
            .iter()
            .filter_map(|(_, in_flight)| in_flight.crowd.as_ref())
            .for_each(|crowd| self.close(crowd));
        removed.len()
    }

    /// Closes a crowd to new requests: they start a new one.
    fn close(&mut self, crowd: &Arc<Crowd>) {
        if self.crowds.get(crowd.key()).is_some_and(|open| Arc::ptr_eq(open, crowd)) {
            self.crowds.remove(crowd.key());
        }
    }
}

impl InFlight {
    /// Returns the turns at which the forward began and its answer arrived.
    pub fn exchanged(&self) -> Exchanged {
        let progress = self.progress.lock();
        Exchanged { began: self.began, answered: progress.answer.as_ref().map(|_| progress.answered) }
    }

    /// Returns a response that another forward received meanwhile, and that may be newer.
    pub fn rival(&self) -> Option<Arc<StoredHead>> {
        self.progress.lock().rival.clone()
    }

    /// Returns whether the result is for the leader alone, and so doesn't predict the result of other requests.
    pub fn has_no_answer_for_others(&self) -> bool {
        let progress = self.progress.lock();
        let is_private = matches!(&progress.answer, Some(Answer::Private(_)));
        let ended = progress.answer.as_ref().map(|answer| crowd::end_of(answer).0);
        is_private || ended == Some(Ended::Failed)
    }

    /// Returns whether a purge, an invalidation or a newer response has arrived since the forward began.
    pub fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Acquire)
    }

    /// Forbids storing the response from now on.
    fn doom(&self) {
        self.invalidated.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Resolves when the forward is invalidated.
    pub async fn doomed(&self) {
        until(&self.changed, || self.is_invalidated().then_some(())).await;
    }

    /// Marks the answer as possibly personal until its head has arrived: interim responses go to the leader only.
    pub fn make_personal(&self) {
        self.personal.store(true, Ordering::Release);
    }

    /// Keeps an interim response for current and later waiters, up to a limit.
    //= RFC 8297 section 2: 103 says nothing about the final response
    pub fn push_interim(&self, interim: Interim) {
        let interim = Arc::new(interim);
        let mut progress = self.progress.lock();
        if progress.interims.len() < INTERIMS_KEPT_MAX {
            progress.interims.push(Arc::clone(&interim));
            drop(progress);
            self.changed.notify_waiters();
        }
        // Hints with a cookie, or in reply to credentials, are for the leader only.
        let is_personal =
            self.personal.load(Ordering::Acquire) || interim.fields.value("set-cookie").is_some();
        self.crowd.iter().filter(|_| !is_personal).for_each(|crowd| crowd.push_interim(&interim));
    }

    /// Resolves when no request waits for an answer that hasn't arrived.
    pub async fn nobody_waits(&self) {
        self.count_until(|own, others, is_answered| own + others == 0 && !is_answered).await;
    }

    /// Resolves when the leading client has left before the answer arrived.
    pub async fn client_left(&self) {
        self.count_until(|own, _, is_answered| own == 0 && !is_answered).await;
    }

    /// Resolves when a request waits, or the answer has arrived.
    pub async fn somebody_waits(&self) {
        self.count_until(|own, others, is_answered| own + others > 0 || is_answered).await;
    }

    async fn count_until(&self, holds: impl Fn(usize, usize, bool) -> bool) {
        until(&self.changed, || {
            let is_answered = self.progress.lock().answer.is_some();
            let waiting = self.crowd.as_ref().map_or(0, |crowd| crowd.count());
            holds(self.waiters.load(Ordering::Acquire), waiting, is_answered).then_some(())
        })
        .await;
    }

    fn settle(&self, answer: Answer, turn: Sequence) {
        let mut progress = self.progress.lock();
        if progress.answer.is_none() {
            (progress.answer, progress.answered) = (Some(answer), turn);
        }
        drop(progress);
        self.changed.notify_waiters();
    }
}
