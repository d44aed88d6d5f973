//! Accepts connections and finds out what they speak: PROXY protocol, TLS, HTTP/1 or HTTP/2.

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
use super::doorway::{Holder, Place, Seat, WaitingAtDoor};
use super::prefixed::Prefixed;
use super::wire::{Farewell, Input, Stream, Wire, WireError};
use super::{http1, http2, tls};
use crate::active::ActiveConfig;
use crate::clock::now;
use crate::config::{ClientLimits, Config, Http2, ProxyProtocol};
use crate::observe::account;
use crate::request::respond::Problem;
use crate::worker::{IdleEnd, Worker};

/// Connections that the kernel holds for a worker that is busy.
const BACKLOG: i32 = 4096;
/// Connections that are accepted before those that are there get their turn.
const ACCEPTED_AT_ONCE_MAX: usize = 64;
/// After a failed accept (no file descriptors left) the worker waits before it tries again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection waits for a place that is about to be free: a worker sees within milliseconds that a client is gone, if it is not busy.
const PLACE_WAIT: Duration = Duration::from_millis(500);
/// Idle connections are probed, so that peers that vanished are noticed even in a tunnel.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// For who speaks HTTP where TLS is spoken. A record of a handshake begins with a byte that no method begins with.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 80\r\n\
Cache-Control: no-store\r\nConnection: close\r\n\r\n\
400 Bad Request\nplain HTTP was sent to an HTTPS port: write https:// in the URL\n";
/// As its `Content-Length` says.
const PLAIN_HTTP_BODY_BYTES: u64 = 80;
/// RFC 9113 section 3.4.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whom a listener shares its port with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// With listeners of this process that come after it.
    First,
    /// With those of this process that are there already.
    Joins,
    /// With inherited ones: the kernel gives it none of their connections before it [listens](listen).
    JoinsLater,
}

/// Whose a listening socket is, and so what becomes of it at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOwner {
    /// This process, or those before it that it took over from.
    Process,
    /// Who started the process, and gives it to the next one too.
    Starter,
}

/// Where a worker accepts connections.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Arc<TcpListener>,
    owner: SocketOwner,
}

/// Sockets that listen already at an address.
#[derive(Debug)]
pub(crate) struct InheritedSockets {
    pub(crate) sockets: Vec<TcpListener>,
    pub(crate) owner: SocketOwner,
}

/// Binds an address for all workers; answers with it, as it is bound, and with the listeners of each. The kernel spreads connections over them.
///
/// Sockets that are `inherited` go round. Workers that get none join them; a single one of another owner they share, since its address may be
/// one that only root can have.
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

/// What the kernel takes of a connection beyond what is on its way to the client. Left to itself it takes 2 MiB and more of a
/// response that nobody reads, which no limit of ours counts. Unlike a fixed send buffer this doesn't bound what is on its way, so
/// that far clients are as fast as ever; nor did it cost anything measurable with responses of 1 MiB.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Any process of the same user may join a port with `SO_REUSEPORT`, a second gateway too. So the first listener does
/// without it until it listens: the kernel then refuses the port to whoever comes second, even at the same moment.
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

/// Unless it does already.
pub(crate) fn listen(socket: &TcpListener) -> io::Result<()> {
    if socket_acceptconn(socket)? { Ok(()) } else { SockRef::from(socket).listen(BACKLOG) }
}

impl Listener {
    /// The same socket, with the one queue.
    fn share(&self) -> Self {
        Self { socket: Arc::clone(&self.socket), owner: self.owner }
    }

    /// For those who want to know whether it is still open.
    pub(crate) fn socket(&self) -> Weak<TcpListener> {
        Arc::downgrade(&self.socket)
    }
}

/// What is set here, accepted connections inherit: so it costs them nothing.
fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

