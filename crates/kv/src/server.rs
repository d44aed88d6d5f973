//! Workers: started together, stopped together.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use engine::Engine;
use mio::{Poll, Waker};
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::command::Shared;
use crate::worker::{STOP, Worker};

/// How a server begins.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads, each with a listener and connections of its own.
    pub workers: usize,
    /// What `INFO` calls the version of the server itself.
    pub version: String,
}

/// Why a server can't run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is taken, or not one of this machine.
    #[error("can't listen at {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// No thread, no event queue.
    #[error("the system does not let a worker run")]
    Worker(#[from] io::Error),
}

/// Workers that run. They end when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    workers: Vec<(Waker, Option<JoinHandle<io::Result<()>>>)>,
}

impl Server {
    /// Listens, and starts the workers.
    ///
    /// # Errors
    /// When the address can't be bound, or the system refuses threads or event queues.
    pub fn start(settings: &Settings, engine: Arc<Engine>) -> Result<Self, ServerError> {
        let shared = Arc::new(Shared::new(engine, settings.version.clone()));
        let mut server = Self { address: settings.listen, workers: Vec::new() };
        for number in 0..settings.workers.max(1) {
            let address = server.address;
            let listener = listen(address).map_err(|source| ServerError::Listen { address, source })?;
            // All others listen where the first does, also when its port was free to choose.
            server.address = listener.local_addr()?;
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), STOP)?;
            let worker = Worker::new(poll, listener, Arc::clone(&shared))?;
            let thread = thread::Builder::new().name(format!("kv-{number}")).spawn(|| worker.run())?;
            server.workers.push((waker, Some(thread)));
        }
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it: what was executed is answered, as far as the sockets take it.
    pub fn stop(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        for (waker, thread) in &mut self.workers {
            let is_told = waker.wake().is_ok();
            if let Some(thread) = thread.take().filter(|_| is_told)
                && let Ok(Err(error)) = thread.join()
            {
                tracing::error!(%error, "a worker ended");
            }
        }
    }
}

/// One of several listeners at an address: the kernel spreads connections among them.
fn listen(address: SocketAddr) -> io::Result<mio::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(mio::net::TcpListener::from_std(socket.into()))
}

/// The kernel takes less where `somaxconn` says so.
const BACKLOG: i32 = 4096;
