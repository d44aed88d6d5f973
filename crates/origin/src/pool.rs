//! Connections kept between requests.
//!
//! Idle HTTP/1 connections are kept by the runtime that drives them: a worker takes its own newest one first, and borrows from
//! others if it has none. All workers share the HTTP/2 connections. Locks: `idle` and `shared` are never held together, nor across
//! an await; removed connections are dropped after unlocking.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::http1::{Http1Connection, Readiness};
use super::http2::{Http2Connection, StreamSlot};
use super::request::KeepAlive;
use super::resolve::Lead;
use super::stats::{Counters, Gauged};
use crate::settings::PoolConfig;

/// Kept connections to one server.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<IdleConnections>,
    shared: Mutex<Vec<Arc<Http2Connection>>>,
    /// Held while an HTTP/2 connection is opened, so that a burst of requests opens only one.
    pub(super) opening: tokio::sync::Mutex<()>,
    config: PoolConfig,
    pub(super) counters: Arc<Counters>,
}

/// Whether the next exchange may use a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    Allowed,
    Forbidden,
}

#[derive(Debug)]
struct Idle {
    connection: Http1Connection,
    since: Instant,
    _gauged: Gauged,
}

/// Conditions for keeping an idle connection.
struct Terms<'a> {
    now: Instant,
    idle_timeout: Duration,
    lead: &'a Lead,
}

#[derive(Debug, Default)]
struct IdleConnections {
    /// One list per runtime, with the newest connection last; there are few runtimes.
    by_home: Vec<(Id, Vec<Idle>)>,
    len: usize,
    /// The task that closes connections after the idle timeout. If its runtime ends, the next release starts a new task on another
    /// runtime.
    reaper: Option<AbortHandle>,
}

impl Pool {
    pub(super) fn new(config: PoolConfig, counters: Arc<Counters>) -> Self {
        Self {
            idle: Mutex::default(),
            shared: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            config,
            counters,
        }
    }

    pub(super) fn keep_alive(&self) -> KeepAlive {
        if self.config.idle_connections_max == 0 { KeepAlive::Off } else { KeepAlive::On }
    }

    /// Takes an idle HTTP/1 connection to one of the addresses in `lead`, preferably of this runtime. Closes connections to other
    /// addresses.
    pub(super) fn checkout(&self, now: Instant, lead: &Lead) -> Option<Http1Connection> {
        let home = Handle::current().id();
        let mut removed = Vec::new();
        let found = {
            let mut idle = self.idle.lock();
            idle.take(home, &self.terms(now, lead), &mut removed)
        };
        drop(removed);
        found
    }

    /// Keeps a connection whose response was read to its end.
    //= RFC 9112 section 6.3: bytes after the response are not its
    pub(super) fn release(self: &Arc<Self>, mut connection: Http1Connection) {
        if connection.readiness() == Readiness::Closed {
            return;
        }
        let now = Instant::now();
        let gauged = Gauged::new(&self.counters, |counters| &counters.connections_idle);
        let released = Idle { connection, since: now, _gauged: gauged };
        let mut removed = Vec::new();
        {
            let mut idle = self.idle.lock();
            if idle.len >= self.config.idle_connections_max {
                idle.prune(&self.terms(now, &Lead::Anywhere), &mut removed);
            }
            if idle.len < self.config.idle_connections_max {
                idle.put(released);
            } else {
                removed.push(released);
            }
            self.keep_reaping(&mut idle.reaper);
        }
        drop(removed);
    }

