//! Workers: started together, stopped together.

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

/// How a server begins.
#[derive(Debug)]
pub struct Settings {
    /// At least one, or one of `unix`.
    pub listen: Vec<Listen>,
    /// Beside those.
    pub unix: Vec<UnixListen>,
    /// Sockets that listen already, opened by who started the process: those of each address, in their order; the last ones may be missing.
    pub inherited: Vec<Vec<net::TcpListener>>,
    /// Threads, each with listeners and connections of its own.
    pub workers: usize,
    /// What `INFO` calls the version of the server itself.
    pub version: String,
    pub access: Access,
    pub limits: Limits,
    /// On all addresses.
    pub text: TextProtocol,
    pub sockets: Sockets,
    /// For the listeners with [`Security::Tls`].
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Where the data set is written to at the end, and when clients ask for it. It is the one that the engine came from.
    pub save_file: Option<Arc<SaveFile>>,
    /// Where this server has some of the slots, and others have the rest.
    pub cluster: Option<Cluster>,
    /// What has the allocator give back freed memory, where it keeps some.
    pub trim: Option<Trim>,
    /// What is done when a worker has ended by an error: what all of them share may be half-way through a change then, and its clients are
    /// gone. It need not return.
    pub on_failure: fn(),
    /// What is done when a client has ended the server with SHUTDOWN: it is to have [`Server::stop`] called, in another thread.
    pub on_shutdown: fn(),
}

/// How listeners are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// Connections that wait to be accepted. The kernel takes less where `somaxconn` says so.
    pub backlog: u32,
    /// Of each direction of a connection, as the kernel counts; none lets it choose as it goes.
    pub buffer_bytes: Option<usize>,
}

impl Default for Sockets {
    fn default() -> Self {
        Self { backlog: 4096, buffer_bytes: None }
    }
}

/// Where a server listens. Port 0 takes a free one.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    pub address: SocketAddr,
    pub security: Security,
}

/// What lies under the Redis protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    Plain,
    Tls,
}

/// Why a server can't run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is taken, or not one of this machine.
    #[error("can't listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// There is something else, or the folder is missing.
    #[error("can't listen on {}", path.display())]
    ListenUnix { path: PathBuf, source: io::Error },
    /// No thread, no event queue.
    #[error("the system does not let a worker run")]
    Worker(#[from] io::Error),
}

/// Workers that run. They end when this is dropped.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    workers: Vec<Running>,
    /// They go with it.
    _files: Vec<SocketFile>,
}

/// Settings of a running server, to change them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

#[derive(Debug)]
struct Running {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and starts the workers.
    ///
    /// # Errors
    /// When an address can't be bound, or the system refuses threads or event queues.
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
        // As urgent as the workers: where one of them has all of a processor, it would otherwise come too late. It ends with the engine.
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

    /// Where it listens, in the order of the settings.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What of it can change while it runs.
    #[must_use]
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.shared))
    }

    /// Ends it: what clients have asked is answered, as far as they read it within two seconds. Then the data set is
    /// written, if there is a file for it.
    ///
    /// # Errors
    /// The data set could not be written.
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
            // Whoever runs the server has been told.
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

/// All workers share the socket: whoever comes first takes the connection.
fn door_of(socket: &UnixListener) -> io::Result<Door> {
    let listener = Listener::Unix(mio::net::UnixListener::from_std(socket.try_clone()?));
    Ok(Door { listener, security: Security::Plain, owner: Owner::Process, is_asked: true })
}

/// Runs a worker to its end, and tells if that was not meant to be.
fn run(worker: Worker, on_failure: fn()) {
    let outcome = catch_unwind(AssertUnwindSafe(|| worker.run()));
    match outcome {
        Ok(Ok(())) => return,
        Ok(Err(error)) => tracing::error!(%error, "a worker has ended"),
        // What it has panicked with stands in the log already.
        Err(_) => tracing::error!("a worker has panicked"),
    }
    on_failure();
}

impl Control {
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Whether a client has asked for the end: while the data set is saved for it, nobody is served.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.0.is_ending()
    }

    /// Who may use it from now on. Who has given a password stays, whatever becomes of it.
    pub fn set_access(&self, access: Access) {
        self.0.change_access(|before| *before = access);
    }

    /// Within a tenth of a second. `keepalive` is for connections that begin then.
    pub fn set_limits(&self, limits: Limits) {
        self.0.set_limits(limits);
    }

    /// For connections that begin from now on.
    pub fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        self.0.set_tls(Some(tls));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whom a listener shares its port with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// With listeners of this server that come after it.
    First,
    /// With those of this server that are there already.
    Joins,
}

/// A worker among all.
#[derive(Clone, Copy, Debug)]
struct Number {
    worker: usize,
    workers: usize,
}

/// The listeners of a worker. Two addresses may have a port in common: `0.0.0.0:6379` and `[::]:6379`.
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

/// What a worker gets of the sockets that are there already: they go round. A single one they share, since it may have another owner, and an
/// address that only root can have; several are joined by those that get none.
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
    /// One of several listeners at an address: the kernel spreads connections among them. All others listen where the first
    /// does, also when its port was free to choose.
    fn open(&mut self, sockets: Sockets, claim: Claim) -> Result<TcpListener, ServerError> {
        let address = self.address;
        let listener =
            listen(address, sockets, claim).map_err(|source| ServerError::Listen { address, source })?;
        self.address = listener.local_addr()?;
        Ok(listener)
    }
}

/// What is accepted takes the sizes of buffers over.
pub(crate) fn prepare(socket: &Socket, sockets: Sockets) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    if let Some(bytes) = sockets.buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}

/// Any process of the same user may join a port with `SO_REUSEPORT`, a second server too. So the first listener does without
/// it until it listens: the kernel then refuses the port to whoever comes second, even at the same moment.
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
