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
//! Each process has two connections, and up to four more while it replaces records under a condition or renews leases. The table of
//! followed keys takes at most [`RemoteSettings::followed_bytes_max`] bytes.
//!
//! # Locks
//!
//! While a lock is held, no other lock is taken, no watcher is called, and nothing is awaited.

mod bounded;
mod clock;
mod connections;
mod dial;
mod dispatcher;
mod examine;
mod follow_table;
mod heartbeat;
mod leases;
mod link;
mod log;
pub(crate) mod log_bytes;
mod names;
mod records;
mod reply;
mod segments;
mod settings;
mod source_status;
mod transaction;
mod url;
mod wire;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

pub use self::examine::{ExamineError, Examined, examine};
pub use self::settings::{Address, Host, InvalidWord, RemoteSettings, Secret, Word};
pub use self::url::UrlError;

use self::link::Link;
use self::records::LeaseEffect;
use crate::backing::{
    AppendOutcome, Backing, CopyStatus, Lease, LeaseRequest, Loaded, LogCursor, LogPart, LogState, Pending,
    PutOutcome, RenewOutcome, Source, TakeOutcome, Tracking, Version, WaitOutcome, Watcher, Write,
};
use crate::{FillId, SegmentId, SegmentPut};

/// Connections of one instance to a Redis-compatible server. Dropping this value closes all of them.
pub struct Remote {
    link: Arc<Link>,
    log_seen: log::LastSeen,
    link_task: AbortHandle,
    runtime: Handle,
}

impl Remote {
    /// Connects, and reconnects whenever the connection is lost; the server need not be running yet. Call it inside a tokio runtime, on
    /// which the connections then run; operations may be called on any runtime.
    pub fn connect(settings: &RemoteSettings) -> Self {
        let link = Arc::new(Link::new(settings));
        let running = Arc::clone(&link);
        let link_task = tokio::spawn(async move { running.run().await }).abort_handle();
        Self { link, log_seen: log::LastSeen::default(), link_task, runtime: Handle::current() }
    }

    /// Returns the reason why there is no connection, without the credentials; `None` if connected.
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.link.trouble()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.link_task.abort();
    }
}

impl Backing for Remote {
    fn load<'a>(&'a self, keys: &'a [&'a [u8]], tracking: Tracking) -> Pending<'a, Vec<Option<Loaded>>> {
        Box::pin(async move { records::load(&*self.link.connections()?, keys, tracking).await })
    }

    fn put<'a>(&'a self, key: &'a [u8], write: Write<'a>) -> Pending<'a, PutOutcome> {
        Box::pin(async move {
            let connections = self.link.connections()?;
            records::put(&connections, key, &write, LeaseEffect::Keep).await
        })
    }

    fn remove<'a>(&'a self, key: &'a [u8]) -> Pending<'a, bool> {
        Box::pin(async move { records::remove(&*self.link.connections()?, key).await })
    }

    fn load_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, Vec<Option<Bytes>>> {
        Box::pin(async move { segments::load(&*self.link.connections()?, fill, indexes).await })
    }

    fn put_segment(&self, id: SegmentId, bytes: Bytes, ttl: Duration) -> Pending<'_, SegmentPut> {
        Box::pin(async move { segments::put(&*self.link.connections()?, id, &bytes, ttl).await })
    }

    fn extend_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32], ttl: Duration) -> Pending<'a, usize> {
        Box::pin(async move { segments::extend(&*self.link.connections()?, fill, indexes, ttl).await })
    }

    fn remove_segments<'a>(&'a self, fill: FillId, indexes: &'a [u32]) -> Pending<'a, ()> {
        Box::pin(async move { segments::remove(&*self.link.connections()?, fill, indexes).await })
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.link.watchers.add(watcher);
    }

    fn source(&self) -> Source {
        self.link.status.source()
    }

    fn standing(&self, source: Source) -> CopyStatus {
        self.link.status.standing(source, Instant::now())
    }

    fn silence(&self) -> Duration {
        self.link.status.silence(Instant::now())
    }

    fn clock_ahead_ms(&self) -> Option<i64> {
        self.link.status.clock_ahead_ms()
    }

    fn take_lease<'a>(&'a self, key: &'a [u8], request: LeaseRequest<'a>) -> Pending<'a, TakeOutcome> {
        Box::pin(async move {
            let connections = self.link.connections()?;
            let asking = leases::LeaseAttempt::new(&self.link, &self.runtime, key, request.ttl);
            asking.take(&connections, request).await
        })
    }

    fn renew_lease<'a>(&'a self, lease: &'a Lease, ttl: Duration) -> Pending<'a, RenewOutcome> {
        Box::pin(async move { leases::renew(&*self.link.connections()?, lease, ttl).await })
    }

    fn release_lease<'a>(&'a self, lease: &'a Lease, write: Write<'a>) -> Pending<'a, PutOutcome> {
        Box::pin(async move {
            let connections = self.link.connections()?;
            let write = Write { lease: Some(lease), ..write };
            records::put(&connections, &lease.key, &write, LeaseEffect::Release).await
        })
    }

    fn wait<'a>(&'a self, key: &'a [u8], seen: Option<Version>, limit: Duration) -> Pending<'a, WaitOutcome> {
        Box::pin(async move { leases::wait(&*self.link.connections()?, key, seen, limit).await })
    }

    fn log_state(&self) -> Pending<'_, LogState> {
        Box::pin(async move {
            let state = log::state(&*self.link.connections()?).await?;
            Ok(self.log_seen.note(state))
        })
    }

    fn append_log<'a>(&'a self, records: &'a [Bytes]) -> Pending<'a, AppendOutcome> {
        Box::pin(async move { log::append(&*self.link.connections()?, records).await })
    }

    fn read_log(&self, from: LogCursor) -> Pending<'_, LogPart> {
        Box::pin(async move { log::read(&*self.link.connections()?, &self.log_seen, from).await })
    }

    fn rename_log(&self, read: LogCursor) -> Pending<'_, LogState> {
        Box::pin(async move {
            let state = log::rename(&*self.link.connections()?, read).await?;
            Ok(self.log_seen.note(state))
        })
    }

    fn trim_log(&self, floor: LogCursor) -> Pending<'_, LogState> {
        Box::pin(async move {
            let state = log::trim(&*self.link.connections()?, floor).await?;
            Ok(self.log_seen.note(state))
        })
    }
}
