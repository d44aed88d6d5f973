//! The connection between an instance and the store. A test can cut it, it records events, and planted faults
//! change its messages.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store::backing::double::{Double, DoubleServer};
use store::backing::{
    AppendOutcome, Backing, BackingError, CopyStatus, Lease, LeaseRequest, Loaded, LogCursor, LogOffset,
    LogPart, LogRecord, LogState, Pending, PutOutcome, RenewOutcome, Source, TakeOutcome, Tracking, Version,
    WaitOutcome, Watcher, Write,
};
use store::fleet::Member;
use store::purge::{PurgeId, PurgeMode, PurgeRecord, PurgeTarget};
use store::{FillId, SegmentId, SegmentPut};
use tokio::time::Instant;

use super::book::Book;
use super::{Rule, VERIFICATION};

/// The instance's end of the connection. The connection outlives the processes that use it.
pub(super) struct Wire {
    pub(super) index: usize,
    server: DoubleServer,
    pub(super) double: Double,
    pub(super) book: Arc<Book>,
    clock_ahead_ms: i64,
    planted: Option<Rule>,
    state: Mutex<State>,
    ears: Mutex<Vec<Arc<Ear>>>,
}

#[derive(Default)]
struct State {
    cut_since: Option<Instant>,
    /// Set while the process is stopped, and then until it has read the messages that arrived in the
    /// meantime.
    stopped_since: Option<Instant>,
    kept: Vec<Said>,
    loading: Vec<Box<[u8]>>,
}

/// A message that the store pushes.
#[derive(Clone)]
enum Said {
    Changed(Box<[u8]>),
    All(Option<Source>),
    Log,
}

impl Wire {
    pub(super) fn new(
        index: usize,
        (server, double): (&DoubleServer, Double),
        book: &Arc<Book>,
        (ahead_ms, planted): (i64, Option<Rule>),
    ) -> Arc<Self> {
        Arc::new(Self {
            index,
            server: server.clone(),
            double,
            book: Arc::clone(book),
            clock_ahead_ms: -ahead_ms,
            planted,
            state: Mutex::default(),
            ears: Mutex::default(),
        })
    }

    fn is_planted(&self, rule: Rule) -> bool {
        self.planted == Some(rule)
    }

    /// Cuts the connection: no messages get through.
    pub(super) fn cut(&self) {
        self.state.lock().cut_since.get_or_insert_with(Instant::now);
        self.book.cut(self.index);
    }

    /// Reconnects, so that messages get through again.
    pub(super) fn mend(&self) {
        if self.state.lock().cut_since.take().is_some() {
            self.book.mended(self.index);
            self.reconnect();
        }
    }

    pub(super) fn reconnect(&self) {
        self.book.trouble(self.index);
        self.double.reconnect();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state.lock().cut_since.is_some()
    }

    pub(super) fn stops(&self) {
        self.state.lock().stopped_since.get_or_insert_with(Instant::now);
    }

    /// Continues the process. The process reads the messages that have arrived in the meantime a moment
    /// later.
    pub(super) fn goes_on(self: &Arc<Self>) {
        let wire = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(READING).await;
            let kept = {
                let mut state = wire.state.lock();
                state.stopped_since = None;
                std::mem::take(&mut state.kept)
            };
            kept.iter().for_each(|said| wire.tell(said));
        });
    }

    fn hear(&self, said: Said) {
        {
            let mut state = self.state.lock();
            if state.cut_since.is_some() {
                return;
            }
            if state.stopped_since.is_some() {
                return state.kept.push(said);
            }
        }
        self.tell(&said);
    }

    fn tell(&self, said: &Said) {
        let ears: Vec<_> = self.ears.lock().clone();
        let watchers: Vec<_> = ears.iter().filter_map(|ear| ear.to.upgrade()).collect();
        match said {
            Said::Changed(key) => {
                self.book.told(self.index, key);
                let is_lost = self.is_planted(Rule::PushesMark)
                    || self.is_planted(Rule::PushesOvertakeAnswers)
                        && self.state.lock().loading.contains(key);
                if !is_lost {
                    watchers.iter().for_each(|watcher| watcher.suspect(&[key]));
                }
            }
            Said::All(source) if !self.is_planted(Rule::GenerationsEnd) => {
                watchers.iter().for_each(|watcher| watcher.all_suspect(*source));
            }
            Said::All(_) => {}
            Said::Log => watchers.iter().for_each(|watcher| watcher.log_changed()),
        }
    }
}

