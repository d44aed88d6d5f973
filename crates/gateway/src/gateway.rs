//! The data plane as a whole: its threads, and a handle for other parts of the process.

mod reload;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fleet::counts::TierCounts;
use fleet::regions::RegionStatus;
use fleet::{StartTier, TIER_WRITERS};
use futures_util::future::join_all;
use origin::{OriginStats, Upstreams};
use store::Usage;
use store::backing::Health;
use telemetry::trace::SpanSink;
use telemetry::{AccessLog, Telemetry, Warnings};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot, watch};

pub use self::reload::NotReloaded;
use self::reload::{has_same_stores, keep_fixed, live};
use crate::compression::Compressor;
use crate::config::{CacheRule, Config, ListenerConfig, StoreIndex};
use crate::connection_table::ConnectionTable;
use crate::purge::{self, PurgeError, PurgeOrder, PurgeOutcome};
use crate::question::{EXPLAIN_JOBS_MAX, ExplainError, ExplainJob, Explanation, Question};
use crate::rewrite::Instance;
use crate::server::listener::{self, OpenConnections};
use crate::server::sockets::{self, Claim, InheritedSockets, Listener, SocketOwner};
use crate::server::tls::{self, ServedCertificate};
use crate::stores::Stores;
use crate::worker::{Drain, Shared, Worker};
use crate::{explain, in_step};

/// Parameters for starting a gateway.
pub struct Start<'a> {
    /// The checked configuration.
    pub config: Config,
    /// Metrics, created for the configured number of workers.
    pub telemetry: Arc<Telemetry>,
    /// Access log, created for the configured number of workers.
    pub access_log: &'a AccessLog,
    /// The runtime for all tasks that don't serve requests.
    pub background: Handle,
    /// Called after a worker has panicked. The connections of the worker are lost, and it accepts no new ones. The function doesn't
    /// have to return.
    pub on_failure: fn(),
    /// Destination of spans; absent: none.
    pub spans: Option<Arc<dyn SpanSink>>,
    /// Tier behind the memory of each store, in the order of the stores; trailing ones may be missing.
    pub tiers: Vec<Option<StartTier>>,
    /// Listening sockets from the parent process or a predecessor, by listener in the order of the configuration; trailing ones may be
    /// missing.
    pub inherited: Vec<Vec<TcpListener>>,
    /// Owner of the inherited sockets.
    pub inherited_owner: SocketOwner,
}

/// The reason why a gateway can't start, or a configuration can't take effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address can't be bound.
    #[error("can't listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A worker thread or its runtime can't be created.
    #[error("can't start a worker: {0}")]
    Worker(io::Error),
    /// The TLS settings of a listener can't be used.
    #[error("can't use the certificates of {address}: {source}")]
    Tls {
        /// The listener.
        address: SocketAddr,
        /// The cause.
        source: rustls::Error,
    },
    /// The kernel doesn't allow a socket to listen.
    #[error("can't listen: {0}")]
    Listen(io::Error),
    /// The server name is not valid in a header field.
    #[error("server_name {0:?} must be printable ASCII")]
    ServerName(String),
    /// A reload adds or removes stores.
    #[error("a reload can't add or remove stores")]
    Stores,
}

/// A running data plane. Dropping this value doesn't stop the data plane: see [`GatewayControl::drain`] and [`Gateway::join`].
pub struct Gateway {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    listening: Arc<[Weak<TcpListener>]>,
    /// Lets the workers accept connections.
    may_accept: watch::Sender<()>,
    threads: Vec<JoinHandle<()>>,
    background: Handle,
    drain_limit: Duration,
}

/// Minimum time for flushing stored responses to the tier behind memory, even if clients have used up the drain limit.
const TIER_DRAIN_MIN: Duration = Duration::from_secs(1);

