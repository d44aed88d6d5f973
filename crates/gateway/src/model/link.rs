//! The connection between an instance and the store of another region, which it only reads. A test can cut it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store::backing::double::Double;
use store::backing::{
    AppendOutcome, Backing, BackingError, CopyStatus, Lease, LeaseRequest, Loaded, LogCursor, LogPart,
    LogState, Pending, PutOutcome, RenewOutcome, Source, TakeOutcome, Tracking, Version, WaitOutcome,
    Watcher, Write,
};
use store::{FillId, SegmentId, SegmentPut};

/// The connection, which outlives the processes that use it.
pub(super) struct Link {
    pub(super) double: Double,
    is_cut: AtomicBool,
    ears: Mutex<Vec<Arc<Ear>>>,
}

impl Link {
    pub(super) fn new(double: Double) -> Arc<Self> {
        Arc::new(Self { double, is_cut: AtomicBool::new(false), ears: Mutex::default() })
    }

    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub(super) fn mend(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
        self.double.reconnect();
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}

/// Receiver of pushes, which a cut link loses.
struct Ear {
    link: Weak<Link>,
    to: Weak<dyn Watcher>,
}

impl Ear {
    fn tell(&self, what: impl Fn(&dyn Watcher)) {
        if self.link.upgrade().is_some_and(|link| !link.is_cut()) {
            self.to.upgrade().iter().for_each(|watcher| what(&**watcher));
        }
    }
}

impl Watcher for Ear {
    fn suspect(&self, keys: &[&[u8]]) {
        self.tell(|watcher| watcher.suspect(keys));
    }

    fn all_suspect(&self, source: Option<Source>) {
        self.tell(|watcher| watcher.all_suspect(source));
    }

    fn log_changed(&self) {
        self.tell(|watcher| watcher.log_changed());
    }
}

/// End of the connection, held by a process.
pub(super) struct FarStore(Arc<Link>);

impl FarStore {
    pub(super) fn of(link: &Arc<Link>) -> Self {
        link.ears.lock().clear();
        Self(Arc::clone(link))
    }

    fn ask<'a, T: Send + 'a>(&'a self, answer: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(async move {
            let cut = || BackingError::Unreachable("the link is cut".into());
            if self.0.is_cut() {
                return Err(cut());
            }
            let answer = answer.await;
            if self.0.is_cut() { Err(cut()) } else { answer }
        })
    }
}

/// Other operations would change the store of another region.
fn not_used<'a, T>() -> Pending<'a, T> {
    unreachable!("a region only reads the store of another one")
}

impl Backing for FarStore {
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>> {
        self.ask(self.0.double.load(keys, tracking))
    }

    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart> {
        self.ask(self.0.double.read_log(from))
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        let ear = Arc::new(Ear { link: Arc::downgrade(&self.0), to: watcher });
        let heard: Weak<Ear> = Arc::downgrade(&ear);
        self.0.ears.lock().push(ear);
        self.0.double.watch(heard);
    }

    fn source(&self) -> Source {
        self.0.double.source()
    }

    fn standing(&self, source: Source) -> CopyStatus {
        self.0.double.standing(source)
    }

    fn clock_ahead_ms(&self) -> Option<i64> {
        Some(0)
    }

    fn put<'a>(&'a self, _: &'a [u8], _: Write<'a>) -> Pending<'a, PutOutcome> {
        not_used()
    }

    fn remove<'a>(&'a self, _: &'a [u8]) -> Pending<'a, bool> {
        not_used()
    }

    fn load_segments<'a>(&'a self, _: FillId, _: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>> {
        not_used()
    }

    fn put_segment(&self, _: SegmentId, _: Bytes, _: Duration) -> Pending<'_, SegmentPut> {
        not_used()
    }

    fn extend_segments<'a>(&'a self, _: FillId, _: &'a [u32], _: Duration) -> Pending<'a, usize> {
        not_used()
    }

    fn remove_segments<'a>(&'a self, _: FillId, _: &'a [u32]) -> Pending<'a, ()> {
        not_used()
    }

    fn take_lease<'a>(&'a self, _: &'a [u8], _: LeaseRequest<'a>) -> Pending<'a, TakeOutcome> {
        not_used()
    }

    fn renew_lease<'a>(&'a self, _: &'a Lease, _: Duration) -> Pending<'a, RenewOutcome> {
        not_used()
    }

    fn release_lease<'a>(&'a self, _: &'a Lease, _: Write<'a>) -> Pending<'a, PutOutcome> {
        not_used()
    }

    fn wait<'a>(&'a self, _: &'a [u8], _: Option<Version>, _: Duration) -> Pending<'a, WaitOutcome> {
        not_used()
    }

    fn log_state(&self) -> Pending<'_, LogState> {
        not_used()
    }

    fn append_log<'a>(&'a self, _: &'a [Bytes]) -> Pending<'a, AppendOutcome> {
        not_used()
    }

    fn rename_log(&self, _: LogCursor) -> Pending<'_, LogState> {
        not_used()
    }

    fn trim_log(&self, _: LogCursor) -> Pending<'_, LogState> {
        not_used()
    }
}
