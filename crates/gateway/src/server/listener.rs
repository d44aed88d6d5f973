//! Accepts connections and detects their protocol: PROXY protocol, TLS, HTTP/1 or HTTP/2.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

use ::http1::proxy_protocol::{ClientTransport, ProxiedPeer, ProxyHeader, parse_proxy_header};
use message::client::{Client, is_within};
use message::clock::now;
use message::head::{ClientEnd, Peer, Scheme, Trust};
use message::read_ahead::ReadAhead;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{SocketFlags, acceptfrom_with};
use rustls::ServerConfig;
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, TcpKeepalive, Type};
use telemetry::{ConnectionKind, Warnings};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::client_socket::ClientSocket;
use super::wire::{Farewell, Input, Stream, Wire, WireError};
use super::{http1, http2, tls};
use crate::active::ActiveConfig;
use crate::config::{ClientLimits, Config, Http2, ProxyProtocol};
use crate::connection_table::{Holder, OpenConnection, SlotKey, WaitingAtDoor};
use crate::request::account;
use crate::request::respond::Problem;
use crate::worker::{IdleEnd, Worker};

/// Connections that the kernel queues for a busy worker.
const BACKLOG: i32 = 4096;
/// Connections accepted before existing ones get their turn.
const ACCEPTED_AT_ONCE_MAX: usize = 64;
/// Pause after a failed accept (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection waits for a place that is about to be free: a worker that isn't busy sees within milliseconds that a
/// client is gone.
const PLACE_WAIT: Duration = Duration::from_millis(500);
/// Time after which idle connections are probed, so that vanished peers are noticed even in a tunnel.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Response to clients that use plain HTTP on a TLS port. A TLS handshake record never begins with the first byte of a method.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 80\r\n\
Cache-Control: no-store\r\nConnection: close\r\n\r\n\
400 Bad Request\nplain HTTP was sent to an HTTPS port: write https:// in the URL\n";
/// Equal to its `Content-Length`.
const PLAIN_HTTP_BODY_BYTES: u64 = 80;
/// Client connection preface (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Listeners that share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The first of this process; others may follow.
    First,
    /// A further one, beside listeners of this process.
    Joins,
    /// Beside inherited ones: the kernel gives it no connections before it [listens](listen).
    JoinsLater,
}

/// Owner of a listening socket, which decides about its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOwner {
    /// This process, or earlier ones that it took over from.
    Process,
    /// The parent process, which passes it to the next process too.
    Starter,
}

/// A listening socket of a worker.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Arc<TcpListener>,
    owner: SocketOwner,
}

/// Sockets that already listen at an address.
#[derive(Debug)]
pub(crate) struct InheritedSockets {
    pub(crate) sockets: Vec<TcpListener>,
    pub(crate) owner: SocketOwner,
}

/// Binds an address for all workers; returns the bound address and the listeners of each worker. The kernel spreads connections
/// over them.
///
/// The `inherited` sockets are dealt out in turn. Workers that get none open their own beside them; a single socket of
/// [`SocketOwner::Starter`] is shared, since its address may be one that only root can bind.
///
/// # Errors
/// The address can't be bound: another process has it, for example.
pub(crate) fn bind(
    address: SocketAddr,
    InheritedSockets { sockets, owner }: InheritedSockets,
    workers: usize,
    claim: Claim,
) -> io::Result<(SocketAddr, Vec<Vec<Listener>>)> {
    let count = sockets.len();
    let mut bound = address;
    let mut spread: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    for (number, socket) in sockets.into_iter().enumerate() {
        prepare(&SockRef::from(&socket))?;
        spread[number % workers].push(Listener { socket: Arc::new(socket), owner });
    }
    for worker in count..workers {
        let listener = match (count, worker) {
            (0, 0) => bind_one(address, claim)?,
            (1, _) if owner == SocketOwner::Starter => spread[0][0].share(),
            (0, _) => bind_one(bound, Claim::Joins)?,
            _ => bind_one(bound, Claim::JoinsLater)?,
        };
        bound = listener.socket.local_addr()?;
        spread[worker].push(listener);
    }
    Ok((bound, spread))
}