impl Gateway {
    /// Binds all addresses and starts the workers, which serve no clients before [`Gateway::accept`]. If the gateway is dropped before
    /// that call, inherited sockets, with the clients waiting on them, stay with their owner.
    ///
    /// # Errors
    /// See [`StartError`]. After an error, no worker runs.
    pub fn start(start: Start<'_>) -> Result<Self, StartError> {
        let Start { config, telemetry, access_log, background, on_failure, .. } = start;
        let (workers, drain_limit) = (config.workers.max(1), config.drain_limit);
        let owner = start.inherited_owner;
        let inherited = start.inherited.into_iter().map(|sockets| InheritedSockets { sockets, owner });
        let bound = bind_all(&config.listeners, inherited, workers)?;
        let stores = Stores::new(&config, start.tiers);
        let memory = stores.first().cache.budget();
        let upstreams = Arc::new(Upstreams::new(background.clone()).charged_to(memory));
        let live = live(config, None, &upstreams, &telemetry)?;
        let (ask, explain_jobs) = mpsc::channel(EXPLAIN_JOBS_MAX);
        let shared = Arc::new(Shared {
            live: ArcSwap::from_pointee(live),
            stores,
            upstreams,
            telemetry,
            connections: AtomicUsize::new(0),
            instance: Instance::new(),
            doorway: ConnectionTable::new(workers),
            unproxied: Warnings::default(),
            drain: Drain::default(),
            compressor: Compressor::new(background.clone(), workers),
            spans: start.spans,
            explain_jobs: ask,
        });
        shared.stores.indices().for_each(|store| keep(&shared, store, &background));
        check_origins(&shared);
        let addresses = bound.iter().map(|(address, _)| *address).collect();
        let mut per_worker: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        for (number, (_, spread)) in bound.into_iter().enumerate() {
            for (worker, listeners) in per_worker.iter_mut().zip(spread) {
                worker.extend(listeners.into_iter().map(|listener| (number, listener)));
            }
        }
        let listening = per_worker.iter().flatten().map(|(_, listener)| listener.socket()).collect();
        let (mut explain_jobs, open) = (Some(explain_jobs), Arc::default());
        let (may_accept, accepting) = watch::channel(());
        let threads = per_worker
            .into_iter()
            .enumerate()
            .map(|(index, listeners)| {
                let (explain_jobs, open) = (explain_jobs.take(), Arc::clone(&open));
                let duties =
                    Duties { listeners, accepting: accepting.clone(), explain_jobs, open, on_failure };
                spawn_worker(&shared, access_log, index, duties, drain_limit)
            })
            .collect::<io::Result<_>>()
            .map_err(StartError::Worker)?;
        Ok(Self { shared, addresses, listening, may_accept, threads, background, drain_limit })
    }

    /// Starts to serve clients.
    ///
    /// # Errors
    /// The kernel doesn't allow a socket to listen.
    pub fn accept(&self) -> Result<(), StartError> {
        let mut sockets = self.listening.iter().filter_map(Weak::upgrade);
        sockets.try_for_each(|socket| sockets::listen(&socket)).map_err(StartError::Listen)?;
        self.may_accept.send_replace(());
        Ok(())
    }

    /// The addresses that accept connections, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns a handle for other parts of the process.
    pub fn control(&self) -> GatewayControl {
        GatewayControl { shared: Arc::clone(&self.shared), listening: Arc::clone(&self.listening) }
    }

    /// Waits until all workers have finished (see [`GatewayControl::drain`]) and their stored responses are written to the tier behind
    /// memory. Blocks the thread.
    pub fn join(self) {
        let begun = Instant::now();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        let left = self.drain_limit.saturating_sub(begun.elapsed()).max(TIER_DRAIN_MIN);
        let drains =
            self.shared.stores.iter().filter_map(|store| Some(store.tier.as_ref()?.drain(left, &store.name)));
        self.background.block_on(join_all(drains));
    }
}

/// Current state of a store.
#[derive(Clone, Debug)]
pub struct StoreMeasures<'a> {
    /// `None` for the default store.
    pub name: Option<&'a str>,
    /// Memory usage.
    pub usage: Usage,
    /// Counts of requests to the tier behind memory, if there is one.
    pub tier: Option<TierCounts>,
    /// Health of the tier behind memory.
    pub health: Option<Health>,
    /// Region of the tier, if there are several.
    pub region: Option<RegionStatus>,
}

/// A handle to a running data plane.
#[derive(Clone)]
pub struct GatewayControl {
    shared: Arc<Shared>,
    /// Sockets owned by the workers, which close them when they stop accepting.
    listening: Arc<[Weak<TcpListener>]>,
}

