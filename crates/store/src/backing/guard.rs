//! Deadlines and a circuit breaker around any tier.

use std::sync::Weak;
use std::time::Duration;

use breaker::{Breaker, Caller, Effect, Outcome, Permit, Refusal, Settings, State};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::contract::{Backing, Pending};
use super::error::BackingError;
use super::health::{Durations, Health, Operation};
use super::lease::{Lease, LeaseRequest, RenewOutcome, TakeOutcome};
use super::log::{AppendOutcome, LogCursor, LogPart, LogState, Replication};
use super::record::{Loaded, PutOutcome, Tracking, Version, WaitOutcome, Write};
use super::watch::{CopyStatus, Source, Watcher};
use crate::address::is_of_fleet;
use crate::{FillId, SegmentId, SegmentPut};

/// Deadlines of the operations of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Deadline for records and leases. Default: 50 ms; after that, it is better to fetch from the origin.
    pub record: Duration,
    /// Deadline for segments. Default: 500 ms, for a megabyte on a slow network.
    pub segment: Duration,
    /// Deadline for the log. Default: 500 ms, because no response waits for it, and replicas may have to reply too.
    pub log: Duration,
    /// Deadline for giving a lease back. Default: 1 s, a third of the duration of a lease. No response of this process waits for it, but
    /// other instances do.
    pub release: Duration,
}

impl Deadlines {
    fn of(self, operation: Operation) -> Duration {
        match operation {
            Operation::Record => self.record,
            Operation::Segment => self.segment,
            Operation::Log => self.log,
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        let [record, segment, log, release] = [50, 500, 500, 1000].map(Duration::from_millis);
        Self { record, segment, log, release }
    }
}

/// A tier with deadlines, and with a circuit breaker that skips it for a while after too many failures.
///
/// Only failures of the tier count ([`BackingError::is_of_tier`]); a conflict or a corrupt entry is a valid reply. If the current source
/// is verified, but wasn't when the breaker opened, the tier has recovered, and gets requests immediately.
pub struct Guarded {
    inner: Box<dyn Backing>,
    deadlines: Deadlines,
    circuit: Mutex<Circuit>,
    durations: Mutex<Durations>,
    begun: Instant,
}

struct Circuit {
    breaker: Breaker,
    /// Source that was verified when the breaker opened, if any.
    failed: Option<Source>,
    /// Number of times that the breaker has opened.
    opened: u64,
}

impl Guarded {
    /// Wraps a tier that has no deadlines of its own.
    pub fn new(inner: Box<dyn Backing>, deadlines: Deadlines, settings: Settings) -> Self {
        let circuit = Circuit { breaker: Breaker::new(settings), failed: None, opened: 0 };
        let durations = Mutex::default();
        Self { inner, deadlines, circuit: Mutex::new(circuit), durations, begun: Instant::now() }
    }

    /// Returns the state of the circuit breaker.
    pub fn state(&self) -> State {
        self.circuit.lock().breaker.state()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn admit(&self) -> Result<Permit, BackingError> {
        let now_ms = self.now_ms();
        let mut circuit = self.circuit.lock();
        let admitted =
            circuit.breaker.admit(Caller::Anyone, now_ms).or_else(|refusal| match self.verified() {
                Some(source) if circuit.failed != Some(source) => {
                    circuit.failed = Some(source);
                    circuit.breaker.begin_anew();
                    circuit.breaker.admit(Caller::Anyone, now_ms)
                }
                _ => Err(refusal),
            });
        admitted.map_err(|Refusal { retry_ms }| BackingError::Open { retry: Duration::from_millis(retry_ms) })
    }

    /// Returns the current source, if it can be relied upon.
    fn verified(&self) -> Option<Source> {
        let source = self.inner.source();
        (self.inner.standing(source) == CopyStatus::Verified).then_some(source)
    }

    fn report<T>(&self, permit: Permit, answer: &Result<T, BackingError>) {
        let failed = answer.as_ref().is_err_and(BackingError::is_of_tier);
        let outcome = if failed { Outcome::Failure } else { Outcome::Success };
        let mut circuit = self.circuit.lock();
        if let Effect::Opened { .. } = circuit.breaker.report(permit, outcome, self.now_ms()) {
            circuit.failed = self.verified();
            circuit.opened += 1;
        }
    }

    fn ask<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        ask: impl FnOnce(&'a dyn Backing) -> Pending<'a, T> + Send + 'a,
    ) -> Pending<'a, T> {
        let importance = if operation == Operation::Log { Importance::Vital } else { Importance::Normal };
        self.ask_for(operation, importance, ask)
    }

