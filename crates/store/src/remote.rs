//! Tier on a server of the Redis protocol: plain strings, no scripts, no modules.
//!
//! [`Remote`] implements [`Backing`]. `docs/internals/remote-tier.md` specifies names, bytes and connections, and how each promise is kept.
//! The server must support RESP3 and `CLIENT TRACKING` (Redis 6, Valkey, `larder kv`); the tier uses `SET` with `IFEQ` if the server
//! supports it.
//!
//! The tier makes no decisions about responses, and never waits for an unreachable server. [`Guarded`](crate::backing::Guarded) bounds all
//! other waits.
//!
//! # Cost
//!
//! Each process has two connections to each server, and up to four more while it replaces records under a condition or renews leases. The table of
//! followed keys takes at most [`RemoteSettings::followed_bytes_max`] bytes.
//!
//! # Locks
//!
//! While a lock is held, no other lock is taken, no watcher is called, and nothing is awaited. The exception is the turn in which the map of
//! a cluster is replaced (`Cluster::changing`): other locks are taken and watchers called in it, so watchers must not wait for the tier.

mod asking;
mod bounded;
mod clock;
mod cluster;
mod connections;
mod dial;
mod dispatcher;
mod endpoints;
mod examine;
mod follow_table;
mod heartbeat;
mod leases;
mod link;
mod log;
pub(crate) mod log_bytes;
mod master;
mod names;
mod records;
mod reply;
mod segments;
mod sentinel;
mod settings;
mod slots;
mod source_status;
mod transaction;
mod url;
mod wire;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

pub use self::examine::{ExamineError, Examined, ExaminedPeer, examine, examine_peer};
pub use self::settings::{
    Access, Address, EndpointError, Host, InvalidWord, RemoteSettings, Secret, Seeds, Sentinels, Server, Word,
};
pub use self::url::UrlError;

use self::cluster::Cluster;
use self::connections::Connections;
use self::link::Link;
use self::master::Master;
use self::names::{Names, Place};
use self::records::LeaseEffect;
use self::reply::Refused;
use crate::backing::{
    AppendOutcome, Backing, BackingError, CopyStatus, Lease, LeaseRequest, Loaded, LogCursor, LogPart,
    LogState, Pending, PutOutcome, RenewOutcome, Replication, Source, TakeOutcome, Tracking, Version,
    WaitOutcome, Watcher, Write,
};
use crate::{FillId, SegmentId, SegmentPut};

/// Connections of one instance to a Redis-compatible server, or to the masters of a cluster. Dropping it closes them.
pub struct Remote {
    servers: Servers,
    names: Names,
    access: Access,
    log_seen: Arc<log::LastSeen>,
    task: AbortHandle,
    runtime: Handle,
}

enum Servers {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
}

/// An operation on the connections to one server. It is done again if another node of a cluster has the key.
trait Operation<'a, T>: Fn(Arc<Link>, Arc<Connections>) -> Pending<'a, T> + Send + Sync {}

impl<'a, T, F: Fn(Arc<Link>, Arc<Connections>) -> Pending<'a, T> + Send + Sync> Operation<'a, T> for F {}

impl Remote {
    /// Connects, and reconnects whenever the connection is lost; the server need not be running yet. Call it inside a tokio runtime, on
    /// which the connections then run; operations may be called on any runtime.
    pub fn connect(settings: &RemoteSettings) -> Self {
        let log_seen = Arc::default();
        let (servers, task) = match &settings.address {
            Address::Cluster(seeds) => {
                let cluster = Cluster::connect(settings, &seeds.hosts);
                let running = Arc::downgrade(&cluster);
                let task = tokio::spawn(async move { cluster::run(&running).await }).abort_handle();
                (Servers::Cluster(cluster), task)
            }
            address => {
                let shared = link::Shared::default();
                let link = Arc::new(Link::new(settings, address, Master::new(settings, &log_seen), &shared));
                let running = Arc::clone(&link);
                let task = tokio::spawn(async move { running.run().await }).abort_handle();
                (Servers::One(link), task)
            }
        };
        let names = Names::new(&settings.prefix);
        let (access, runtime) = (settings.access, Handle::current());
        Self { servers, names, access, log_seen, task, runtime }
    }

