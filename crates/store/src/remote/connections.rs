//! Connections of one generation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use redis::{PushInfo, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};

use super::cluster;
use super::dispatcher::PushDispatcher;
use super::heartbeat::Beat;
use super::names::Names;
use super::reply;
use super::wire::{Connector, Mode, OpenError, Redirections, Wire};
use crate::backing::{BackingError, LOG_KEPT_BYTES_MAX, SEGMENT_FRAME_BYTES_MAX, Source};

/// Records, leases and the log use *control*, which receives invalidations. Segments use *bulk*, so that no invalidation waits for a
/// megabyte of data. Commands that need WATCH use an *exclusive* connection, which is borrowed by one caller at a time.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) source: Source,
    pub(super) names: Names,
    pub(super) control: Wire,
    pub(super) dispatcher: Arc<PushDispatcher>,
    pub(super) comparison: Comparison,
    pub(super) bulk_room: Arc<Semaphore>,
    bulk: Arc<RwLock<Option<Wire>>>,
    exclusive: Arc<ExclusivePool>,
    demotion: Arc<Notify>,
    connector: Connector,
    mode: Mode,
}

/// A new generation, with the tasks of two connections and the first heartbeat.
pub(super) struct Opened {
    pub(super) connections: Arc<Connections>,
    /// Ends with *control*.
    pub(super) control: JoinHandle<()>,
    /// Ends with *bulk*.
    pub(super) bulk: JoinHandle<()>,
    pub(super) beat: Beat,
}

/// Method of comparing a value before it is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// By `SET` with `IFEQ`, which Valkey 8.1, Redis 8.4 and `larder kv` support.
    ByServer,
    /// By WATCH, GETRANGE, MULTI, SET and EXEC.
    ByUs,
}

/// Pool of connections for WATCH. Connections are opened on demand, and kept even if the caller has stopped waiting. Otherwise, every
/// operation on a distant server would open a new connection.
struct ExclusivePool {
    /// One permit per connection that is being opened, is lent, or has unanswered requests.
    permits: Arc<Semaphore>,
    shared: Arc<IdleWires>,
    runtime: Handle,
    patience: Duration,
}

#[derive(Default)]
struct IdleWires {
    /// Idle connections, with the time since which each is idle.
    wires: Mutex<Vec<(Instant, Wire)>>,
    /// Handles of all open connections, so that the end of the generation also closes the lent ones.
    closers: Mutex<Closers>,
}

#[derive(Default)]
struct Closers {
    open: Vec<AbortHandle>,
    is_closed: bool,
}

/// A borrowed exclusive connection.
pub(super) struct Borrowed<'a> {
    lent: Option<(Wire, OwnedSemaphorePermit)>,
    exclusive: &'a ExclusivePool,
}

impl Connections {
    /// Opens *control*, ready to follow keys, and *bulk*. A server may be far away, so no step waits for a reply on which it doesn't
    /// depend: opening takes three round trips, one of them for TCP, plus those of TLS.
    pub(super) async fn open(
        connector: &Connector,
        dispatcher: Arc<PushDispatcher>,
        source: Source,
        (names, probe): (&Names, Option<&str>),
    ) -> Result<Opened, OpenError> {
        let demotion = Arc::new(Notify::new());
        let receiver = Arc::clone(&dispatcher);
        let dispatch = move |push: PushInfo| {
            receiver.dispatch(push);
            Ok::<(), ()>(())
        };
        let ((control, controlling), (bulk, bulking)) = tokio::try_join! {
            connector.open(control_reply_bytes_max(connector), dispatch, Arc::clone(&demotion)),
            connector.open(BULK_REPLY_BYTES_MAX, ignore, Arc::clone(&demotion)),
        }?;
        let ((), comparison, beat) = tokio::try_join! {
            async { track(&control).await.map_err(OpenError::Tracking) },
            async { comparison(&control, probe).await.map_err(OpenError::SetUp) },
            async { Beat::of(&control, connector.redirections()).await.map_err(OpenError::SetUp) },
        }?;
        let connections = Self {
            source,
            names: names.clone(),
            control,
            dispatcher,
            comparison,
            bulk_room: Arc::new(Semaphore::new(BULK_ROOM_KIB)),
            bulk: Arc::new(RwLock::new(Some(bulk))),
            exclusive: Arc::new(ExclusivePool::new(connector.timeout())),
            demotion,
            connector: connector.clone(),
            mode: Mode::Plain,
        };
        Ok(Opened { connections: Arc::new(connections), control: controlling, bulk: bulking, beat })
    }