    fn ask_for<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        importance: Importance,
        ask: impl FnOnce(&'a dyn Backing) -> Pending<'a, T> + Send + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move {
            let permit = match (self.admit(), importance) {
                (Ok(permit), _) => Some(permit),
                (Err(_), Importance::Vital) if self.verified().is_some() => None,
                (Err(refused), _) => return Err(refused),
            };
            let begun = Instant::now();
            let answer = within(self.deadlines.of(operation), ask(&*self.inner)).await;
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.durations.lock().record(operation, took_ns);
            // If a failure is noticed long after its deadline, this process was stopped, and the tier isn't to blame.
            let is_in_time = answer.is_ok() || begun.elapsed() <= self.deadlines.of(operation) + LATE;
            if let Some(permit) = permit.filter(|_| is_in_time) {
                self.report(permit, &answer);
            }
            answer
        })
    }
}

/// Whether an operation is sent to a tier that answers heartbeats although the circuit breaker is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Importance {
    Normal,
    /// Operations on the log and on the records of a fleet: without them, purges are incomplete, or are complete without this instance.
    Vital,
}

impl Importance {
    fn of(key: &[u8]) -> Self {
        if is_of_fleet(key) { Self::Vital } else { Self::Normal }
    }
}

/// Waits for an answer until the deadline. If the deadline passed while this process was stopped, it waits once more, because an unread
/// reply may have arrived.
async fn within<T>(deadline: Duration, mut answer: Pending<'_, T>) -> Result<T, BackingError> {
    let begun = Instant::now();
    match timeout(deadline, answer.as_mut()).await {
        Err(_) if begun.elapsed() > deadline + LATE => timeout(deadline, answer).await,
        answered => answered,
    }
    .unwrap_or(Err(BackingError::TimedOut { after: deadline }))
}

/// Delay after which a deadline counts as noticed late. A running process notices a deadline sooner.
const LATE: Duration = Duration::from_millis(250);

impl Backing for Guarded {
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>> {
        let importance = keys.first().map_or(Importance::Normal, |key| Importance::of(key));
        self.ask_for(Operation::Record, importance, move |tier| tier.load(keys, tracking))
    }

    fn put<'a>(&'a self, key: &'a [u8], write: Write<'a>) -> Pending<'a, PutOutcome> {
        self.ask_for(Operation::Record, Importance::of(key), move |tier| tier.put(key, write))
    }

    fn remove<'a>(&'a self, key: &'a [u8]) -> Pending<'a, bool> {
        self.ask(Operation::Record, move |tier| tier.remove(key))
    }

    fn load_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>> {
        self.ask(Operation::Segment, move |tier| tier.load_segments(fill, indexes))
    }

    fn put_segment(&self, id: SegmentId, bytes: Bytes, ttl: Duration) -> Pending<'_, SegmentPut> {
        self.ask(Operation::Segment, move |tier| tier.put_segment(id, bytes, ttl))
    }

    fn extend_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32], ttl: Duration) -> Pending<'a, usize> {
        self.ask(Operation::Segment, move |tier| tier.extend_segments(fill, indexes, ttl))
    }

    fn remove_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, ()> {
        self.ask(Operation::Segment, move |tier| tier.remove_segments(fill, indexes))
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn source(&self) -> Source {
        self.inner.source()
    }

    fn standing(&self, source: Source) -> CopyStatus {
        self.inner.standing(source)
    }

    fn health(&self) -> Health {
        let is_verified = self.verified().is_some();
        let durations = self.durations.lock().clone();
        let circuit = self.circuit.lock();
        let (state, opened) = (circuit.breaker.state(), circuit.opened);
        let (silence, clock_ahead_ms) = (self.inner.silence(), self.inner.clock_ahead_ms());
        Health { state, opened, is_verified, silence, clock_ahead_ms, durations }
    }

    fn silence(&self) -> Duration {
        self.inner.silence()
    }

    fn clock_ahead_ms(&self) -> Option<i64> {
        self.inner.clock_ahead_ms()
    }

    fn take_lease<'a>(&'a self, key: &'a [u8], request: LeaseRequest<'a>) -> Pending<'a, TakeOutcome> {
        self.ask(Operation::Record, move |tier| tier.take_lease(key, request))
    }

    fn renew_lease<'a>(&'a self, lease: &'a Lease, ttl: Duration) -> Pending<'a, RenewOutcome> {
        self.ask(Operation::Record, move |tier| tier.renew_lease(lease, ttl))
    }

    fn release_lease<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome> {
        self.ask(Operation::Record, move |tier| tier.release_lease(lease, write))
    }

    /// Bypasses the circuit breaker: only holders of a lease give one back, so a failing tier doesn't get too many of these requests. The
    /// result isn't reported to the breaker.
    fn give_lease_back<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome> {
        Box::pin(within(self.deadlines.release, self.inner.give_lease_back(lease, write)))
    }

    /// A wait is meant to take long. So it doesn't serve as a probe of the breaker, and its result isn't reported to the breaker.
    fn wait<'a>(&'a self, key: &'a [u8], seen: Option<Version>, limit: Duration) -> Pending<'a, WaitOutcome> {
        Box::pin(async move {
            match self.state() {
                State::Closed => {
                    within(limit + self.deadlines.record, self.inner.wait(key, seen, limit)).await
                }
                State::Open { .. } | State::HalfOpen => {
                    Err(BackingError::Open { retry: self.deadlines.record })
                }
            }
        })
    }

    fn log_state(&self) -> Pending<'_, LogState> {
        self.ask(Operation::Log, |tier| tier.log_state())
    }

    fn append_log<'a>(&'a self, records: &'a [Bytes]) -> Pending<'a, AppendOutcome> {
        self.ask(Operation::Log, move |tier| tier.append_log(records))
    }

    /// Like a wait, this is long by nature.
    fn replicate_log(&self, limit: Duration) -> Pending<'_, Replication> {
        Box::pin(within(limit + self.deadlines.log, self.inner.replicate_log(limit)))
    }

    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart> {
        self.ask(Operation::Log, move |tier| tier.read_log(from))
    }

    fn trim_log(&self, floor: LogCursor) -> Pending<'_, LogState> {
        self.ask(Operation::Log, move |tier| tier.trim_log(floor))
    }

    fn rename_log(&self, read: LogCursor) -> Pending<'_, LogState> {
        self.ask(Operation::Log, move |tier| tier.rename_log(read))
    }
}

