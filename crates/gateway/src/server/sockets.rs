//! Listening sockets: bound for each worker, or inherited.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::net::sockopt::socket_acceptconn;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that the kernel queues for a busy worker.
const BACKLOG: i32 = 4096;
/// Time after which idle connections are probed, so that vanished peers are noticed even in a tunnel.
const KEEPALIVE: Duration = Duration::from_secs(60);

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
    pub(super) socket: Arc<TcpListener>,
    pub(super) owner: SocketOwner,
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
