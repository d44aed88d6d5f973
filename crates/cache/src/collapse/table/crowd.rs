//! Waiters for one response, and the forwards that may bring their answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use message::client::Client;
use origin::{Interim, OriginError};
use parking_lot::Mutex;
use telemetry::trace::TraceContext;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::{FetchTable, INTERIMS_KEPT_MAX, InFlight, LeaderGuard};
use crate::collapse::answer::{Answer, Failed, Filling};
use crate::collapse::turns::{AT_ONCE_MAX, Beside, Effect, Ended, Trouble};
use crate::fill::Fill;
use crate::head_maker::ForwardedRequest;
use crate::membership::LookUp;
use crate::settings::CollapseLimits;

/// A request that is being forwarded, or that waits for its turn.
#[derive(Clone, Default)]
pub struct Asker {
    /// Client of the request, if known; all unknown clients count as one.
    pub client: Option<Client>,
    /// Trace of the request. `None` if no client waits for the answer.
    pub request: Option<Arc<dyn ForwardedRequest>>,
}

/// Waiters for one response, with the running forwards.
pub(super) struct Crowd {
    key: Box<[u8]>,
    primary_bytes: usize,
    /// Look-up at which the crowd opened; its answer serves all later look-ups too.
    open_since: LookUp,
    limits: CollapseLimits,
    state: Mutex<CrowdState>,
    changed: Notify,
}

#[derive(Default)]
struct CrowdState {
    /// Waiters in the order of arrival.
    waiting: BTreeMap<u64, Entry>,
    tickets: u64,
    under_way: Vec<UnderWay>,
    trouble: Trouble<Option<Client>>,
    /// Last failure of a single request.
    failure: Option<Failed>,
    failed_at: Option<Instant>,
    interims: Vec<Arc<Interim>>,
    promise: Option<Promise>,
}

/// The answer that all waiters get.
struct Promise {
    answer: Answer,
    /// Number of requests that wait for the answer.
    promised: Arc<AtomicUsize>,
    /// Client whose forward brings the answer.
    client: Option<Client>,
}

struct Entry {
    asker: Asker,
    turn: oneshot::Sender<LeaderGuard>,
}

struct UnderWay {
    in_flight: Arc<InFlight>,
    asker: Asker,
    late_at: Option<Instant>,
}

/// A request that waits for the forwards of other requests.
pub struct Waiting {
    crowd: Arc<Crowd>,
    fetch_table: Arc<FetchTable>,
    ticket: u64,
    turn: Option<oneshot::Receiver<LeaderGuard>>,
    /// Turn that arrived while the request waited for a body.
    given: Option<LeaderGuard>,
    since: Instant,
    interims_seen: usize,
    knows_failure: bool,
}

/// An event for a waiting request.
pub enum Learned {
    Interim(Arc<Interim>),
    /// The answer for all waiters.
    Answer(Answer),
    /// A forward has failed for its own request alone. This is reported once, so that a request can leave if it doesn't need the answer.
    Failure(Failed),
    /// Turn of this request to forward.
    Turn(LeaderGuard),
    /// The request got no turn in time. Contains the last failure.
    NoTurn(Option<Failed>),
}