/// Serves a worker's listeners until the drain is over. Runs on the worker's runtime.
///
/// `listeners` come with their numbers in the configuration, `open` is the same for all workers.
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
                // Counted as a connection until it stops, so that what waits in its backlog at the end is served too.
                let accepting_one = OpenConnections::enter(&open);
                accepting.spawn(async move {
                    let _accepting = accepting_one;
                    accept(&worker, &socket, index, &open).await;
                    // What comes to a socket that lives on waits in its queue for the next process.
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

/// Waits for `until`, and panics where one of the tasks does: the runtime keeps a panic to the task, and nobody would accept any more what the
/// kernel goes on to give to this listener.
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

/// The runtime's own listener registers each connection before anybody can look whether that is necessary.
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

/// What the kernel holds for a listener.
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

/// Prepares a listener to be closed without a reset for anybody. A connection that is complete but not yet accepted when its listener
/// closes is reset by the kernel, so the order is: let no new connection through, accept what is there, close.
fn stop_accepting(worker: &Arc<Worker>, listener: &TcpListener, index: usize, open: &Arc<OpenConnections>) {
    /// Classic BPF: return 0, which keeps 0 bytes of the packet. New handshakes are not answered and find the
    /// port closed when they try again.
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
    /// Of the listener.
    index: usize,
    guard: OpenGuard,
}

impl Newcomer {
    /// A place that is free, or that another connection has to leave.
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

    /// The place of a connection that its client has closed is free as soon as its worker, which may be another, has seen it.
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
                // Others wait too.
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
        seat.is_served_by(task.abort_handle());
    }
}

/// From the first byte to the protocol.
async fn connection(
    worker: &Arc<Worker>,
    live: &Arc<ActiveConfig>,
    socket: ClientSocket,
    address: SocketAddr,
    index: usize,
    seat: &Arc<Seat>,
) -> Result<(), WireError> {
    let listener = live.listener(index);
    let limit = live.config.limits.head_read_timeout;
    let (io, address, transport) = match listener.proxy_protocol {
        ProxyProtocol::Off => (Prefixed::new(Vec::new(), socket), address, ClientTransport::Unsaid),
        ProxyProtocol::Required if !is_within(&listener.proxy_protocol_from, address.ip()) => {
            worker.recorder.connection_refused("proxy-peer");
            tracing::warn!(peer = %address.ip(), "connection closed: the peer is not in `proxy_protocol_from`");
            return Ok(());
        }
        ProxyProtocol::Required => {
            let (io, header) = Box::pin(proxied(worker, socket, address, limit)).await?;
            let named = match header.peer {
                ProxiedPeer::Tcp { source, .. } => source,
                // It names no TCP client where a proxy checks health.
                ProxiedPeer::Local | ProxiedPeer::Unknown | ProxiedPeer::Unix => address,
            };
            worker.shared.doorway.name(seat, holder(&live.config, named));
            (io, named, header.transport)
        }
    };
    let is_secured = listener.tls.is_some() || transport == ClientTransport::Tls;
    let scheme = if is_secured { Scheme::Https } else { Scheme::Http };
    let peer = Peer { address, trust: trust(&live.config, address), scheme };
    match live.tls.get(index).and_then(Option::as_ref) {
        Some(config) => secured(worker, &live.config.limits, (config, io), peer, seat).await,
        None => cleartext(worker, io, ClientEnd { peer, tls: None }, seat, (listener.http2, limit)).await,
    }
}

/// Shakes hands, and speaks what was agreed on.
async fn secured<S: Stream + 'static>(
    worker: &Arc<Worker>,
    limits: &ClientLimits,
    (config, io): (&Arc<ServerConfig>, S),
    peer: Peer,
    seat: &Arc<Seat>,
) -> Result<(), WireError> {
    let _gauge = worker.recorder.connection(ConnectionKind::Tls);
    let limit = limits.head_read_timeout;
    let handshake = async {
        let Some(io) = hello(worker, io, peer, limits).await? else { return Ok(None) };
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

/// Waits for the first bytes of a connection. One that has sent none is as idle as those between two requests.
async fn first_bytes<S: Stream>(
    worker: &Worker,
    wire: &mut Wire<S>,
    input: &mut Input,
) -> Result<usize, WireError> {
    let mut idle_end = IdleEnd::new(worker);
    let first = |context: &mut Context<'_>| wire.poll_first_read(context, &worker.arrivals, input);
    idle_end.or(first).await.unwrap_or(Err(WireError::Closed))
}

/// Waits for the first bytes of a TLS handshake. Whoever sends a method instead has the wrong scheme in a URL, and is told so: a
/// broken handshake would say nothing. `None`: so it was.
async fn hello<S: Stream>(
    worker: &Worker,
    io: S,
    peer: Peer,
    limits: &ClientLimits,
) -> Result<Option<Prefixed<S>>, WireError> {
    let (mut wire, mut input) = (Wire::new(io, limits.head_read_timeout), Input::with_capacity(0));
    first_bytes(worker, &mut wire, &mut input).await?;
    if input.filled().first().is_none_or(|byte| !byte.is_ascii_alphabetic()) {
        return Ok(Some(Prefixed::new(input.take(), wire.io)));
    }
    let problem = Problem::new(400, "plain-http", "plain HTTP on a TLS port");
    worker.recorder.client_error(problem.reason);
    account::record_refused(worker, &ClientEnd { peer, tls: None }, &problem, PLAIN_HTTP_BODY_BYTES);
    wire.write_last(PLAIN_HTTP, limits.write_pace()).await?;
    wire.close(Farewell::Lingering).await;
    Ok(None)
}

/// Cleartext HTTP/2 begins with the preface (prior knowledge, RFC 9113 section 3.3).
async fn cleartext<S: Stream + 'static>(
    worker: &Arc<Worker>,
    io: S,
    client: ClientEnd,
    seat: &Arc<Seat>,
    (http2, limit): (Http2, Duration),
) -> Result<(), WireError> {
    let (mut wire, mut input) = (Wire::new(io, limit), Input::with_capacity(0));
    let opening = match http2 {
        Http2::Off => Opening::Http1,
        Http2::On => opening(worker, &mut wire, &mut input, limit).await?,
    };
    match opening {
        Opening::Http1 => speak_http1(worker, wire, input, client, seat).await,
        Opening::Http2 => {
            let io = ReadAhead::new(Prefixed::new(input.take(), wire.io));
            Box::pin(speak_http2(worker, io, client, seat)).await;
        }
    }
    Ok(())
}

/// What the first bytes of a connection are.
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
            // HTTP/1 knows how to answer a head that never came.
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
    seat: &Arc<Seat>,
) {
    let _gauge = worker.recorder.connection(ConnectionKind::Http1);
    http1::Connection::new(wire, input, Arc::clone(worker), client, Arc::clone(seat)).serve().await;
}