/// Time from when the process continues until it has read the messages that arrived in the meantime.
const READING: Duration = Duration::from_millis(20);

/// Receiver of pushes for one process.
struct Ear {
    wire: Weak<Wire>,
    to: Weak<dyn Watcher>,
}

impl Ear {
    fn hear(&self, said: Said) {
        if let Some(wire) = self.wire.upgrade() {
            wire.hear(said);
        }
    }
}

impl Watcher for Ear {
    fn suspect(&self, keys: &[&[u8]]) {
        keys.iter().for_each(|key| self.hear(Said::Changed((*key).into())));
    }

    fn all_suspect(&self, source: Option<Source>) {
        self.hear(Said::All(source));
    }

    fn log_changed(&self) {
        self.hear(Said::Log);
    }
}

/// Far end of the connection, held by a process.
pub(super) struct Line(Arc<Wire>);

/// An operation that waits for its answer. If the answer never arrives, the book records a lost message.
struct Asked<'a> {
    wire: &'a Wire,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.wire.book.trouble(self.wire.index);
        }
        self.wire.book.look(self.wire.index, &self.wire.server);
    }
}

impl Line {
    pub(super) fn of(wire: &Arc<Wire>) -> Self {
        wire.ears.lock().clear();
        Self(Arc::clone(wire))
    }

    fn ask<'a, T: Send + 'a>(&'a self, answer: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(async move {
            let mut asked = Asked { wire: &self.0, is_answered: false };
            if self.0.is_cut() {
                return Err(BackingError::Unreachable("it is cut".into()));
            }
            let answer = answer.await;
            if self.0.is_cut() {
                return Err(BackingError::Unreachable("it was cut".into()));
            }
            asked.is_answered = answer.is_ok();
            answer
        })
    }

    /// Returns the log as an instance sees it whose planted fault hides losses.
    fn unnoticed(&self, state: LogState, read: LogCursor) -> LogState {
        let state = match self.0.is_planted(Rule::LostLogsAreNoticed) {
            true => LogState { id: read.id, end: state.end.max(read.offset), ..state },
            false => state,
        };
        let state = match self.0.is_planted(Rule::ShorterLogsAreNoticed) && state.id == read.id {
            true => LogState { end: state.end.max(read.offset), ..state },
            false => state,
        };
        match self.0.is_planted(Rule::TrimmedLogsAreNoticed) && state.id == read.id {
            true => LogState { floor: LogOffset(0), ..state },
            false => state,
        }
    }
}

impl Backing for Line {
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>> {
        let wire = &self.0;
        let is_untracked = wire.is_planted(Rule::ReadsAreFollowed);
        let asked = if is_untracked { Tracking::Off } else { tracking };
        self.ask(Box::pin(async move {
            keys.iter().for_each(|key| wire.state.lock().loading.push((*key).into()));
            let found = wire.double.load(keys, asked).await;
            for key in keys {
                let mut state = wire.state.lock();
                let place = state.loading.iter().position(|loading| **loading == **key);
                place.map(|place| state.loading.swap_remove(place));
            }
            let mut found = found?;
            found.iter_mut().flatten().for_each(|loaded| {
                loaded.tracking = if is_untracked { tracking } else { loaded.tracking };
                if wire.is_planted(Rule::AllAreWaitedFor)
                    && let Ok(member) = Member::decode(&loaded.bytes)
                {
                    let read = LogCursor { offset: LogOffset(u64::MAX), ..member.read };
                    loaded.bytes = Member { read, ..member }.encode().into();
                }
            });
            Ok(found)
        }))
    }

