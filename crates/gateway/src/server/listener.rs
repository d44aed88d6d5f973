//! Accepts connections, and assigns a connection slot to each.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use message::client::Client;
use message::clock::now;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{SockFilter, SockRef};
use telemetry::Warnings;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::client_socket::ClientSocket;
use super::opening::{connection, holder};
use super::sockets::{Listener, SocketOwner};
use crate::active::ActiveConfig;
use crate::config::ProxyProtocol;
use crate::connection_table::{Holder, OpenConnection, SlotKey, WaitingAtDoor};
use crate::worker::Worker;

/// Maximum number of connections accepted before existing ones get their turn.
const ACCEPTED_AT_ONCE_MAX: usize = 64;
/// Pause after a failed accept (no free file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum wait of a connection for a slot that is about to become free: a worker that isn't busy detects a closed connection within
/// milliseconds.
const PLACE_WAIT: Duration = Duration::from_millis(500);

/// Serves a worker's listeners until the drain ends. Runs on the worker's runtime.
///
/// `listeners` have their indices in the configuration; `open` is shared by all workers.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    listeners: Vec<(usize, Listener)>,
    open: Arc<OpenConnections>,
    drain_limit: Duration,
) {
    let mut accepting = JoinSet::new();
    for (index, Listener { socket, owner }) in listeners {
        match watched(socket) {
            Ok(socket) => {
                let (worker, open) = (Arc::clone(&worker), Arc::clone(&open));
                // The listener counts as a connection until it stops, so that the connections in its backlog are served, too.
                let accepting_one = OpenConnections::enter(&open);
                accepting.spawn(async move {
                    let _accepting = accepting_one;
                    accept(&worker, &socket, index, &open).await;
                    // If the socket stays open, connections wait in its queue for the next process.
                    if owner == SocketOwner::Process && !worker.shared.drain.has_successor() {
                        stop_accepting(&worker, socket.get_ref(), index, &open);
                    }
                });
            }
            Err(error) => tracing::error!(%error, "listener lost"),
        }
    }
    panic_with(&mut accepting, worker.shared.drain.begun()).await;
    let finished = panic_with(&mut accepting, tokio::time::timeout(drain_limit, open.none_left()));
    if finished.await.is_err() {
        open.tell_once();
    }
}

/// Awaits `until`, and panics if one of the tasks panics. Otherwise, the runtime would confine the panic to its task, and connections
/// queued by the kernel for this listener would never be accepted.
async fn panic_with<T>(tasks: &mut JoinSet<()>, until: impl Future<Output = T>) -> T {
    let mut until = pin!(until);
    loop {
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => {
                if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
                    resume_unwind(panic);
                }
            }
            done = &mut until => return done,
        }
    }
}

/// Registers a listener. The runtime's own listener would register each connection, even if that isn't necessary.
#[expect(deprecated, reason = "the replacement is unsafe for types that don't own their descriptors")]
fn watched(listener: Arc<TcpListener>) -> io::Result<AsyncFd<Arc<TcpListener>>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}