#[cfg(test)]
mod tests {
    use breaker::Options;
    use telemetry::{Buckets, DURATION_BOUNDS};

    use super::super::double::{Behaviour, Double, DoubleLimits, DoubleServer};
    use super::super::lease::LeaseMode;
    use super::*;

    /// Returns a double for control by the test, and the same double behind a guard that opens after four failures.
    fn guarded(behaviour: Behaviour) -> (Double, Guarded) {
        let double = DoubleServer::new(DoubleLimits::default(), 1).connect(behaviour);
        let options =
            Options { requests_min: 4, successes_to_close: 1, reset_ms: 1000, ..Options::default() };
        let settings = Settings::new(options).unwrap();
        let inner = Box::new(double.clone());
        (double, Guarded::new(inner, Deadlines::default(), settings))
    }

    async fn ask(tier: &Guarded) -> Result<bool, BackingError> {
        tier.remove(b"key").await
    }

    #[tokio::test(start_paused = true)]
    async fn each_operation_ends_at_its_deadline() {
        let (_, tier) = guarded(Behaviour { silent_permille: 1000, ..Behaviour::GOOD });
        let fill = FillId::next();
        for (deadline, elapsed) in [
            (50, timed(ask(&tier)).await),
            (500, timed(tier.load_segments(fill, &[0])).await),
            (500, timed(tier.log_state()).await),
        ] {
            assert_eq!(elapsed, Duration::from_millis(deadline));
        }
        for (operation, took_ms) in
            [(Operation::Record, 50), (Operation::Segment, 500), (Operation::Log, 500)]
        {
            let mut expected = Buckets::new(&DURATION_BOUNDS);
            expected.add(took_ms * 1_000_000, 1);
            expected.add_sum(took_ms * 1_000_000);
            assert_eq!(Buckets::from(tier.health().durations.of(operation)), expected, "{operation:?}");
        }
    }