/// Unsent data that the kernel takes of a connection, beyond the data in flight to the client. By default it takes 2 MiB and more
/// of a response that nobody reads, which no limit of ours counts. Unlike a fixed send buffer this doesn't bound the data in
/// flight, so that distant clients are as fast as ever; nor did it cost anything measurable with responses of 1 MiB.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Binds one socket. Any process of the same user may join a port with `SO_REUSEPORT`, a second gateway too. So the first
/// listener does without it until it listens: the kernel then refuses the port to a second process, even at the same moment.
fn bind_one(address: SocketAddr, claim: Claim) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(claim != Claim::First)?;
    prepare(&socket)?;
    socket.bind(&address.into())?;
    if claim != Claim::JoinsLater {
        socket.listen(BACKLOG)?;
    }
    socket.set_reuse_port(true)?;
    Ok(Listener { socket: Arc::new(socket.into()), owner: SocketOwner::Process })
}

/// Starts to listen, unless the socket already does.
pub(crate) fn listen(socket: &TcpListener) -> io::Result<()> {
    if socket_acceptconn(socket)? { Ok(()) } else { SockRef::from(socket).listen(BACKLOG) }
}

impl Listener {
    /// Returns another handle to the socket, with the same queue.
    fn share(&self) -> Self {
        Self { socket: Arc::clone(&self.socket), owner: self.owner }
    }

    /// Returns a handle that tells whether the socket is still open.
    pub(crate) fn socket(&self) -> Weak<TcpListener> {
        Arc::downgrade(&self.socket)
    }
}

/// Sets options that accepted connections inherit, so that they cost those nothing.
fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

/// Serves a worker's listeners until the drain is over. Runs on the worker's runtime.
///
/// `listeners` come with their indices in the configuration, `open` is the same for all workers.
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
                // Counted as a connection until it stops, so that connections in its backlog at the end are served too.
                let accepting_one = OpenConnections::enter(&open);
                accepting.spawn(async move {
                    let _accepting = accepting_one;
                    accept(&worker, &socket, index, &open).await;
                    // Connections to a socket that lives on wait in its queue for the next process.
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

/// Waits for `until`, and panics if one of the tasks does: the runtime confines a panic to its task, and connections that the
/// kernel queues for this listener would never be accepted.
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

/// Registers a listener. The runtime's own listener would register each connection before anybody can check whether that is
/// necessary.
#[expect(deprecated, reason = "what replaces it is unsafe, for types that name descriptors they do not own")]
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

/// Prepares a listener for closing without resetting any connection. The kernel resets connections that are complete but not yet
/// accepted when their listener closes, so the order is: let no new connection through, accept those that are there, close.
fn stop_accepting(worker: &Arc<Worker>, listener: &TcpListener, index: usize, open: &Arc<OpenConnections>) {
    /// Classic BPF: return 0, which keeps 0 bytes of the packet. New handshakes are not answered and find the port closed when
    /// they try again.
    const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];
    if let Err(error) = SockRef::from(listener).attach_filter(&DROP_ALL) {
        tracing::debug!(%error, "new connections can't be held off while the listener closes");
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

/// A connection without a place.
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
    /// Takes a place that is free, or that another connection has to leave.
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

    /// Waits for a place, because that of a connection closed by its client becomes free as soon as its worker, which may be
    /// another, has noticed.
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
                // Other newcomers wait too.
                if slot.taken_before < connections_max {
                    return slot;
                }
            }
            left.await;
        }
    }

    fn take(&self) -> ConnectionSlot {
        ConnectionSlot::take(&self.worker, peer_holder(&self.live, self.index, self.address))
    }

    fn serve(self, slot: ConnectionSlot) {
        let seat = Arc::clone(&slot.seat);
        // Boxed: the runtime moves a future several times before it runs and when it is done, and this one is several KiB.
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

/// Detects the protocol of a connection from its first bytes, and serves it.
async fn connection(
    worker: &Arc<Worker>,
    live: &Arc<ActiveConfig>,
    socket: ClientSocket,
    address: SocketAddr,
    index: usize,
    seat: &Arc<OpenConnection>,
) -> Result<(), WireError> {
    let listener = live.listener(index);
    let limit = live.config.limits.head_read_timeout;
    let mut read = (Wire::new(socket, limit), Input::with_capacity(0));
    let (address, transport) = match listener.proxy_protocol {
        ProxyProtocol::Off => (address, ClientTransport::Unsaid),
        ProxyProtocol::Required if !is_within(&listener.proxy_protocol_from, address.ip()) => {
            worker.recorder.connection_refused("proxy-peer");
            tracing::warn!(peer = %address.ip(), "connection closed: the peer is not in `proxy_protocol_from`");
            return Ok(());
        }
        ProxyProtocol::Required => {
            let header = Box::pin(proxied(worker, &mut read, address)).await?;
            read.0.allow(limit);
            let named = match header.peer {
                ProxiedPeer::Tcp { source, .. } => source,
                // A proxy that checks health names no TCP client.
                ProxiedPeer::Local | ProxiedPeer::Unknown | ProxiedPeer::Unix => address,
            };
            worker.shared.doorway.name(seat, holder(&live.config, named));
            (named, header.transport)
        }
    };
    let is_secured = listener.tls.is_some() || transport == ClientTransport::Tls;
    let scheme = if is_secured { Scheme::Https } else { Scheme::Http };
    let peer = Peer { address, trust: trust(&live.config, address), scheme };
    match live.tls.get(index).and_then(Option::as_ref) {
        Some(config) => secured(worker, &live.config.limits, (config, read), peer, seat).await,
        None => cleartext(worker, read, ClientEnd { peer, tls: None }, seat, (listener.http2, limit)).await,
    }
}

/// A connection, and the bytes read of it.
type Begun<S> = (Wire<S>, Input);

/// Performs the TLS handshake, and serves the negotiated protocol.
async fn secured<S: Stream + 'static>(
    worker: &Arc<Worker>,
    limits: &ClientLimits,
    (config, read): (&Arc<ServerConfig>, Begun<S>),
    peer: Peer,
    seat: &Arc<OpenConnection>,
) -> Result<(), WireError> {
    let _gauge = worker.recorder.connection(ConnectionKind::Tls);
    let limit = limits.head_read_timeout;
    let handshake = async {
        let Some(io) = hello(worker, read, peer, limits).await? else { return Ok(None) };
        Ok::<_, WireError>(Some(tls::accept(Arc::clone(config), io).await))
    };
    let accepted = match tokio::time::timeout(limit, Box::pin(handshake)).await {
        Ok(greeted) => match greeted? {
            Some(accepted) => accepted,
            None => return Ok(()),
        },
        Err(elapsed) => Err(elapsed.into()),
    };
    let accepted = match accepted {
        Ok(accepted) => accepted,
        Err(error) => {
            let failure = tls::failure(&error);
            worker.recorder.tls_handshake_failed(failure);
            tracing::debug!(client = %peer.address, reason = failure.as_str(), %error, "TLS handshake failed");
            return Ok(());
        }
    };
    let client = ClientEnd { peer, tls: Some(Arc::new(accepted.session)) };
    match accepted.protocol {
        tls::Negotiated::Http2 => {
            Box::pin(speak_http2(worker, accepted.stream, client, seat)).await;
        }
        tls::Negotiated::Http1 => {
            let wire = Wire::new(accepted.stream, limit);
            Box::pin(speak_http1(worker, wire, Input::with_capacity(0), client, seat)).await;
        }
    }
    Ok(())
}

