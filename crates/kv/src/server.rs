//! The server: starts and stops the workers.

use std::io;
use std::net::{self, SocketAddr};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use engine::Engine;
use mio::Poll;
use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::accept::{Door, Listener, Owner};
use crate::access::Access;
use crate::clients::Calls;
use crate::cluster::Cluster;
use crate::limits::Limits;
use crate::saved::{SaveError, SaveFile};
use crate::separated::TextProtocol;
use crate::shared::Shared;
use crate::sync::Waker;
use crate::trim::{Trim, Trimming};
use crate::unix::{SocketFile, UnixListen};
use crate::worker::{WAKE, Worker};

/// Settings of a server.
#[derive(Debug)]
pub struct Settings {
    /// TCP addresses, at least one unless there are Unix sockets.
    pub listen: Vec<Listen>,
    /// Unix sockets.
    pub unix: Vec<UnixListen>,
    /// Listening sockets inherited from the parent process, for each address in order. Missing entries at the
    /// end mean no sockets.
    pub inherited: Vec<Vec<net::TcpListener>>,
    /// Number of threads, each with its own listeners and connections.
    pub workers: usize,
    /// The server's own version in `INFO`.
    pub version: String,
    pub access: Access,
    pub limits: Limits,
    /// The text protocol on all addresses.
    pub text: TextProtocol,
    pub sockets: Sockets,
    /// TLS configuration for listeners with [`Security::Tls`].
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The file to which the data set is saved when the server stops and on request. The engine must have
    /// been restored from this file.
    pub save_file: Option<Arc<SaveFile>>,
    /// The slot map, if this server is part of a cluster.
    pub cluster: Option<Cluster>,
    /// Makes the allocator return freed memory to the system; absent for an allocator that retains none.
    pub trim: Option<Trim>,
    /// Called when a worker has failed. The shared state may be inconsistent then, and the worker's clients
    /// are gone. The function need not return.
    pub on_failure: fn(),
    /// Called when a client has sent SHUTDOWN. The function has to make another thread call [`Server::stop`].
    pub on_shutdown: fn(),
}

/// Options of listening sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// Length of the accept queue. The kernel limits it to `somaxconn`.
    pub backlog: u32,
    /// Socket buffer size of each direction, as counted by the kernel. `None` means automatic sizing.
    pub buffer_bytes: Option<usize>,
}

impl Default for Sockets {
    fn default() -> Self {
        Self { backlog: 4096, buffer_bytes: None }
    }
}

/// An address to listen on. Port 0 chooses a free port.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    pub address: SocketAddr,
    pub security: Security,
}

/// Transport security below the Redis protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    Plain,
    Tls,
}

/// Errors that prevent the server from running.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is in use, or doesn't belong to this machine.
    #[error("can't listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The path is occupied, or its folder is missing.
    #[error("can't listen on {}", path.display())]
    ListenUnix { path: PathBuf, source: io::Error },
    /// The system refused a thread or an event queue.
    #[error("failed to start a worker")]
    Worker(#[from] io::Error),
}

/// A running server. Dropping it stops the workers.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    workers: Vec<Running>,
    /// The socket files, removed on drop.
    _files: Vec<SocketFile>,
}

/// A handle to change the settings of a running server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

#[derive(Debug)]
struct Running {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the listeners and starts the workers.
    ///
    /// # Errors
    /// If an address can't be bound, or the system refuses threads or event queues.
    pub fn start(settings: Settings, engine: Arc<Engine>) -> Result<Self, ServerError> {
        let Settings {
            mut listen,
            unix,
            inherited,
            workers,
            version,
            access,
            limits,
            text,
            sockets,
            tls,
            save_file,
            cluster,
            trim,
            on_failure,
            on_shutdown,
        } = settings;
        let count = workers.max(1);
        let mut shared = Shared::new(engine, save_file, version, count);
        shared.text = text;
        shared.cluster = cluster;
        shared.on_shutdown = on_shutdown;
        shared.trimming = Trimming::new(trim);
        let shared = Arc::new(shared);
        let preparer = shared.engine.preparer();
        // The thread has normal priority, like the workers: otherwise it would be late when a worker keeps a
        // processor busy. The thread ends with the engine.
        thread::Builder::new().name("kv-memory".to_owned()).spawn(move || preparer.run())?;
        shared.set_limits(limits);
        shared.set_tls(tls);
        *shared.access.write() = access;
        let (in_files, files) = listen_in_files(&unix, sockets)?;
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            let number_of_all = Number { worker: number, workers: count };
            let mut listeners = open_all(&mut listen, &inherited, sockets, number_of_all)?;
            listeners.extend(in_files.iter().map(door_of).collect::<io::Result<Vec<_>>>()?);
            let poll = Poll::new()?;
            let calls = Arc::new(Calls::new(Waker::new(poll.registry(), WAKE)?));
            let worker = Worker::new(number, poll, Arc::clone(&calls), listeners, Arc::clone(&shared))?;
            let thread =
                thread::Builder::new().name(format!("kv-{number}")).spawn(move || run(worker, on_failure))?;
            workers.push(Running { calls, thread: Some(thread) });
        }
        let addresses = listen.iter().map(|listen| listen.address).collect();
        let server = Self { addresses, shared, workers, _files: files };
        if let Some(file) = &server.shared.save_file {
            file.began(&server.shared)?;
        }
        Ok(server)
    }

    /// The listening addresses, in the order of the settings.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns a handle to change settings at run time.
    #[must_use]
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.shared))
    }

    /// Stops the server. Requests received so far are answered if their clients read the replies within two
    /// seconds. Then the data set is saved, if there is a save file.
    ///
    /// # Errors
    /// If the data set could not be saved.
    pub fn stop(mut self) -> Result<(), SaveError> {
        self.end();
        match &self.shared.save_file {
            Some(file) => file.stop(&self.shared.engine, self.shared.changes()),
            None => Ok(()),
        }
    }

    fn end(&mut self) {
        self.shared.stop();
        self.workers.iter().for_each(|worker| worker.calls.wake());
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            // The failure was reported through `on_failure`.
            let _ = thread.join();
        }
    }
}