async fn accept(
    worker: &Arc<Worker>,
    listener: &AsyncFd<Arc<TcpListener>>,
    index: usize,
    open: &Arc<OpenConnections>,
) {
    let mut drain = pin!(worker.shared.drain.begun());
    loop {
        let ready = tokio::select! {
            biased;
            ready = listener.readable() => ready,
            () = &mut drain => break,
        };
        let accepted = ready.and_then(|mut ready| {
            for _ in 0..ACCEPTED_AT_ONCE_MAX {
                match ready.try_io(|listener| accept_one(listener.get_ref())) {
                    Ok(accepted) => admit(worker, accepted?, index, open),
                    Err(_none_left) => return Ok(Queue::Empty),
                }
            }
            Ok(Queue::MayHoldMore)
        });
        match accepted {
            Ok(Queue::Empty) => {}
            Ok(Queue::MayHoldMore) => tokio::task::yield_now().await,
            Err(error) => {
                refused(worker, &error, open);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// State of the kernel's queue of a listener.
enum Queue {
    Empty,
    MayHoldMore,
}

fn refused(worker: &Worker, error: &io::Error, open: &OpenConnections) {
    worker.recorder.connection_refused("accept-failed");
    if let Some(left_out) = open.refusals.take(now().whole_seconds().unsigned_abs()) {
        tracing::warn!(%error, left_out, "connection not accepted");
    }
}

fn accept_one(listener: &TcpListener) -> io::Result<(ClientSocket, SocketAddr)> {
    let (socket, address) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let address = address.ok_or(io::ErrorKind::ConnectionAborted)?.try_into()?;
    Ok((ClientSocket::new(socket.into()), address))
}

/// Prepares a listener for closing without resetting any connection. If a listener closes, the kernel resets its completed connections
/// that haven't been accepted. So the order is: block new connections, accept the queued ones, close.
fn stop_accepting(worker: &Arc<Worker>, listener: &TcpListener, index: usize, open: &Arc<OpenConnections>) {
    /// Classic BPF: return 0, which drops the packet. New handshakes aren't answered; a retry finds the port closed.
    const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];
    if let Err(error) = SockRef::from(listener).attach_filter(&DROP_ALL) {
        tracing::debug!(%error, "can't block new connections while the listener closes");
    }
    loop {
        match accept_one(listener) {
            Ok(accepted) => admit(worker, accepted, index, open),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return refused(worker, &error, open),
        }
    }
}

fn admit(
    worker: &Arc<Worker>,
    (socket, address): (ClientSocket, SocketAddr),
    index: usize,
    open: &Arc<OpenConnections>,
) {
    let (worker, live, guard) = (Arc::clone(worker), worker.live(), OpenConnections::enter(open));
    let newcomer = Newcomer { worker, live, socket, address, index, guard };
    match newcomer.slot() {
        Some(slot) => newcomer.serve(slot),
        None => newcomer.wait(),
    }
}

/// A connection without a slot.
struct Newcomer {
    worker: Arc<Worker>,
    live: Arc<ActiveConfig>,
    socket: ClientSocket,
    address: SocketAddr,
    /// Index of the listener.
    index: usize,
    guard: OpenGuard,
}

impl Newcomer {
    /// Takes a free slot, or the slot of another connection that is closed for this one.
    fn slot(&self) -> Option<ConnectionSlot> {
        let slot = self.take();
        let limits = &self.live.config.limits;
        if slot.taken_before < limits.connections_max {
            return Some(slot);
        }
        let is_made = self.worker.shared.doorway.make_room(&slot.seat, limits.connections_of_client_max());
        if is_made {
            self.worker.recorder.connection_evicted();
        }
        is_made.then_some(slot)
    }

    /// Waits for a slot: if a client has closed its connection, the slot becomes free once the worker of that connection has noticed.
    fn wait(self) {
        tokio::spawn(async move {
            let slot = match self.worker.shared.doorway.wait() {
                Some(waiting) => tokio::time::timeout(PLACE_WAIT, self.free_slot(&waiting)).await.ok(),
                None => None,
            };
            match slot {
                Some(slot) => self.serve(slot),
                None => self.worker.recorder.connection_refused("connections-max"),
            }
        });
    }

    async fn free_slot(&self, waiting: &WaitingAtDoor<'_>) -> ConnectionSlot {
        let connections_max = self.live.config.limits.connections_max;
        loop {
            let mut left = pin!(waiting.somebody_leaves());
            left.as_mut().enable();
            if self.worker.shared.connections.load(Ordering::Relaxed) < connections_max {
                let slot = self.take();
                // Other new connections may have taken the slot.
                if slot.taken_before < connections_max {
                    return slot;
                }
            }
            left.await;
        }
    }

    fn take(&self) -> ConnectionSlot {
        // No bytes of the connection have been read yet.
        let holder = match self.live.listener(self.index).proxy_protocol {
            ProxyProtocol::Required => Holder::Proxy(Client::of(self.address.ip())),
            ProxyProtocol::Off => holder(&self.live.config, self.address),
        };
        ConnectionSlot::take(&self.worker, holder)
    }

    fn serve(self, slot: ConnectionSlot) {
        let seat = Arc::clone(&slot.seat);
        // Boxed: the runtime moves a future several times before and after it runs, and this one has several KiB.
        let task = tokio::spawn(Box::pin(async move {
            let Self { worker, live, socket, address, index, guard } = self;
            if let Err(error) = connection(&worker, &live, socket, address, index, &slot.seat).await {
                tracing::debug!(client = %address, %error, "connection not served");
            }
            drop((slot, guard));
        }));
        seat.set_server(task.abort_handle());
    }
}

/// A slot among all client connections of the process.
struct ConnectionSlot {
    worker: Arc<Worker>,
    taken_before: usize,
    seat: Arc<OpenConnection>,
    place: SlotKey,
}

impl ConnectionSlot {
    fn take(worker: &Arc<Worker>, peer: Holder) -> Self {
        let taken_before = worker.shared.connections.fetch_add(1, Ordering::Relaxed);
        let (seat, place) = worker.shared.doorway.enter(worker.index, peer);
        Self { worker: Arc::clone(worker), taken_before, seat, place }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.worker.shared.doorway.leave(self.place);
        self.worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.worker.shared.doorway.mark_left();
    }
}

/// Connections and listeners that must end before any worker may stop: a worker forwards over origin connections opened by other
/// workers, and waits for their fetches. Both end with the worker that owns them.
#[derive(Default)]
pub(crate) struct OpenConnections {
    count: AtomicUsize,
    changed: Notify,
    refusals: Warnings<1>,
    is_told: AtomicBool,
}

struct OpenGuard(Arc<OpenConnections>);

impl OpenConnections {
    fn enter(open: &Arc<Self>) -> OpenGuard {
        open.count.fetch_add(1, Ordering::AcqRel);
        OpenGuard(Arc::clone(open))
    }

    /// Logs that the remaining connections are closed. Only the first worker that reaches its limit logs this.
    fn tell_once(&self) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            let connections = self.count.load(Ordering::Relaxed);
            tracing::warn!(connections, "drain limit reached, connections cut off");
        }
    }

    async fn none_left(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the runtime confined the panic to its task, and the worker continued without accepting connections.
    #[tokio::test]
    #[should_panic(expected = "planted")]
    async fn a_panic_of_what_accepts_is_one_of_the_worker() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        tasks.spawn(async { panic!("planted") });
        panic_with(&mut tasks, std::future::pending::<()>()).await;
    }

    #[tokio::test]
    async fn what_has_ended_in_order_is_no_failure() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        assert_eq!(panic_with(&mut tasks, async { 7 }).await, 7);
    }
}
