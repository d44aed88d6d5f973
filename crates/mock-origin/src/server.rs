//! Sockets, worker threads, connections, and the handling of each request.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    num::NonZeroUsize,
    sync::Arc,
    thread,
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime,
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    OriginOptions,
    counters::Counters,
    routes::{self, State},
    tls::{self, TlsError},
};

/// Error that prevents the mock origin from running, or ends it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The address is in use, doesn't belong to this machine, or requires more privileges.
    #[error("can't listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
    /// The certificate or key can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system refuses a socket or the event queue of a worker.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
    /// A worker panicked: a defect of the mock origin.
    #[error("a worker ended by a panic")]
    WorkerPanicked,
}

/// The addresses that the origin listens on, with the ports chosen by the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundAddresses {
    pub(crate) plain: Vec<SocketAddr>,
    pub(crate) tls: Vec<SocketAddr>,
}

impl BoundAddresses {
    /// Returns the URLs of the addresses, those without TLS first.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        let plain = self.plain.iter().map(|address| format!("http://{address}"));
        plain.chain(self.tls.iter().map(|address| format!("https://{address}")))
    }
}

/// Runs the mock origin until `shutdown` resolves, then waits for running exchanges (for at most 5
/// s). `announce` is called once, after every address is bound and before the first request is
/// answered.
///
/// # Errors
/// Returns an error if an address can't be bound, TLS can't be set up, or a worker can't start or
/// panics.
pub async fn run(
    options: OriginOptions,
    announce: impl FnOnce(&BoundAddresses),
    shutdown: impl Future<Output = ()>,
) -> Result<(), OriginError> {
    let state = Arc::new(state_of(&options));
    let listeners = bind_all(&options)?.into();
    let (stop, stopped) = watch::channel(());
    let workers = start_workers(&options, &listeners, &state, &stopped);
    drop(stopped);
    announce(&addresses(&listeners));
    // From now on, only the workers keep the sockets open.
    drop(listeners);
    wait_for_end(workers, shutdown, stop).await
}

fn state_of(options: &OriginOptions) -> State {
    let delay_slots = options.delay_slots.map_or(Semaphore::MAX_PERMITS, NonZeroUsize::get);
    State {
        counters: Counters::default(),
        prefix: options.prefix.clone(),
        cpu: Duration::from_millis(options.cpu_ms),
        delay_slots: Semaphore::new(delay_slots.min(Semaphore::MAX_PERMITS)),
    }
}

/// The protocol of connections to a socket.
#[derive(Clone)]
enum Transport {
    Plain,
    Tls(TlsAcceptor),
}

struct Listener {
    socket: StdListener,
    address: SocketAddr,
    transport: Transport,
}

impl Listener {
    fn bind(address: SocketAddr, transport: Transport) -> Result<Self, OriginError> {
        let bind = || {
            let socket = StdListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address, transport })
        };
        bind().map_err(|source| OriginError::Bind { address, source })
    }
}

fn bind_all(options: &OriginOptions) -> Result<Vec<Listener>, OriginError> {
    let mut listeners = Vec::new();
    for address in &options.listen {
        listeners.push(Listener::bind(*address, Transport::Plain)?);
    }
    if options.tls_listen.is_empty() {
        return Ok(listeners);
    }
    let acceptor = TlsAcceptor::from(tls::server_config(options)?);
    for address in &options.tls_listen {
        listeners.push(Listener::bind(*address, Transport::Tls(acceptor.clone()))?);
    }
    Ok(listeners)
}

fn addresses(listeners: &[Listener]) -> BoundAddresses {
    let is_plain = |listener: &&Listener| matches!(listener.transport, Transport::Plain);
    let (plain, tls): (Vec<&Listener>, Vec<&Listener>) = listeners.iter().partition(is_plain);
    let addresses = |listeners: Vec<&Listener>| listeners.iter().map(|listener| listener.address).collect();
    BoundAddresses { plain: addresses(plain), tls: addresses(tls) }
}

type Workers = JoinSet<Result<(), OriginError>>;

fn start_workers(
    options: &OriginOptions,
    listeners: &Arc<[Listener]>,
    state: &Arc<State>,
    stopped: &watch::Receiver<()>,
) -> Workers {
    let mut workers = JoinSet::new();
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    for _ in 0..options.workers.unwrap_or_else(cores).get() {
        let (listeners, state) = (Arc::clone(listeners), Arc::clone(state));
        let worker = Worker { listeners, state, stopped: stopped.clone() };
        workers.spawn_blocking(move || worker.run());
    }
    workers
}

async fn wait_for_end(
    mut workers: Workers,
    shutdown: impl Future<Output = ()>,
    stop: watch::Sender<()>,
) -> Result<(), OriginError> {
    tokio::select! {
        () = shutdown => {}
        Some(ended) = workers.join_next() => ended.unwrap_or(Err(OriginError::WorkerPanicked))?,
    }
    drop(stop);
    while let Some(ended) = workers.join_next().await {
        ended.unwrap_or(Err(OriginError::WorkerPanicked))?;
    }
    Ok(())
}

/// One thread: accepts, serves, and burns CPU without delaying the other workers.
struct Worker {
    listeners: Arc<[Listener]>,
    state: Arc<State>,
    stopped: watch::Receiver<()>,
}

impl Worker {
    fn run(self) -> Result<(), OriginError> {
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(OriginError::Worker)?;
        runtime.block_on(self.serve())
    }

    async fn serve(mut self) -> Result<(), OriginError> {
        let connections = Arc::new(GracefulShutdown::new());
        let mut accepting = JoinSet::new();
        for Listener { socket, transport, .. } in &*self.listeners {
            let socket = socket.try_clone().and_then(TcpListener::from_std);
            let accept = Accept {
                socket: socket.map_err(OriginError::Worker)?,
                transport: transport.clone(),
                state: Arc::clone(&self.state),
                connections: Arc::clone(&connections),
            };
            accepting.spawn(accept.forever());
        }
        // Only the accepting tasks keep the sockets open, so that the sockets close with them.
        drop(self.listeners);
        // An error means that the sender was dropped, which also signals the stop.
        let _ = self.stopped.changed().await;
        accepting.shutdown().await;
        let Some(connections) = Arc::into_inner(connections) else {
            return Ok(());
        };
        if timeout(DRAIN, connections.shutdown()).await.is_err() {
            tracing::debug!("the mock origin stops with exchanges under way");
        }
        Ok(())
    }
}

struct Accept {
    socket: TcpListener,
    transport: Transport,
    state: Arc<State>,
    connections: Arc<GracefulShutdown>,
}

impl Accept {
    async fn forever(self) {
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => self.start(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "the mock origin cannot accept a connection");
                    // The usual cause is a lack of file descriptors; an immediate retry would spin.
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr) {
        // Small chunks must not wait for each other. A refusal of the option is harmless: it only
        // costs time.
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&self.state);
        let watcher = self.connections.watcher();
        match self.transport.clone() {
            Transport::Plain => _ = tokio::spawn(serve_connection(stream, peer, state, watcher)),
            Transport::Tls(acceptor) => {
                _ = tokio::spawn(async move {
                    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => serve_connection(stream, peer, state, watcher).await,
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                        Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
                    }
                })
            }
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    state: Arc<State>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let service = service_fn(move |request| routes::respond(Arc::clone(&state), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .half_close(true)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// Maximum time for running exchanges after the stop.
const DRAIN: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Maximum number of header fields: more than a gateway adds to any sensible request.
const HEADERS_MAX: usize = 512;
const HEADER_LIST_BYTES_MAX: u32 = 256 * 1024;
const STREAMS_MAX: u32 = 1000;