impl GatewayControl {
    /// Applies a configuration, as a whole, to new requests. Connections, pools of unchanged origins and stored responses stay.
    ///
    /// # Errors
    /// If the configuration can't take effect. The running configuration then stays in force.
    pub fn reload(&self, mut config: Config) -> Result<Vec<NotReloaded>, StartError> {
        let running = self.shared.live.load_full();
        if !has_same_stores(&running.config, &config) {
            return Err(StartError::Stores);
        }
        let fixed = keep_fixed(&running.config, &mut config);
        let live = live(config, Some(&running), &self.shared.upstreams, &self.shared.telemetry)?;
        let stores = &self.shared.stores;
        let moved = stores.indices().filter(|index| live.routes.may_hold_more(*index));
        moved.for_each(|index| stores.at(index).cache.invalidations.urls_move());
        self.shared.live.store(Arc::new(live));
        check_origins(&self.shared);
        Ok(fixed)
    }

    /// Purges stored responses with their variants. Fetches in progress for the same keys continue, but their responses aren't stored.
    ///
    /// # Errors
    /// The order isn't a valid purge, or no site serves its URL.
    pub async fn purge(&self, order: &PurgeOrder) -> Result<PurgeOutcome, PurgeError> {
        purge::purge(&self.shared, order).await
    }

    /// Sends a request as a client would, and returns the decisions about it, with the values that led to them. The request is real:
    /// it may be forwarded and counted, and its response may be stored.
    ///
    /// # Errors
    /// See [`ExplainError`].
    pub async fn explain(&self, question: Question) -> Result<Explanation, ExplainError> {
        question.check_in(self.shared.live.load().config.limits.target_bytes_max)?;
        let (answer, answered) = oneshot::channel();
        let job = ExplainJob { question, answer };
        self.shared.explain_jobs.try_send(job).map_err(|_| ExplainError::Busy)?;
        answered.await.map_err(|_| ExplainError::Busy)
    }

    /// Stops accepting connections, lets requests in flight finish up to the drain limit, then ends the workers.
    pub fn drain(&self) {
        self.shared.drain.begin();
    }

    /// Drains like [`GatewayControl::drain`], while a successor continues to accept connections from the sockets of
    /// [`GatewayControl::listening`].
    pub fn drain_for_successor(&self) {
        self.shared.drain.begin_for_successor();
    }

    /// From now on, forwards all requests for sites whose store has no tier behind memory, because purges now reach only the
    /// successor, and not the memory of this process.
    pub fn stop_reusing(&self) {
        let mut config = self.shared.live.load().config.clone();
        let stores = &self.shared.stores;
        for site in config.sites.iter_mut().filter(|site| stores.of(site).tier.is_none()) {
            let site = Arc::make_mut(site);
            site.rules.push(CacheRule::built_in(site.profile));
            site.rules.iter_mut().for_each(|rule| rule.caching.enabled = false);
        }
        if let Err(error) = self.reload(config) {
            tracing::error!(%error, "stored responses may be used until this process ends");
        }
    }

    /// Returns the listening sockets, for a process that takes them over.
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        let mut open: Vec<_> = self.listening.iter().filter_map(Weak::upgrade).collect();
        // Several workers may share a socket.
        open.sort_by_key(Arc::as_ptr);
        open.dedup_by(|one, other| Arc::ptr_eq(one, other));
        open.iter().map(|listener| listener.as_fd().try_clone_to_owned()).collect()
    }

    /// Returns whether the data plane is stopping.
    pub fn is_draining(&self) -> bool {
        self.shared.drain.has_begun()
    }

    /// State of each store.
    pub fn stores(&self) -> impl Iterator<Item = StoreMeasures<'_>> {
        self.shared.stores.iter().map(|store| StoreMeasures {
            name: store.given_name(),
            usage: store.cache.memory.usage(),
            tier: store.tier.as_ref().map(|tier| tier.counts()),
            health: store.tier.as_ref().map(|tier| tier.health()),
            region: store.tier.as_ref().and_then(|tier| Some(tier.region.as_ref()?.status())),
        })
    }

    /// Maximum number of open client connections.
    pub fn connections_max(&self) -> usize {
        self.shared.live.load().config.limits.connections_max
    }

    /// Certificates that listeners present to clients.
    pub fn certificates(&self) -> Vec<ServedCertificate> {
        let live = self.shared.live.load();
        let listeners = live.config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        listeners.flat_map(|tls| tls::served(&tls.certificates)).collect()
    }

    /// Returns the counts of each origin, by its name.
    pub fn origin_stats(&self) -> Vec<(String, OriginStats)> {
        self.shared.upstreams.stats()
    }

    /// Returns the number of forwards in progress that other requests can join.
    pub fn fetches_in_flight(&self) -> usize {
        self.shared.stores.iter().map(|store| store.cache.fetches.running()).sum()
    }
}