fn listen_in_files(
    unix: &[UnixListen],
    sockets: Sockets,
) -> Result<(Vec<UnixListener>, Vec<SocketFile>), ServerError> {
    let listen = |wanted: &UnixListen| {
        let failed = |source| ServerError::ListenUnix { path: wanted.path.clone(), source };
        crate::unix::listen(wanted, sockets).map_err(failed)
    };
    let opened = unix.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    Ok(opened.into_iter().unzip())
}

/// All workers share the socket; the first one to accept gets the connection.
fn door_of(socket: &UnixListener) -> io::Result<Door> {
    let listener = Listener::Unix(mio::net::UnixListener::from_std(socket.try_clone()?));
    Ok(Door { listener, security: Security::Plain, owner: Owner::Process, is_asked: true })
}

/// Runs a worker to its end, and reports a failure.
fn run(worker: Worker, on_failure: fn()) {
    let outcome = catch_unwind(AssertUnwindSafe(|| worker.run()));
    match outcome {
        Ok(Ok(())) => return,
        Ok(Err(error)) => tracing::error!(%error, "worker failed"),
        // The panic message is in the log already.
        Err(_) => tracing::error!("worker panicked"),
    }
    on_failure();
}

impl Control {
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Returns whether a client has requested a shutdown. No clients are served while the data set is saved.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.0.is_ending()
    }

    /// Changes the access rules. Authenticated clients stay authenticated.
    pub fn set_access(&self, access: Access) {
        self.0.change_access(|before| *before = access);
    }

    /// Changes the limits within a tenth of a second. `keepalive` applies to new connections.
    pub fn set_limits(&self, limits: Limits) {
        self.0.set_limits(limits);
    }

    /// Changes the TLS configuration for new connections.
    pub fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        self.0.set_tls(Some(tls));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// How a listener shares its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The first listener of this server on its port.
    First,
    /// Joins an existing listener of this server.
    Joins,
}

/// A worker's index, and the number of workers.
#[derive(Clone, Copy, Debug)]
struct Number {
    worker: usize,
    workers: usize,
}

/// Opens the listeners of a worker. Two addresses may share a port: `0.0.0.0:6379` and `[::]:6379`.
fn open_all(
    listen: &mut [Listen],
    inherited: &[Vec<net::TcpListener>],
    sockets: Sockets,
    number: Number,
) -> Result<Vec<Door>, ServerError> {
    let mut doors = Vec::with_capacity(listen.len());
    for at in 0..listen.len() {
        let (ours, rest) = listen.split_at_mut(at);
        let Listen { address, security } = rest[0];
        let inherited = inherited.get(at).map_or(&[][..], Vec::as_slice);
        let shared = shares(inherited, sockets, number);
        let shared = shared.map_err(|source| ServerError::Listen { address, source })?;
        let is_joined =
            !inherited.is_empty() || ours.iter().any(|ours| ours.address.port() == address.port());
        let door =
            |listener, owner| Door { listener: Listener::Tcp(listener), security, owner, is_asked: true };
        if shared.is_empty() {
            let claim = if number.worker > 0 || is_joined { Claim::Joins } else { Claim::First };
            doors.push(door(rest[0].open(sockets, claim)?, Owner::Process));
        }
        doors.extend(shared.into_iter().map(|listener| door(listener, Owner::Starter)));
    }
    Ok(doors)
}

/// Distributes inherited sockets among the workers. If there is a single socket, all workers share it,
/// because it may belong to another user and have a port that only root can bind. Several sockets are
/// distributed in turn, and workers that get none open listeners that join them.
fn shares(
    inherited: &[net::TcpListener],
    sockets: Sockets,
    Number { worker, workers }: Number,
) -> io::Result<Vec<TcpListener>> {
    let is_its = |at: usize| at % workers == worker || inherited.len() == 1;
    let its = inherited.iter().enumerate().filter(|(at, _)| is_its(*at));
    its.map(|(_, socket)| {
        let socket = Socket::from(socket.try_clone()?);
        prepare(&socket, sockets)?;
        Ok(TcpListener::from_std(socket.into()))
    })
    .collect()
}

impl Listen {
    /// Opens one of several listeners on an address, among which the kernel distributes connections. The
    /// other listeners use the first one's port, even if it was chosen automatically.
    fn open(&mut self, sockets: Sockets, claim: Claim) -> Result<TcpListener, ServerError> {
        let address = self.address;
        let listener =
            listen(address, sockets, claim).map_err(|source| ServerError::Listen { address, source })?;
        self.address = listener.local_addr()?;
        Ok(listener)
    }
}

/// Sets socket options, which accepted connections inherit.
pub(crate) fn prepare(socket: &Socket, sockets: Sockets) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    if let Some(bytes) = sockets.buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}

/// Opens a listener. Any process of the same user can join a port with `SO_REUSEPORT`, even a second server.
/// So the first listener sets the option only after it listens: until then, the kernel refuses the port to a
/// second process, even at the same moment.
fn listen(address: SocketAddr, sockets: Sockets, claim: Claim) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(claim == Claim::Joins)?;
    prepare(&socket, sockets)?;
    socket.bind(&address.into())?;
    socket.listen(sockets.backlog.try_into().unwrap_or(i32::MAX))?;
    socket.set_reuse_port(true)?;
    Ok(TcpListener::from_std(socket.into()))
}