    /// Returns how to connect to this server.
    pub(super) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Reopens *bulk*. The returned task ends when the connection does.
    pub(super) async fn reopen_bulk(&self) -> Result<JoinHandle<()>, OpenError> {
        let (wire, driving) =
            self.connector.open(BULK_REPLY_BYTES_MAX, ignore, Arc::clone(&self.demotion)).await?;
        *self.bulk.write() = Some(wire);
        Ok(driving)
    }

    /// Returns the same connections, for requests to a node that is taking over their slot.
    pub(super) fn asking(&self) -> Self {
        Self { control: self.control.in_mode(Mode::Asking), mode: Mode::Asking, ..self.clone() }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.mode == Mode::Asking
    }

    pub(super) fn bulk(&self) -> Result<Wire, BackingError> {
        let bulk =
            self.bulk.read().as_ref().filter(|wire| !wire.is_closed()).map(|wire| wire.in_mode(self.mode));
        bulk.ok_or_else(|| BackingError::Unreachable("the connection for segments is reconnecting".into()))
    }

    /// Pings *bulk* after every `pause`. Returns if a reply takes longer than `patience`.
    pub(super) async fn bulk_is_silent(&self, pause: Duration, patience: Duration) {
        loop {
            sleep(pause).await;
            let Ok(bulk) = self.bulk() else { return };
            // A refusal is also a sign of life.
            if timeout(patience, bulk.ask_one(&cmd("PING"))).await.is_err() {
                return bulk.closer().abort();
            }
        }
    }

    /// Waits for a reply that shows that the server is no longer the master.
    pub(super) async fn demoted(&self) {
        self.demotion.notified().await;
    }

    pub(super) async fn exclusive(&self) -> Result<Borrowed<'_>, BackingError> {
        self.exclusive.borrow(&self.connector, &self.demotion, self.mode).await
    }

    /// Closes all connections, including lent ones, so that pending requests fail.
    pub(super) fn close(&self) {
        self.control.closer().abort();
        if let Some(bulk) = self.bulk.write().take() {
            bulk.closer().abort();
        }
        self.exclusive.shared.close();
    }
}

impl ExclusivePool {
    fn new(patience: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(EXCLUSIVE_MAX));
        Self { permits, shared: Arc::default(), runtime: Handle::current(), patience }
    }

    async fn borrow(
        &self,
        connector: &Connector,
        demotion: &Arc<Notify>,
        mode: Mode,
    ) -> Result<Borrowed<'_>, BackingError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|error| BackingError::Unreachable(Box::new(error)))?;
        let (wire, permit) = match self.shared.take() {
            Some(wire) => (wire, permit),
            None => self.open(permit, connector, demotion).await?,
        };
        Ok(Borrowed { lent: Some((wire.in_mode(mode), permit)), exclusive: self })
    }

    /// Opens a connection in a task of its own: if this caller stops waiting, the next one gets the connection.
    async fn open(
        &self,
        permit: OwnedSemaphorePermit,
        connector: &Connector,
        demotion: &Arc<Notify>,
    ) -> Result<(Wire, OwnedSemaphorePermit), BackingError> {
        let (opened, wanted) = oneshot::channel();
        let (idle, connector, demotion) = (Arc::clone(&self.shared), connector.clone(), Arc::clone(demotion));
        self.runtime.spawn(async move {
            let wire = connector
                .open(EXCLUSIVE_REPLY_BYTES_MAX, ignore, demotion)
                .await
                .map(|(wire, _)| idle.register(wire).map(|wire| (wire, permit)));
            if let Err(Ok(Some((wire, _permit)))) = opened.send(wire) {
                idle.put(wire);
            }
        });
        match wanted.await {
            Ok(Ok(Some(lent))) => Ok(lent),
            Ok(Err(error)) => Err(BackingError::Unreachable(Box::new(error))),
            Ok(Ok(None)) | Err(_) => Err(BackingError::Unreachable("the connection has ended".into())),
        }
    }

    /// Returns a connection to the pool once all its requests have been answered. If that takes too long, it is closed.
    fn return_when_drained(&self, wire: Wire, permit: OwnedSemaphorePermit) {
        let (idle, patience) = (Arc::clone(&self.shared), self.patience);
        self.runtime.spawn(async move {
            let answered =
                timeout(patience, wire.drain_replies()).await.is_ok_and(|answered| answered.is_ok());
            if answered {
                idle.put(wire);
            }
            drop(permit);
        });
    }
}