    /// If the process is stopped during requests, the breaker must not open, however often that happens.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_stands_still_waits_once_more_and_blames_nobody() {
        let (double, tier) = guarded(Behaviour { silent_permille: 1000, ..Behaviour::GOOD });
        for _ in 0..8 {
            let asking = async {
                let begun = Instant::now();
                assert!(matches!(ask(&tier).await, Err(BackingError::TimedOut { .. })));
                begun.elapsed()
            };
            let stopped = tokio::time::advance(Duration::from_secs(10));
            let (took, ()) = tokio::join!(biased; asking, stopped);
            assert_eq!(took, Duration::from_millis(10_050));
        }
        assert_eq!((tier.health().state, tier.health().opened), (State::Closed, 0));
        double.behave(Behaviour { latency: Duration::from_millis(40), ..Behaviour::GOOD });
        let (answer, ()) = tokio::join!(biased; ask(&tier), tokio::time::advance(Duration::from_secs(10)));
        assert!(answer.is_ok(), "a reply that arrived meanwhile is read");
    }

    async fn timed<T>(operation: impl Future<Output = Result<T, BackingError>>) -> Duration {
        let begun = Instant::now();
        let Err(BackingError::TimedOut { after }) = operation.await else { panic!("it never answers") };
        assert_eq!(after, begun.elapsed());
        after
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_too_often_is_not_asked_and_then_asked_again() {
        let (double, tier) = guarded(Behaviour { unreachable_permille: 1000, ..Behaviour::GOOD });
        for _ in 0..4 {
            assert!(matches!(ask(&tier).await, Err(BackingError::Unreachable(_))));
        }
        let Err(BackingError::Open { retry }) = ask(&tier).await else { panic!("its breaker must be open") };
        assert_eq!(retry, Duration::from_secs(1));
        let health = tier.health();
        assert!(matches!(health.state, State::Open { .. }), "{health:?}");
        assert_eq!(health.opened, 1);
        let waiting = tier.wait(b"key", None, Duration::from_secs(9)).await;
        assert!(matches!(waiting, Err(BackingError::Open { .. })), "waits are refused too");
        double.behave(Behaviour::GOOD);
        tokio::time::advance(retry).await;
        assert!(matches!(ask(&tier).await, Ok(false)), "the probe");
        assert_eq!((tier.health().state, tier.health().opened), (State::Closed, 1));
    }

    /// The lease must be given back, because other instances wait for it.
    #[tokio::test(start_paused = true)]
    async fn a_lease_is_given_back_past_an_open_breaker() {
        let (double, tier) = guarded(Behaviour::GOOD);
        let request = LeaseRequest { ttl: Duration::from_secs(60), note: b"", mode: LeaseMode::IfFree };
        let TakeOutcome::Taken(lease) = tier.take_lease(b"key", request).await.unwrap() else {
            panic!("it is free")
        };
        let write = || {
            let expected = super::super::record::Expected::Any;
            Write { bytes: Bytes::from_static(b"done"), expected, ttl: request.ttl, lease: None }
        };
        let silent = Behaviour { silent_permille: 1000, ..Behaviour::GOOD };
        double.behave(silent);
        for _ in 0..4 {
            assert!(ask(&tier).await.is_err());
        }
        double.behave(Behaviour::GOOD);
        assert!(matches!(ask(&tier).await, Err(BackingError::Open { .. })));
        let put = tier.give_lease_back(&lease, write()).await;
        assert!(matches!(put, Ok(PutOutcome::Stored(_))), "{put:?}");
        double.behave(silent);
        let elapsed = timed(tier.give_lease_back(&lease, write())).await;
        assert_eq!(elapsed, Duration::from_secs(1), "its deadline is longer than that of a response");
    }

    /// An instance that can't read the log serves purged responses, and the others complete purges without it.
    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_does_not_hold_up_the_log_of_a_tier_that_answers() {
        let (double, tier) = guarded(Behaviour { unreachable_permille: 1000, ..Behaviour::GOOD });
        for _ in 0..4 {
            assert!(ask(&tier).await.is_err());
        }
        double.behave(Behaviour::GOOD);
        assert!(matches!(ask(&tier).await, Err(BackingError::Open { .. })));
        assert!(tier.log_state().await.is_ok());
        assert!(tier.load(&[b"m"], Tracking::Off).await.is_ok(), "the list of instances");
        assert!(matches!(tier.load(&[b"key"], Tracking::Off).await, Err(BackingError::Open { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_no_failure() {
        let (_, tier) = guarded(Behaviour::GOOD);
        let request = LeaseRequest { ttl: Duration::from_secs(60), note: b"", mode: LeaseMode::IfFree };
        tier.take_lease(b"key", request).await.unwrap();
        let waited = tier.wait(b"key", None, Duration::from_secs(2)).await;
        assert!(matches!(waited, Ok(WaitOutcome::StillHeld)));
    }
}