/// Waits for the first bytes of a connection, unless they are there. One that has sent none counts as idle, like those between two requests.
async fn first_bytes<S: Stream>(
    worker: &Worker,
    wire: &mut Wire<S>,
    input: &mut Input,
) -> Result<(), WireError> {
    if !input.is_empty() {
        return Ok(());
    }
    let mut idle_end = IdleEnd::new(worker);
    let first = |context: &mut Context<'_>| wire.poll_first_read(context, &worker.arrivals, input);
    idle_end.or(first).await.unwrap_or(Err(WireError::Closed)).map(drop)
}

/// Waits for the first bytes of a TLS handshake. A client that sends a method instead used the wrong scheme in a URL, and gets a
/// response that says so: a failed handshake would tell nothing. `None` if it was plain HTTP.
async fn hello<S: Stream>(
    worker: &Worker,
    (mut wire, mut input): Begun<S>,
    peer: Peer,
    limits: &ClientLimits,
) -> Result<Option<(Vec<u8>, S)>, WireError> {
    first_bytes(worker, &mut wire, &mut input).await?;
    if input.filled().first().is_none_or(|byte| !byte.is_ascii_alphabetic()) {
        return Ok(Some((input.take(), wire.io)));
    }
    let problem = Problem::new(400, "plain-http", "plain HTTP on a TLS port");
    worker.recorder.client_error(problem.reason);
    account::record_refused(worker, &ClientEnd { peer, tls: None }, &problem, PLAIN_HTTP_BODY_BYTES);
    wire.write_last(PLAIN_HTTP, limits.write_pace()).await?;
    wire.close(Farewell::Lingering).await;
    Ok(None)
}