impl IdleWires {
    fn take(&self) -> Option<Wire> {
        let mut wires = self.wires.lock();
        let is_good =
            |(since, wire): &(Instant, Wire)| !wire.is_closed() && since.elapsed() < EXCLUSIVE_IDLE_MAX;
        std::iter::from_fn(|| wires.pop()).find(is_good).map(|(_, wire)| wire)
    }

    fn put(&self, wire: Wire) {
        let mut wires = self.wires.lock();
        if !wire.is_closed() && wires.len() < EXCLUSIVE_MAX {
            wires.push((Instant::now(), wire));
        }
    }

    /// Registers a connection; `None` if the generation has ended meanwhile.
    fn register(&self, wire: Wire) -> Option<Wire> {
        let mut closers = self.closers.lock();
        closers.open.retain(|closer| !closer.is_finished());
        closers.open.push(wire.closer());
        (!closers.is_closed).then_some(wire)
    }

    fn close(&self) {
        let mut closers = self.closers.lock();
        closers.is_closed = true;
        closers.open.drain(..).for_each(|closer| closer.abort());
    }
}

impl std::ops::Deref for Borrowed<'_> {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        let (wire, _) = self.lent.as_ref().expect("present until dropped");
        wire
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        match self.lent.take() {
            Some((wire, permit)) if wire.has_unanswered() => self.exclusive.return_when_drained(wire, permit),
            Some((wire, _permit)) => self.exclusive.shared.put(wire),
            None => {}
        }
    }
}

async fn track(wire: &Wire) -> Result<(), BackingError> {
    reply::done(wire.ask_one(cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN")).await?)
}

/// Tests whether the server supports IFEQ. Writes nothing, because the tested key never exists. Without a key, nothing will be written.
async fn comparison(wire: &Wire, probe: Option<&str>) -> Result<Comparison, BackingError> {
    let Some(probe) = probe else { return Ok(Comparison::ByUs) };
    let answer = wire.ask_one(cmd("SET").arg(probe).arg("x").arg("IFEQ").arg("y").arg("PX").arg(1)).await?;
    Ok(if answer == Value::Nil { Comparison::ByServer } else { Comparison::ByUs })
}

fn ignore(_: PushInfo) -> Result<(), ()> {
    Ok(())
}

/// Maximum number of callers that compare and set concurrently; others wait.
const EXCLUSIVE_MAX: usize = 4;
/// Idle time after which a connection isn't reused, because the server or a middlebox may have dropped it. Common idle timeouts aren't
/// shorter.
const EXCLUSIVE_IDLE_MAX: Duration = Duration::from_secs(30);
/// Maximum length of a reply on *control*: four times that of a record or of one read of the log.
const CONTROL_REPLY_BYTES_MAX: usize = 256 << 10;
/// Returns the maximum length of a reply on *control*. In a cluster, the longest is the map of slots.
fn control_reply_bytes_max(connector: &Connector) -> usize {
    match connector.redirections() {
        Redirections::Unexpected => CONTROL_REPLY_BYTES_MAX,
        Redirections::Followed => cluster::REPLY_BYTES_MAX,
    }
}

/// Maximum length of a reply on *bulk*: a segment with the overhead of the protocol.
const BULK_REPLY_BYTES_MAX: usize = SEGMENT_FRAME_BYTES_MAX + (4 << 10);
/// Maximum length of a reply on an *exclusive* connection. The longest is a log that is being trimmed or renamed, which begins at a
/// record.
const EXCLUSIVE_REPLY_BYTES_MAX: usize = LOG_KEPT_BYTES_MAX as usize + (1 << 20);
/// Maximum total size of segments in flight to and from the server, in KiB.
pub(super) const BULK_ROOM_KIB: usize = 16 << 10;
