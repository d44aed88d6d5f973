//! Origin servers that answer with scripts.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use socket2::{SockAddr, Socket, Type};

use crate::message::Head;
use crate::origin::{After, Exchange, Received};
use crate::wait::{self, DEADLINE};

/// An origin server that answers with a script: a closure that gets each request with its connection. Every connection has a thread, so
/// scripts may wait. All requests are recorded.
pub struct ScriptedOrigin {
    place: SockAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

type Script = dyn Fn(&mut Exchange<'_>) + Send + Sync;

struct Shared {
    script: Box<Script>,
    received: Arc<Mutex<Vec<Received>>>,
    counts: Mutex<HashMap<String, usize>>,
    connections: AtomicUsize,
    open: Mutex<Vec<Socket>>,
    stopping: AtomicBool,
}

impl ScriptedOrigin {
    /// Listens on a free port of the loopback address.
    ///
    /// # Panics
    /// Panics if the system refuses a socket.
    pub fn start(script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Self {
        Self::run(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into(), Box::new(script))
    }

    /// Listens on a Unix socket.
    ///
    /// # Panics
    /// Panics if the system refuses the socket.
    pub fn start_unix(path: &Path, script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Self {
        Self::run(&SockAddr::unix(path).expect("a path that a socket can have"), Box::new(script))
    }

    /// Starts a server that answers every request with 200, these field lines and this body.
    pub fn fixed(fields: &str, body: impl Into<Vec<u8>>) -> Self {
        let (fields, body) = (fields.to_owned(), body.into());
        Self::start(move |exchange| {
            exchange.respond("200 OK", &fields, &body);
        })
    }

    fn run(place: &SockAddr, script: Box<Script>) -> Self {
        let listener = listen(place).expect("a free port, or a new socket");
        let place = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            script,
            received: Arc::default(),
            counts: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let acceptor = Some(accept(listener, &shared));
        Self { place, shared, acceptor }
    }

    /// Returns its URL, for the configuration of a gateway.
    pub fn url(&self) -> String {
        match self.place.as_pathname() {
            Some(path) => format!("unix:{}", path.display()),
            None => format!("http://{}", self.address()),
        }
    }

    /// Returns its address.
    ///
    /// # Panics
    /// Panics if the address is a Unix socket.
    pub fn address(&self) -> SocketAddr {
        self.place.as_socket().expect("the server listens on TCP")
    }

    /// Returns all requests so far, in the order in which their heads were complete.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    /// Returns the number of requests for a target so far, whatever their method.
    pub fn count(&self, target: &str) -> usize {
        lock(&self.shared.counts).get(target).copied().unwrap_or_default()
    }

    /// Returns the number of requests so far.
    pub fn total(&self) -> usize {
        lock(&self.shared.received).len()
    }

    /// Returns the last request for a target.
    ///
    /// # Panics
    /// Panics if there was none.
    #[track_caller]
    pub fn last(&self, target: &str) -> Received {
        let found = lock(&self.shared.received).iter().rfind(|request| request.target() == target).cloned();
        found.unwrap_or_else(|| panic!("no request for {target} reached the origin"))
    }

    /// Waits until `count` requests for a target have arrived.
    #[track_caller]
    pub fn wait_for(&self, target: &str, count: usize) {
        let what = format!("{count} requests for {target} at the origin");
        wait::until_true(&what, || self.count(target) >= count);
    }

    /// Returns the number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Closes all connections, but keeps listening.
    pub fn close_connections(&self) {
        lock(&self.shared.open).drain(..).for_each(|socket| close(&socket));
    }

    /// Stops listening and closes all connections. Running scripts continue without a peer.
    pub fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        if let Some(acceptor) = self.acceptor.take() {
            // This connection wakes the acceptor, which then checks whether it has to stop.
            drop(socket_for(&self.place).and_then(|socket| socket.connect(&self.place)));
            acceptor.join().expect("the acceptor does not panic");
        }
        self.close_connections();
    }

    /// Listens again at the same address.
    ///
    /// # Panics
    /// Panics if another process has taken the address.
    pub fn start_again(&mut self) {
        self.stop();
        self.shared.stopping.store(false, Ordering::Release);
        if let Some(path) = self.place.as_pathname() {
            fs::remove_file(path).expect("the socket of before");
        }
        let listener = wait::until("the address of the origin", || listen(&self.place).ok());
        self.acceptor = Some(accept(listener, &self.shared));
    }
}

impl Drop for ScriptedOrigin {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(listener: Socket, shared: &Arc<Shared>) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            if shared.stopping.load(Ordering::Acquire) {
                return;
            }
            let number = shared.connections.fetch_add(1, Ordering::AcqRel);
            lock(&shared.open).extend(socket.try_clone());
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let closer = socket.try_clone();
                // The error is ignored, because a broken connection doesn't affect the next one.
                if !matches!(serve(socket, number, &shared), Ok(After::Gone))
                    && let Ok(closer) = closer
                {
                    close(&closer);
                }
            });
        }
    })
}

fn socket_for(place: &SockAddr) -> io::Result<Socket> {
    Socket::new(place.domain(), Type::STREAM, None)
}

fn listen(place: &SockAddr) -> io::Result<Socket> {
    let socket = socket_for(place)?;
    socket.set_reuse_address(true)?;
    socket.bind(place)?;
    // The same backlog as in the standard library.
    socket.listen(128)?;
    Ok(socket)
}

fn close(socket: &Socket) {
    // If the peer has already closed, there is nothing to do.
    let _ = socket.shutdown(Shutdown::Both);
}

fn serve(socket: Socket, connection: usize, shared: &Shared) -> io::Result<After> {
    // A Unix socket doesn't have this option.
    let _ = socket.set_tcp_nodelay(true);
    // Idle connections must not end before the test does.
    socket.set_read_timeout(Some(DEADLINE * 4))?;
    let mut stream = BufReader::new(socket);
    while let Some(head) = Head::read(&mut stream)? {
        let (request, place) = record(head, connection, shared);
        let mut exchange = Exchange::new(request, place, &shared.received, &mut stream);
        (shared.script)(&mut exchange);
        match exchange.finish() {
            After::Keep => {}
            After::Close => return Ok(After::Close),
            After::Gone => {
                // The clone in the list of connections would keep the socket open.
                forget(&stream, shared);
                return Ok(After::Gone);
            }
        }
    }
    Ok(After::Close)
}

fn record(head: Head, connection: usize, shared: &Shared) -> (Received, usize) {
    let mut received = lock(&shared.received);
    let earlier = lock(&shared.counts).get(head.word(1)).copied().unwrap_or_default();
    let request = Received { head, connection, earlier, ..Received::default() };
    received.push(request.clone());
    *lock(&shared.counts).entry(request.target().to_owned()).or_default() += 1;
    (request, received.len() - 1)
}

/// Removes the clone of this socket from the list of connections.
fn forget(stream: &BufReader<Socket>, shared: &Shared) {
    // Clients of a Unix socket have no address.
    let peer_of = |socket: &Socket| socket.peer_addr().ok()?.as_socket();
    let peer = peer_of(stream.get_ref());
    lock(&shared.open).retain(|socket| peer.is_none() || peer_of(socket) != peer);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}