/// Serves a cleartext connection. HTTP/2 begins with the preface (prior knowledge, RFC 9113 section 3.3).
async fn cleartext<S: Stream + 'static>(
    worker: &Arc<Worker>,
    (mut wire, mut input): Begun<S>,
    client: ClientEnd,
    seat: &Arc<OpenConnection>,
    (http2, limit): (Http2, Duration),
) -> Result<(), WireError> {
    let opening = match http2 {
        Http2::Off => Opening::Http1,
        Http2::On => opening(worker, &mut wire, &mut input, limit).await?,
    };
    match opening {
        Opening::Http1 => speak_http1(worker, wire, input, client, seat).await,
        Opening::Http2 => {
            let io = ReadAhead::behind(input.take(), wire.io);
            Box::pin(speak_http2(worker, io, client, seat)).await;
        }
    }
    Ok(())
}

/// Protocol by the first bytes of a connection.
enum Opening {
    Http1,
    Http2,
}

async fn opening<S: Stream>(
    worker: &Arc<Worker>,
    wire: &mut Wire<S>,
    input: &mut Input,
    limit: Duration,
) -> Result<Opening, WireError> {
    first_bytes(worker, wire, input).await?;
    wire.allow_since_seen(limit);
    loop {
        let filled = input.filled();
        let compared = filled.len().min(HTTP2_PREFACE.len());
        if filled[..compared] != HTTP2_PREFACE[..compared] {
            return Ok(Opening::Http1);
        }
        if compared == HTTP2_PREFACE.len() {
            return Ok(Opening::Http2);
        }
        match wire.read(input).await {
            // HTTP/1 has an answer for a head that never arrived.
            Err(WireError::Closed | WireError::TimedOut) => return Ok(Opening::Http1),
            read => read?,
        };
    }
}

async fn speak_http1<S: Stream>(
    worker: &Arc<Worker>,
    wire: Wire<S>,
    input: Input,
    client: ClientEnd,
    seat: &Arc<OpenConnection>,
) {
    let _gauge = worker.recorder.connection(ConnectionKind::Http1);
    http1::Connection::new(wire, input, Arc::clone(worker), client, Arc::clone(seat)).serve().await;
}

async fn speak_http2<S: Stream + 'static>(
    worker: &Arc<Worker>,
    io: S,
    client: ClientEnd,
    seat: &Arc<OpenConnection>,
) {
    let _gauge = worker.recorder.connection(ConnectionKind::Http2);
    http2::serve(io, Arc::clone(worker), client, Arc::clone(seat)).await;
}

/// Reads the PROXY protocol header.
async fn proxied<S: Stream>(
    worker: &Worker,
    (wire, input): &mut Begun<S>,
    proxy: SocketAddr,
) -> Result<ProxyHeader, WireError> {
    first_bytes(worker, wire, input).await?;
    loop {
        let header = parse_proxy_header(input.filled()).map_err(|error| {
            worker.recorder.connection_refused("proxy-header");
            tracing::warn!(peer = %proxy.ip(), %error, "connection closed: it has no PROXY protocol header");
            io::Error::other(error)
        })?;
        if let Some(header) = header {
            input.consume(header.bytes);
            return Ok(header);
        }
        wire.read(input).await?;
    }
}

/// Holder that a connection counts for before anything of it is read.
fn peer_holder(live: &ActiveConfig, index: usize, address: SocketAddr) -> Holder {
    match live.listener(index).proxy_protocol {
        ProxyProtocol::Required => Holder::Proxy(Client::of(address.ip())),
        ProxyProtocol::Off => holder(&live.config, address),
    }
}

fn holder(config: &Config, address: SocketAddr) -> Holder {
    let client = Client::of(address.ip());
    match trust(config, address) {
        Trust::Trusted => Holder::Proxy(client),
        Trust::Untrusted => Holder::Client(client),
    }
}

fn trust(config: &Config, address: SocketAddr) -> Trust {
    match config.trusted_proxies.contains(address.ip()) {
        true => Trust::Trusted,
        false => Trust::Untrusted,
    }
}

/// A place among all client connections of the process.
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

/// Connections and listeners that must end before any worker may stop: one worker forwards over origin connections that another
/// has opened, and waits for fetches of another. These end with the worker that owns them.
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

    /// Logs that the remaining connections are cut off: the first worker at its limit does it for all.
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

    /// Regression: the runtime confined the panic to its task, and the worker went on without accepting connections.
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
