//! Listening sockets: bound for each worker, or inherited.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::net::sockopt::socket_acceptconn;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Maximum number of connections that the kernel queues for a busy worker.
const BACKLOG: i32 = 4096;
/// Time after which idle connections are probed, so that lost peers are detected even in a tunnel.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How a listener shares its port with other listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The first listener of this process on the port; others may follow.
    First,
    /// A further listener of this process on the port.
    Joins,
    /// A listener in addition to inherited ones: it receives no connections before it [listens](listen).
    JoinsLater,
}

/// Owner of a listening socket, which decides when it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOwner {
    /// This process, or earlier ones from which it took over.
    Process,
    /// The parent process, which also passes the socket to the next process.
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

/// Binds an address for all workers. Returns the bound address and the listeners of each worker. The kernel distributes connections
/// among them.
///
/// The inherited `sockets` are distributed round-robin. Workers that get none open their own. A single socket of
/// [`SocketOwner::Starter`] is shared instead, since only root may be able to bind its address.
///
/// # Errors
/// The address can't be bound, for example because another process uses it.
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

/// Maximum unsent data of a connection in the kernel, beyond the data in flight to the client. By default, the kernel accepts 2 MiB and
/// more of a response that the client doesn't read, which isn't covered by Larder's limits. Unlike a fixed send buffer, this doesn't
/// limit the data in flight, so distant clients keep their speed. With responses of 1 MiB, it had no measurable cost.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Binds one socket. Any process of the same user, such as a second gateway, may join a port with `SO_REUSEPORT`. So the first listener
/// doesn't set it until it listens: the kernel then refuses the port to a second process, even if both start at the same time.
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

    /// Returns a weak handle, which shows whether the socket is still open.
    pub(crate) fn socket(&self) -> Weak<TcpListener> {
        Arc::downgrade(&self.socket)
    }
}

/// Sets options that accepted connections inherit, which saves system calls for them.
fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}
