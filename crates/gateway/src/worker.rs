//! What a worker thread has at hand: shared state, its own counters, the configuration in force, the time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use caching::{CacheName, Timestamp, date};
use store::Memory;
use telemetry::{AccessRecorder, Telemetry, WorkerRecorder};
use tokio::sync::{Notify, mpsc};

use crate::cache::epochs::Epochs;
use crate::cache::flight::Flights;
use crate::cache::stored::Primary;
use crate::config::Config;
use crate::explain::Errand;
use crate::origin::Origins;
use crate::route::Routes;

/// The configuration in force and what was built from it. Replaced as a whole by a reload; a request keeps the
/// one that it began with.
pub(crate) struct Live {
    pub(crate) config: Config,
    pub(crate) routes: Routes,
    pub(crate) cache_name: CacheName,
    /// By listener, in the order of the configuration.
    pub(crate) tls: Vec<Option<Arc<rustls::ServerConfig>>>,
}

/// State of all workers.
pub(crate) struct Shared {
    pub(crate) live: ArcSwap<Live>,
    pub(crate) memory: Memory<Primary>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) epochs: Epochs,
    pub(crate) origins: Arc<Origins>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) connections: AtomicUsize,
    pub(crate) drain: Drain,
    /// Questions for the first worker.
    pub(crate) errands: mpsc::Sender<Errand>,
}

/// The way to a stop: readiness is gone, then idle connections end, then those in use as their requests finish.
#[derive(Default)]
pub(crate) struct Drain {
    begun: AtomicBool,
    wake: Notify,
}

impl Drain {
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Resolves when idle connections are to be closed. Not at once: a request may be on its way already, and it's
    /// better answered, with `Connection: close`, than met with a reset (RFC 9112 section 9.5).
    async fn idle_is_over(&self) {
        const IDLE_GRACE: Duration = Duration::from_millis(500);
        self.begun().await;
        tokio::time::sleep(IDLE_GRACE).await;
    }

    /// Resolves once the drain has begun.
    pub(crate) async fn begun(&self) {
        let wake = self.wake.notified();
        tokio::pin!(wake);
        wake.as_mut().enable();
        if !self.has_begun() {
            wake.await;
        }
    }
}

/// One worker's view.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) recorder: WorkerRecorder,
    pub(crate) access: AccessRecorder,
}

impl Worker {
    pub(crate) fn live(&self) -> Arc<Live> {
        self.shared.live.load_full()
    }

    /// Brings a connection's view up to date; costs a comparison when nothing changed.
    pub(crate) fn refresh(&self, live: &mut Arc<Live>) {
        let current = self.shared.live.load();
        if !Arc::ptr_eq(&current, live) {
            *live = Arc::clone(&current);
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        now()
    }

    /// The value of `Date` for a response that is made now.
    pub(crate) fn date(&self) -> [u8; date::IMF_FIXDATE_BYTES] {
        date::format(now())
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shared.drain.has_begun()
    }

    /// Runs `future`, but gives up (`None`) when `idle` and the process is asked to stop.
    pub(crate) async fn until_drained<T>(&self, idle: Idle, future: impl Future<Output = T>) -> Option<T> {
        match idle {
            Idle::InUse => Some(future.await),
            Idle::BetweenRequests => tokio::select! {
                biased;
                output = future => Some(output),
                () = self.shared.drain.idle_is_over() => None,
            },
        }
    }
}

/// Whether a connection waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    BetweenRequests,
    InUse,
}

/// The wall clock. A clock before 1970 counts as 1970: ages are then too small, never negative.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