    fn terms<'a>(&self, now: Instant, lead: &'a Lead) -> Terms<'a> {
        Terms { now, idle_timeout: self.config.idle_timeout, lead }
    }

    /// Reserves a slot on an HTTP/2 connection to one of the addresses in `lead`. Connections to other addresses get no new
    /// streams.
    //= RFC 9113 section 5.1.2: the peer's limit on concurrent streams
    pub(super) fn reserve_stream(&self, opened_since: Option<Instant>, lead: &Lead) -> Option<StreamSlot> {
        let is_gone = |connection: &mut Arc<Http2Connection>| {
            !(connection.is_usable() && lead.leads_to(connection.address))
        };
        let mut shared = self.shared.lock();
        let _closed: Vec<_> = shared.extract_if(.., is_gone).collect();
        let slot = shared
            .iter()
            .filter(|connection| opened_since.is_none_or(|since| connection.opened_at >= since))
            .find_map(Http2Connection::reserve);
        drop(shared);
        slot
    }

    /// Shares a new HTTP/2 connection, unless connections aren't kept.
    pub(super) fn share(self: &Arc<Self>, connection: &Arc<Http2Connection>) {
        if self.keep_alive() == KeepAlive::Off {
            return;
        }
        self.shared.lock().push(Arc::clone(connection));
        self.keep_reaping(&mut self.idle.lock().reaper);
    }

    /// Starts the reaper, unless it is running. The reaper ends once the pool is empty or dropped. A connection that is released
    /// just before that has no reaper until the next release, but its age is still checked at checkout.
    fn keep_reaping(self: &Arc<Self>, reaper: &mut Option<AbortHandle>) {
        if reaper.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (pool, pause) = (Arc::downgrade(self), self.config.idle_timeout);
        let pause = pause.clamp(REAPER_PAUSE_MIN, REAPER_PAUSE_MAX);
        let reaping = async move {
            loop {
                sleep_until(Instant::now() + pause).await;
                if pool.upgrade().is_none_or(|pool| pool.reap(Instant::now())) {
                    return;
                }
            }
        };
        *reaper = Some(runtime.spawn(reaping).abort_handle());
    }

    /// Closes connections that have been idle too long, and returns whether none are left.
    fn reap(&self, now: Instant) -> bool {
        let is_gone = |connection: &mut Arc<Http2Connection>| {
            !connection.is_usable() || connection.is_idle_for(now, self.config.idle_timeout)
        };
        let mut shared = self.shared.lock();
        let _closed: Vec<_> = shared.extract_if(.., is_gone).collect();
        let is_unshared = shared.is_empty();
        drop(shared);
        let mut removed = Vec::new();
        let mut idle = self.idle.lock();
        idle.prune(&self.terms(now, &Lead::Anywhere), &mut removed);
        is_unshared && idle.len == 0
    }
}

const REAPER_PAUSE_MIN: Duration = Duration::from_millis(10);
const REAPER_PAUSE_MAX: Duration = Duration::from_secs(1);

impl IdleConnections {
    fn put(&mut self, idle: Idle) {
        let home = idle.connection.home;
        self.len += 1;
        match self.by_home.iter_mut().find(|(id, _)| *id == home) {
            Some((_, connections)) => connections.push(idle),
            None => self.by_home.push((home, vec![idle])),
        }
    }

    fn take(&mut self, home: Id, terms: &Terms<'_>, removed: &mut Vec<Idle>) -> Option<Http1Connection> {
        let own = self.by_home.iter().position(|(id, _)| *id == home);
        let others = (0..self.by_home.len()).filter(|index| Some(*index) != own);
        let before = removed.len();
        let found = own
            .into_iter()
            .chain(others)
            .find_map(|index| take_newest(&mut self.by_home[index].1, terms, removed));
        self.len -= removed.len() - before + usize::from(found.is_some());
        found
    }

    fn prune(&mut self, terms: &Terms<'_>, removed: &mut Vec<Idle>) {
        let before = removed.len();
        for (_, connections) in &mut self.by_home {
            removed.extend(connections.extract_if(.., |idle| idle.usefulness(terms) == Usefulness::Gone));
        }
        self.by_home.retain(|(_, connections)| !connections.is_empty());
        self.len -= removed.len() - before;
    }
}

#[derive(PartialEq, Eq)]
enum Usefulness {
    Ready,
    Later,
    Gone,
}

impl Idle {
    fn usefulness(&mut self, terms: &Terms<'_>) -> Usefulness {
        let is_too_old = terms.now.duration_since(self.since) >= terms.idle_timeout;
        if is_too_old || !terms.lead.leads_to(self.connection.address) {
            return Usefulness::Gone;
        }
        match self.connection.readiness() {
            Readiness::Ready if self.connection.is_quiet() => Usefulness::Ready,
            Readiness::Ready | Readiness::Busy => Usefulness::Later,
            Readiness::Closed => Usefulness::Gone,
        }
    }
}

fn take_newest(
    connections: &mut Vec<Idle>,
    terms: &Terms<'_>,
    removed: &mut Vec<Idle>,
) -> Option<Http1Connection> {
    let mut index = connections.len();
    while index > 0 {
        index -= 1;
        match connections[index].usefulness(terms) {
            Usefulness::Ready => return Some(connections.remove(index).connection),
            Usefulness::Later => {}
            Usefulness::Gone => removed.push(connections.remove(index)),
        }
    }
    None
}