async fn speak_http2<S: Stream + 'static>(worker: &Arc<Worker>, io: S, client: ClientEnd, seat: &Arc<Seat>) {
    let _gauge = worker.recorder.connection(ConnectionKind::Http2);
    http2::serve(io, Arc::clone(worker), client, Arc::clone(seat)).await;
}

/// Reads the PROXY protocol header: what comes behind it, and what it says.
async fn proxied<S: Stream>(
    worker: &Worker,
    io: S,
    proxy: SocketAddr,
    limit: Duration,
) -> Result<(Prefixed<S>, ProxyHeader), WireError> {
    let (mut wire, mut input) = (Wire::new(io, limit), Input::with_capacity(512));
    first_bytes(worker, &mut wire, &mut input).await?;
    loop {
        let header = parse_proxy_header(input.filled()).map_err(|error| {
            worker.recorder.connection_refused("proxy-header");
            tracing::warn!(peer = %proxy.ip(), %error, "connection closed: it has no PROXY protocol header");
            io::Error::other(error)
        })?;
        if let Some(header) = header {
            input.consume(header.bytes);
            return Ok((Prefixed::new(input.take(), wire.io), header));
        }
        wire.read(&mut input).await?;
    }
}

/// Whom a connection is counted for before anything of it is read.
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
    seat: Arc<Seat>,
    place: Place,
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
        self.worker.shared.doorway.has_left();
    }
}

/// What has to be finished before any worker may stop: one worker forwards over connections to origins that another one has opened, and waits
/// for what another one fetches. They end with the worker whose they are.
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

    /// Logs that those that are left are cut off: the first worker at its limit does it for all.
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

    /// The runtime kept the panic to the task, and the worker went on without anybody who accepts.
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
