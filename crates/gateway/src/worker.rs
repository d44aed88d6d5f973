//! State of worker threads: shared state, own counters, and the configuration in force.

#[cfg(test)]
pub(crate) mod sample;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use cache::Cache;
use caching::date;
use message::clock::now;
use origin::Upstreams;
use parking_lot::Mutex;
use store::Budget;
use telemetry::trace::SpanSink;
use telemetry::{AccessRecorder, Telemetry, Warnings, WorkerRecorder};
use tokio::sync::{Notify, mpsc};

use crate::active::ActiveConfig;
use crate::compression::Compressor;
use crate::config::ClientLimits;
use crate::connection_table::ConnectionTable;
use crate::question::ExplainJob;
use crate::rewrite::Instance;
use crate::routing::LiveSite;
use crate::stores::{Store, Stores};

/// State of all workers.
pub(crate) struct Shared {
    pub(crate) live: ArcSwap<ActiveConfig>,
    pub(crate) stores: Stores,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) connections: AtomicUsize,
    /// Recognises requests that this process has forwarded.
    pub(crate) instance: Instance,
    pub(crate) doorway: ConnectionTable,
    /// Limit on warnings about connections without a valid PROXY protocol header.
    pub(crate) unproxied: Warnings<10>,
    pub(crate) drain: Drain,
    pub(crate) compressor: Arc<Compressor>,
    /// Destination of spans.
    pub(crate) spans: Option<Arc<dyn SpanSink>>,
    /// Explanations that the admin API requests from the first worker.
    pub(crate) explain_jobs: mpsc::Sender<ExplainJob>,
}

impl Shared {
    /// Returns the store of the site that replied, or the first store.
    pub(crate) fn store_of(&self, site: Option<&LiveSite>) -> &Store {
        match site {
            Some(site) => self.stores.of(&site.config),
            None => self.stores.first(),
        }
    }

    /// Returns the budget for bytes that belong to no site.
    pub(crate) fn memory(&self) -> &Arc<Budget> {
        self.stores.first().cache.budget()
    }
}

impl Worker {
    /// Returns the store for the responses of a site.
    #[inline]
    pub(crate) fn store(&self, site: &LiveSite) -> &Store {
        self.shared.stores.of(&site.config)
    }

    /// Returns the cache for the responses of a site.
    #[inline]
    pub(crate) fn cache(&self, site: &LiveSite) -> &Cache {
        &self.store(site).cache
    }

    /// Makes room for a response of a site: if a client has too much unread data, one of its readers is dropped.
    pub(crate) fn make_room(&self, site: &LiveSite, limits: &ClientLimits) {
        let percent = limits.client_share_percent as u64;
        let Store { cache, readers, .. } = self.store(site);
        // At 100 percent, no client can exceed its share, even if small bodies take more than the half of the budget that is allowed for
        // fills.
        if percent < 100 {
            readers.make_room(cache.budget().filling_bytes_max() / 100 * percent);
        }
    }
}

/// Drain of the process: readiness ends first, then idle connections, then connections in use as their requests finish.
#[derive(Default)]
pub(crate) struct Drain {
    begun: AtomicBool,
    /// Whether another process accepts connections from the same sockets.
    has_successor: AtomicBool,
    wake: Notify,
}

impl Drain {
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }

    pub(crate) fn begin_for_successor(&self) {
        self.has_successor.store(true, Ordering::Release);
        self.begin();
    }

    pub(crate) fn has_successor(&self) -> bool {
        self.has_successor.load(Ordering::Acquire)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Resolves when idle connections should be closed. This is delayed, since a request may already be in flight, and it's better to
    /// answer it with `Connection: close` than with a reset (RFC 9112 section 9.5).
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

/// State of one worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Index among the workers.
    pub(crate) index: usize,
    pub(crate) recorder: WorkerRecorder,
    pub(crate) access: AccessRecorder,
    /// Buffer for arriving bytes, so that waiting connections hold no buffer. Only this worker's thread locks it, and never across a
    /// wait.
    pub(crate) arrivals: Mutex<Box<[u8]>>,
    /// Buffer in which a connection gathers responses to send. Locked like `arrivals`.
    gathering: Mutex<Vec<u8>>,
}

/// Maximum number of bytes of one read: the first bytes of a request, or a piece of a body or a tunnel.
const ARRIVALS_BYTES: usize = 64 * 1024;

/// Maximum size of a gathering buffer that is kept for reuse.
const GATHERING_BYTES_MAX: usize = 128 * 1024;

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        recorder: WorkerRecorder,
        access: AccessRecorder,
    ) -> Self {
        let arrivals = Mutex::new(vec![0; ARRIVALS_BYTES].into());
        Self { shared, index, recorder, access, arrivals, gathering: Mutex::default() }
    }

    /// Takes an empty buffer for responses.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        std::mem::take(&mut self.gathering.lock())
    }

    /// Returns an empty buffer for reuse by the next connection.
    pub(crate) fn give_back_buffer(&self, buffer: Vec<u8>) {
        debug_assert!(buffer.is_empty());
        if buffer.capacity() <= GATHERING_BYTES_MAX {
            *self.gathering.lock() = buffer;
        }
    }

    pub(crate) fn live(&self) -> Arc<ActiveConfig> {
        self.shared.live.load_full()
    }

    /// Updates a connection's configuration; costs one comparison if nothing changed.
    pub(crate) fn refresh(&self, live: &mut Arc<ActiveConfig>) {
        let current = self.shared.live.load();
        if !Arc::ptr_eq(&current, live) {
            *live = Arc::clone(&current);
        }
    }

    /// Returns the value of `Date` for a response generated now.
    pub(crate) fn date(&self) -> [u8; date::IMF_FIXDATE_BYTES] {
        date::format(now())
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shared.drain.has_begun()
    }
}

/// Signals one connection to close because it is idle. It registers on the first wait, and stays registered: a registration per request
/// would cost more than the look-up of a response.
pub(crate) struct IdleEnd {
    shared: Arc<Shared>,
    /// Registered for the task of the connection, which doesn't change.
    asked: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl IdleEnd {
    pub(crate) fn new(worker: &Worker) -> Self {
        Self { shared: Arc::clone(&worker.shared), asked: None }
    }

    /// Returns `Ready` after a stop was requested and the grace period for idle connections has ended.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.asked.is_some() && !self.shared.drain.has_begun() {
            return Poll::Pending;
        }
        let shared = &self.shared;
        let over = self.asked.get_or_insert_with(|| {
            let shared = Arc::clone(shared);
            Box::pin(async move { shared.drain.idle_is_over().await })
        });
        over.as_mut().poll(context)
    }

    /// Waits until `poll` is ready; returns `None` if the connection must close first.
    pub(crate) async fn or<T>(&mut self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        poll_fn(|context| match poll(context) {
            Poll::Pending => self.poll_over(context).map(|()| None),
            ready => ready.map(Some),
        })
        .await
    }
}