    fn put<'a>(&'a self, key: &'a [u8], write: Write<'a>) -> Pending<'a, PutOutcome> {
        self.ask(self.0.double.put(key, write))
    }

    fn remove<'a>(&'a self, key: &'a [u8]) -> Pending<'a, bool> {
        self.ask(self.0.double.remove(key))
    }

    fn load_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>> {
        self.ask(self.0.double.load_segments(fill, indexes))
    }

    fn put_segment(&self, id: SegmentId, bytes: Bytes, ttl: Duration) -> Pending<'_, SegmentPut> {
        self.ask(self.0.double.put_segment(id, bytes, ttl))
    }

    fn extend_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32], ttl: Duration) -> Pending<'a, usize> {
        self.ask(self.0.double.extend_segments(fill, indexes, ttl))
    }

    fn remove_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, ()> {
        self.ask(self.0.double.remove_segments(fill, indexes))
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        let ear = Arc::new(Ear { wire: Arc::downgrade(&self.0), to: watcher });
        let heard: Weak<Ear> = Arc::downgrade(&ear);
        self.0.ears.lock().push(ear);
        self.0.double.watch(heard);
    }

    fn source(&self) -> Source {
        self.0.double.source()
    }

    fn standing(&self, source: Source) -> CopyStatus {
        if self.0.is_planted(Rule::GenerationsEnd) {
            return CopyStatus::Verified;
        }
        let state = self.0.state.lock();
        let silent = state.cut_since.or(state.stopped_since);
        let is_heard = silent.is_none_or(|since| since.elapsed() < VERIFICATION);
        if is_heard { self.0.double.standing(source) } else { CopyStatus::Unverified }
    }

    fn clock_ahead_ms(&self) -> Option<i64> {
        Some(self.0.clock_ahead_ms)
    }

    fn take_lease<'a>(&'a self, key: &'a [u8], request: LeaseRequest<'a>) -> Pending<'a, TakeOutcome> {
        self.ask(self.0.double.take_lease(key, request))
    }

    fn renew_lease<'a>(&'a self, lease: &'a Lease, ttl: Duration) -> Pending<'a, RenewOutcome> {
        self.ask(self.0.double.renew_lease(lease, ttl))
    }

    fn release_lease<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome> {
        self.ask(self.0.double.release_lease(lease, write))
    }

    fn wait<'a>(&'a self, key: &'a [u8], seen: Option<Version>, limit: Duration) -> Pending<'a, WaitOutcome> {
        self.ask(self.0.double.wait(key, seen, limit))
    }

    fn log_state(&self) -> Pending<'_, LogState> {
        self.ask(self.0.double.log_state())
    }

    fn append_log<'a>(&'a self, records: &'a [Bytes]) -> Pending<'a, AppendOutcome> {
        self.ask(self.0.double.append_log(records))
    }

    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart> {
        self.ask(Box::pin(async move {
            let LogPart { state, .. } = self.0.double.read_log(from).await?;
            let id = state.id;
            let seen = self.unnoticed(state, from);
            // The log is read at the same position, but it is the log that replaced the expected one.
            let LogPart { records, .. } = self.0.double.read_log(LogCursor { id, ..from }).await?;
            let is_deaf = self.0.is_planted(Rule::OthersPurgesCount);
            let deafened = |record: LogRecord| LogRecord { bytes: of_nothing(), ..record };
            let records = if is_deaf { records.into_iter().map(deafened).collect() } else { records };
            Ok(LogPart { state: seen, records })
        }))
    }

    fn rename_log(&self, read: LogCursor) -> Pending<'_, LogState> {
        self.ask(self.0.double.rename_log(read))
    }

    fn trim_log(&self, floor: LogCursor) -> Pending<'_, LogState> {
        self.ask(self.0.double.trim_log(floor))
    }
}

/// Returns a purge of a URL that belongs to no site.
fn of_nothing() -> Bytes {
    let what = PurgeTarget::Url("ftp://nowhere/".to_owned());
    let record = PurgeRecord { id: PurgeId([0; 16]), at_ms: 0, mode: PurgeMode::Hard, what };
    record.encode().unwrap_or_default().into()
}