    /// Returns the reason why there is no connection, without the credentials; `None` if connected.
    pub fn trouble(&self) -> Option<Arc<str>> {
        match &self.servers {
            Servers::One(link) => link.trouble(),
            Servers::Cluster(cluster) => cluster.trouble(),
        }
    }

    fn link(&self, place: Place<'_>) -> Result<Arc<Link>, BackingError> {
        match &self.servers {
            Servers::One(link) => Ok(Arc::clone(link)),
            Servers::Cluster(cluster) => cluster.link(self.names.slot(place)),
        }
    }

    /// Returns the link to the server that has the log.
    fn log_link(&self) -> Option<Arc<Link>> {
        self.link(Place::Log).ok()
    }

    async fn run<'a, T>(
        &self,
        place: Place<'_>,
        operation: impl Operation<'a, T>,
    ) -> Result<T, BackingError> {
        let link = self.link(place)?;
        let connections = match (link.connections(), &self.servers) {
            (Err(BackingError::Unreachable(why)), Servers::Cluster(cluster)) if cluster.works() => {
                return Err(BackingError::PartAway(why));
            }
            (connections, _) => connections?,
        };
        let answer = operation(link, Arc::clone(&connections)).await;
        let (Servers::Cluster(cluster), Err(error)) = (&self.servers, &answer) else { return answer };
        let Some(redirect) = Refused::redirect(error) else { return answer };
        let (link, connections) = cluster.redirected(redirect, &connections)?;
        operation(link, connections).await
    }

    async fn load_one(&self, key: &[u8], tracking: Tracking) -> Result<Option<Loaded>, BackingError> {
        let mut found = self
            .run(Place::Key(key), |_, connections| {
                Box::pin(async move { records::load(&connections, &[key], tracking).await })
            })
            .await?;
        Ok(found.pop().flatten())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backing for Remote {
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>> {
        Box::pin(async move {
            match &self.servers {
                Servers::One(link) => records::load(&*link.connections()?, keys, tracking).await,
                Servers::Cluster(_) => {
                    try_join_all(keys.iter().map(|key| self.load_one(key, tracking))).await
                }
            }
        })
    }

    fn put<'a>(&'a self, key: &'a [u8], write: Write<'a>) -> Pending<'a, PutOutcome> {
        Box::pin(self.run(Place::Key(key), move |_, connections| {
            let write = write.clone();
            Box::pin(async move { records::put(&connections, key, &write, LeaseEffect::Keep).await })
        }))
    }

    fn remove<'a>(&'a self, key: &'a [u8]) -> Pending<'a, bool> {
        Box::pin(self.run(Place::Key(key), move |_, connections| {
            Box::pin(async move { records::remove(&connections, key).await })
        }))
    }

    fn load_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>> {
        Box::pin(self.run(Place::Fill(fill), move |_, connections| {
            Box::pin(async move { segments::load(&connections, fill, indexes).await })
        }))
    }

    fn put_segment(&self, id: SegmentId, bytes: Bytes, ttl: Duration) -> Pending<'_, SegmentPut> {
        Box::pin(self.run(Place::Fill(id.fill), move |_, connections| {
            let bytes = bytes.clone();
            Box::pin(async move { segments::put(&connections, id, &bytes, ttl).await })
        }))
    }

    fn extend_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32], ttl: Duration) -> Pending<'a, usize> {
        Box::pin(self.run(Place::Fill(fill), move |_, connections| {
            Box::pin(async move { segments::extend(&connections, fill, indexes, ttl).await })
        }))
    }

    fn remove_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, ()> {
        Box::pin(self.run(Place::Fill(fill), move |_, connections| {
            Box::pin(async move { segments::remove(&connections, fill, indexes).await })
        }))
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        match &self.servers {
            Servers::One(link) => link.watchers.add(watcher),
            Servers::Cluster(cluster) => cluster.watchers().add(watcher),
        }
    }

    /// In a cluster, this is the node that has the log: a lost connection to another node makes all copies suspect.
    fn source(&self) -> Source {
        self.log_link().map_or(NO_SOURCE, |link| link.status.source())
    }

    /// In a cluster, a copy is verified while both its node and the node that has the log are.
    fn standing(&self, source: Source) -> CopyStatus {
        let now = Instant::now();
        match &self.servers {
            Servers::One(link) => link.status.standing(source, now),
            Servers::Cluster(cluster) => cluster.standing(source, now),
        }
    }

    fn silence(&self) -> Duration {
        self.log_link().map_or(Duration::MAX, |link| link.status.silence(Instant::now()))
    }

    fn clock_ahead_ms(&self) -> Option<i64> {
        self.log_link()?.status.clock_ahead_ms()
    }

    fn take_lease<'a>(&'a self, key: &'a [u8], request: LeaseRequest<'a>) -> Pending<'a, TakeOutcome> {
        Box::pin(self.run(Place::Key(key), move |link, connections| {
            let asking = leases::LeaseAttempt::new(&link, &self.runtime, key, request.ttl);
            Box::pin(async move { asking.take(&connections, request).await })
        }))
    }

    fn renew_lease<'a>(&'a self, lease: &'a Lease, ttl: Duration) -> Pending<'a, RenewOutcome> {
        Box::pin(self.run(Place::Key(&lease.key), move |_, connections| {
            Box::pin(async move { leases::renew(&connections, lease, ttl).await })
        }))
    }

    fn release_lease<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome> {
        Box::pin(self.run(Place::Key(&lease.key), move |_, connections| {
            let write = Write { lease: Some(lease), ..write.clone() };
            Box::pin(
                async move { records::put(&connections, &lease.key, &write, LeaseEffect::Release).await },
            )
        }))
    }

    fn wait<'a>(&'a self, key: &'a [u8], seen: Option<Version>, limit: Duration) -> Pending<'a, WaitOutcome> {
        Box::pin(self.run(Place::Key(key), move |_, connections| {
            Box::pin(async move { leases::wait(&connections, key, seen, limit).await })
        }))
    }

    fn log_state(&self) -> Pending<'_, LogState> {
        Box::pin(async move {
            let state = self
                .run(Place::Log, |_, connections| Box::pin(async move { log::state(&connections).await }));
            Ok(self.log_seen.note(state.await?))
        })
    }

    fn append_log<'a>(&'a self, records: &'a [Bytes]) -> Pending<'a, AppendOutcome> {
        Box::pin(self.run(Place::Log, move |_, connections| {
            Box::pin(async move { log::append(&connections, records).await })
        }))
    }

    fn replicate_log(&self, limit: Duration) -> Pending<'_, Replication> {
        Box::pin(self.run(Place::Log, move |link, connections| {
            let known = match &self.servers {
                Servers::One(_) => 0,
                Servers::Cluster(cluster) => cluster.log_replicas(),
            };
            let replicas = link.replicas().max(known);
            Box::pin(async move { log::replicate(&connections, replicas, limit).await })
        }))
    }

    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart> {
        Box::pin(self.run(Place::Log, move |_, connections| {
            Box::pin(async move { log::read(&connections, (&self.log_seen, self.access), from).await })
        }))
    }

    fn rename_log(&self, read: LogCursor) -> Pending<'_, LogState> {
        Box::pin(async move {
            let state = self.run(Place::Log, move |_, connections| {
                Box::pin(async move { log::rename(&connections, read).await })
            });
            Ok(self.log_seen.note(state.await?))
        })
    }

    fn trim_log(&self, floor: LogCursor) -> Pending<'_, LogState> {
        Box::pin(async move {
            let state = self.run(Place::Log, move |_, connections| {
                Box::pin(async move { log::trim(&connections, floor).await })
            });
            Ok(self.log_seen.note(state.await?))
        })
    }
}

/// The source while no node has the log.
const NO_SOURCE: Source = Source { node: 0, generation: 0 };