/// Applies the checks and limits of all origins in the current configuration.
fn check_origins(shared: &Shared) {
    let live = shared.live.load();
    live.routes.by_name().values().for_each(|site| shared.upstreams.take_effect(&site.upstream));
}

/// Starts the background tasks of a store.
fn keep(shared: &Arc<Shared>, store: StoreIndex, background: &Handle) {
    let swept = Arc::clone(shared);
    background.spawn(async move { swept.stores.at(store).cache.sweep().await });
    let Some(tier) = &shared.stores.at(store).tier else { return };
    background.spawn(in_step::keep_in_step(Arc::clone(shared), store));
    for _ in 0..TIER_WRITERS {
        let tier = Arc::clone(tier);
        background.spawn(async move { tier.write_behind().await });
    }
    for task in in_step::region_tasks(tier) {
        background.spawn(task);
    }
}

/// Tasks of a worker.
struct Duties {
    /// Listeners, with their indices in the configuration.
    listeners: Vec<(usize, Listener)>,
    /// Signals that the worker may accept connections. Until then, the sockets may belong to another process.
    accepting: watch::Receiver<()>,
    /// Explain requests of operators; only one worker answers them.
    explain_jobs: Option<mpsc::Receiver<ExplainJob>>,
    open: Arc<OpenConnections>,
    on_failure: fn(),
}

/// An address, with its listeners for each worker.
type Bound = (SocketAddr, Vec<Vec<Listener>>);

/// Binds all addresses. Listeners of one process may share a port, such as `0.0.0.0:80` and `[::]:80`.
fn bind_all(
    listeners: &[ListenerConfig],
    inherited: impl Iterator<Item = InheritedSockets>,
    workers: usize,
) -> Result<Vec<Bound>, StartError> {
    let mut all: Vec<Bound> = Vec::with_capacity(listeners.len());
    let none = || InheritedSockets { sockets: Vec::new(), owner: SocketOwner::Process };
    let inherited = inherited.chain(std::iter::repeat_with(none));
    for (ListenerConfig { address, .. }, inherited) in listeners.iter().zip(inherited) {
        let is_ours = all.iter().any(|(ours, _)| ours.port() == address.port());
        let claim = if is_ours { Claim::Joins } else { Claim::First };
        let bound = sockets::bind(*address, inherited, workers, claim);
        all.push(bound.map_err(|source| StartError::Bind { address: *address, source })?);
    }
    Ok(all)
}

fn spawn_worker(
    shared: &Arc<Shared>,
    access_log: &AccessLog,
    index: usize,
    mut duties: Duties,
    drain_limit: Duration,
) -> io::Result<JoinHandle<()>> {
    let (recorder, access) = (shared.telemetry.worker(index), access_log.worker(index));
    let worker = Arc::new(Worker::new(Arc::clone(shared), index, recorder, access));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        let serve = async {
            if duties.accepting.changed().await.is_err() {
                return;
            }
            if let Some(explain_jobs) = duties.explain_jobs {
                tokio::spawn(explain::serve(Arc::clone(&worker), explain_jobs));
            }
            listener::serve(worker, duties.listeners, duties.open, drain_limit).await;
        };
        guard(|| runtime.block_on(serve), duties.on_failure);
        // The remaining tasks no longer have an owner, such as fills without clients.
        runtime.shutdown_background();
    })
}

/// Runs a worker, and calls `on_failure` if it panics. A panic in an exchange ends only its own task.
fn guard(serve: impl FnOnce(), on_failure: fn()) {
    if catch_unwind(AssertUnwindSafe(serve)).is_err() {
        tracing::error!("a worker has panicked");
        on_failure();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_worker_that_panics_is_a_failure_of_the_process() {
        static FAILURES: AtomicUsize = AtomicUsize::new(0);
        let on_failure = || _ = FAILURES.fetch_add(1, Ordering::Relaxed);
        guard(|| panic!("planted"), on_failure);
        assert_eq!(FAILURES.load(Ordering::Relaxed), 1);
        guard(|| {}, on_failure);
        assert_eq!(FAILURES.load(Ordering::Relaxed), 1);
    }
}