impl Crowd {
    pub(super) fn new(
        (primary, key): (&[u8], Box<[u8]>),
        open_since: LookUp,
        limits: CollapseLimits,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        Self { key, primary_bytes: primary.len(), open_since, limits, state, changed }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn primary(&self) -> &[u8] {
        &self.key[..self.primary_bytes]
    }

    /// Returns whether a request that wants to join starts a new crowd instead. If so, the responses of this crowd's forwards are not
    /// stored.
    pub(super) fn makes_room(&self, record_overtaken: impl Fn(LookUp) -> bool) -> bool {
        let makes_room = record_overtaken(self.open_since);
        if makes_room {
            self.forwards().iter().for_each(|in_flight| in_flight.doom());
        }
        makes_room
    }

    /// Returns whether there are neither waiters nor running forwards.
    pub(super) fn is_deserted(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && state.under_way.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.state.lock().waiting.len() >= self.limits.waiters_max
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().waiting.len()
    }

    pub(super) fn answer(&self) -> Option<Answer> {
        self.state.lock().promise.as_ref().map(|promise| promise.answer.clone())
    }

    /// Returns the running forwards.
    pub(super) fn forwards(&self) -> Vec<Arc<InFlight>> {
        self.state.lock().under_way.iter().map(|under_way| Arc::clone(&under_way.in_flight)).collect()
    }

    pub(super) fn push_interim(&self, interim: &Arc<Interim>) {
        let mut state = self.state.lock();
        if state.interims.len() < INTERIMS_KEPT_MAX {
            state.interims.push(Arc::clone(interim));
            drop(state);
            self.changed.notify_waiters();
        }
    }

    pub(super) fn begins(&self, in_flight: &Arc<InFlight>, asker: Asker) {
        let late_at = Instant::now().checked_add(self.limits.wait_max);
        self.state.lock().under_way.push(UnderWay { in_flight: Arc::clone(in_flight), asker, late_at });
    }

    /// Gives the answer of a forward to all waiters.
    pub(super) fn answered(&self, in_flight: &Arc<InFlight>, answer: &Answer) {
        let mut state = self.state.lock();
        let client = state.client_of(in_flight);
        state.answered((in_flight, client), answer);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that the body of a forward has begun. Waiters whose promised body has no bytes yet get this body instead.
    pub(super) fn begun(&self, in_flight: &Arc<InFlight>, filling: &Filling) {
        let mut state = self.state.lock();
        let Some(promise) = state.promise.take_if(|promise| promise.has_nothing()) else { return };
        promise.less(state.waiting.len());
        let client = state.client_of(in_flight);
        state.answered((in_flight, client), &Answer::Filling(filling.clone()));
        drop(state);
        self.changed.notify_waiters();
    }

    fn promises(&self, fill: &Arc<Fill>) -> bool {
        self.state.lock().promise.as_ref().is_some_and(|promise| promise.is_of(fill))
    }

    /// Withdraws a promised body that doesn't arrive: for waiters without any of its bytes, the forward has failed.
    pub(super) fn withdraw(&self, fill: &Arc<Fill>) -> Effect {
        let mut state = self.state.lock();
        let Some(promise) = state.promise.as_ref().filter(|promise| promise.is_of(fill)) else {
            return Effect::NextGoes;
        };
        let client = promise.client;
        let effect = state.trouble.learns(Ended::Failed, client, self.limits.on_failure);
        if effect == Effect::NextGoes {
            state.failed(Some(Failed::Error(Arc::new(OriginError::BetweenBytesTimeout))));
        }
        effect
    }

    /// Ends a forward. Returns the effect on the waiters; `None` if another forward has answered them.
    pub(super) fn ended(&self, in_flight: &Arc<InFlight>, answer: &Answer) -> Option<Effect> {
        let (ended, failed) = end_of(answer);
        let mut state = self.state.lock();
        let own = state.under_way.iter().position(|known| known.is(in_flight))?;
        let own = state.under_way.remove(own);
        if let Some(promise) = &state.promise {
            let is_own = Arc::ptr_eq(&promise.promised, &in_flight.waiters);
            if !is_own || ended != Ended::Failed {
                return is_own.then_some(Effect::AllGetIt);
            }
        }
        let effect = state.trouble.learns(ended, own.asker.client, self.limits.on_failure);
        match (effect, failed) {
            (Effect::AllGetIt, failed) => {
                let answer = failed.map_or_else(|| answer.clone(), Answer::Failed);
                state.answered((in_flight, own.asker.client), &answer);
            }
            (Effect::NextGoes, failed) => {
                let is_first = state.failure.is_none();
                match ended {
                    Ended::Failed => state.failed(failed),
                    _ => state.failure = failed.or_else(|| state.failure.take()),
                }
                if !is_first {
                    return Some(effect);
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
        Some(effect)
    }

    /// Returns the waiter that is next in turn, if one more forward may begin.
    pub(super) fn next(&self) -> Option<(Asker, oneshot::Sender<LeaderGuard>)> {
        let mut state = self.state.lock();
        state.tell_wanted();
        let now = Instant::now();
        let are_late = state.under_way.iter().all(|own| own.late_at.is_some_and(|late_at| late_at <= now));
        let beside = Beside { under_way: state.under_way.len(), are_late };
        if state.promise.is_some() || !state.trouble.may_begin(beside) {
            return None;
        }
        let clients: Vec<_> = state.under_way.iter().map(|own| own.asker.client).collect();
        let next = state.trouble.next(state.waiting.values().map(|entry| entry.asker.client), &clients)?;
        let ticket = *state.waiting.keys().nth(next)?;
        state.waiting.remove(&ticket).map(|entry| (entry.asker, entry.turn))
    }

    fn notify_forwards(&self) {
        self.forwards().iter().for_each(|in_flight| in_flight.changed.notify_waiters());
    }
}

impl CrowdState {
    /// Notifies the running forwards if no further forward for the key may begin and requests wait. Forwards whose client may have left
    /// then end.
    fn tell_wanted(&self) {
        if self.under_way.len() >= AT_ONCE_MAX && !self.waiting.is_empty() && self.promise.is_none() {
            let requests = self.under_way.iter().filter_map(|own| own.asker.request.as_ref());
            requests.for_each(|request| _ = request.place_wanted().set(()));
        }
    }

    fn client_of(&self, in_flight: &Arc<InFlight>) -> Option<Client> {
        self.under_way.iter().find(|own| own.is(in_flight))?.asker.client
    }

    /// Promises the answer to each waiter.
    fn answered(&mut self, (in_flight, client): (&Arc<InFlight>, Option<Client>), answer: &Answer) {
        if self.promise.is_none() {
            let promised = Arc::clone(&in_flight.waiters);
            promised.fetch_add(self.waiting.len(), Ordering::AcqRel);
            self.promise = Some(Promise { answer: answer.clone(), promised, client });
        }
    }

    /// Records a failure for one request alone, and withdraws the promise.
    fn failed(&mut self, failed: Option<Failed>) {
        self.promise.take().iter().for_each(|promise| promise.less(self.waiting.len()));
        self.failed_at.get_or_insert_with(Instant::now);
        self.failure = failed.or_else(|| self.failure.take());
    }
}

impl UnderWay {
    fn is(&self, in_flight: &Arc<InFlight>) -> bool {
        Arc::ptr_eq(&self.in_flight, in_flight)
    }
}

impl Promise {
    fn is_of(&self, fill: &Arc<Fill>) -> bool {
        matches!(&self.answer, Answer::Filling(filling) if Arc::ptr_eq(&filling.fill, fill))
    }

    /// Returns whether the answer is a body without any bytes yet.
    fn has_nothing(&self) -> bool {
        matches!(&self.answer, Answer::Filling(filling) if filling.fill.has_nothing())
    }

    /// Subtracts requests that no longer wait for the answer.
    fn less(&self, count: usize) {
        self.promised.fetch_sub(count, Ordering::AcqRel);
        if let Answer::Filling(filling) = &self.answer {
            filling.fill.promise_kept();
        }
    }
}

/// Returns how a forward ended, from the waiters' point of view, with the failure, if any.
pub(super) fn end_of(answer: &Answer) -> (Ended, Option<Failed>) {
    let failed = answer.failed();
    let ended = match &failed {
        None if matches!(answer, Answer::GivenUp) => Ended::GivenUp,
        None => Ended::Answered,
        Some(Failed::Error(error)) if error.is_without_connection() => Ended::Unreachable,
        Some(Failed::Error(_) | Failed::Status(_)) => Ended::Failed,
    };
    (ended, failed)
}

impl Waiting {
    pub(super) fn enter(crowd: &Arc<Crowd>, fetch_table: &Arc<FetchTable>, asker: Asker) -> Self {
        let (sender, turn) = oneshot::channel();
        let mut state = crowd.state.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.insert(ticket, Entry { asker, turn: sender });
        state.tell_wanted();
        state.promise.iter().for_each(|promise| _ = promise.promised.fetch_add(1, Ordering::AcqRel));
        let is_first = state.waiting.len() == 1;
        drop(state);
        if is_first {
            crowd.notify_forwards();
        }
        let (crowd, fetch_table) = (Arc::clone(crowd), Arc::clone(fetch_table));
        let since = Instant::now();
        let (turn, given) = (Some(turn), None);
        Self { crowd, fetch_table, ticket, turn, given, since, interims_seen: 0, knows_failure: false }
    }

    /// Returns the trace of a request whose forward this request waits for.
    pub fn leader_trace(&self) -> Option<TraceContext> {
        self.crowd.state.lock().under_way.first()?.in_flight.trace.get().copied()
    }

    /// Waits for the next event. Cancel safe.
    pub async fn learn(&mut self) -> Learned {
        let crowd = Arc::clone(&self.crowd);
        if let Some(leader) = self.given.take() {
            return Learned::Turn(leader);
        }
        loop {
            let changed = crowd.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(learned) = self.poll() {
                return learned;
            }
            let looks_at = self.looks_at();
            tokio::select! {
                biased;
                turn = turn_of(&mut self.turn) => return Learned::Turn(turn),
                () = changed => {}
                () = passed(looks_at) => self.fetch_table.hand_on(&crowd),
            }
        }
    }

    fn poll(&mut self) -> Option<Learned> {
        let state = self.crowd.state.lock();
        if let Some(interim) = state.interims.get(self.interims_seen) {
            self.interims_seen += 1;
            return Some(Learned::Interim(Arc::clone(interim)));
        }
        if let Some(promise) = &state.promise {
            return Some(Learned::Answer(promise.answer.clone()));
        }
        if let Some(failure) = state.failure.as_ref().filter(|_| !self.knows_failure) {
            self.knows_failure = true;
            return Some(Learned::Failure(failure.clone()));
        }
        let leaves_at = self.leaves_at(&state)?;
        // A waiter that is no longer listed is about to receive a turn.
        (leaves_at <= Instant::now() && state.waiting.contains_key(&self.ticket))
            .then(|| Learned::NoTurn(state.failure.clone()))
    }

    /// Returns the time at which the request stops waiting for a turn.
    fn leaves_at(&self, state: &CrowdState) -> Option<Instant> {
        self.since.max(state.failed_at?).checked_add(self.crowd.limits.wait_max)
    }

    /// Returns the time at which to check whether the forwards are late or this request has waited too long.
    fn looks_at(&self) -> Option<Instant> {
        let state = self.crowd.state.lock();
        let once_late = Beside { under_way: state.under_way.len(), are_late: true };
        let late_at = state.under_way.iter().filter_map(|own| own.late_at).max();
        let late_at = late_at.filter(|_| state.trouble.may_begin(once_late));
        let leaves_at = self.leaves_at(&state);
        late_at.into_iter().chain(leaves_at).min()
    }

    /// Returns whether this request, which has received no bytes of the body yet, can keep the answer. If the body doesn't arrive, the next
    /// waiter gets a turn and this request keeps waiting.
    pub async fn is_kept(&mut self, answer: &Answer) -> bool {
        let Answer::Filling(Filling { fill, .. }) = answer else { return true };
        let crowd = Arc::clone(&self.crowd);
        loop {
            let changed = crowd.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            // The body of another forward may have begun earlier.
            if fill.has_nothing() && !crowd.promises(fill) {
                return false;
            }
            tokio::select! {
                biased;
                comes = fill.comes(crowd.limits.wait_max) => {
                    let is_withdrawn = !comes && crowd.withdraw(fill) == Effect::NextGoes;
                    if is_withdrawn {
                        self.fetch_table.hand_on(&crowd);
                    }
                    return !is_withdrawn;
                }
                // A turn may have arrived just before another request's answer.
                turn = turn_of(&mut self.turn) => {
                    self.given = Some(turn);
                    return false;
                }
                () = changed => {}
            }
        }
    }

    /// Closes the crowd, whose answer is too old: later requests start a new one.
    pub fn make_room(&self) {
        self.fetch_table.shards.of(self.crowd.primary()).lock().close(&self.crowd);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.crowd.state.lock();
        if state.waiting.remove(&self.ticket).is_none() {
            return;
        }
        let is_last = state.waiting.is_empty();
        state.promise.iter().for_each(|promise| promise.less(1));
        drop(state);
        if is_last {
            self.crowd.notify_forwards();
        }
    }
}

async fn turn_of(turn: &mut Option<oneshot::Receiver<LeaderGuard>>) -> LeaderGuard {
    if let Some(receiver) = turn {
        let received = receiver.await;
        *turn = None;
        if let Ok(leader) = received {
            return leader;
        }
    }
    std::future::pending().await
}

async fn passed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
