//! A TCP proxy that simulates a bad network.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::delay_line::DelayLine;

/// Faults of a proxy. Byte counts are per connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Time for which each piece is held back, in milliseconds. Later pieces wait meanwhile, so it also limits throughput.
    pub delay_ms: u64,
    /// Delay of every byte in either direction, in milliseconds: latency without loss of throughput.
    pub latency_ms: u64,
    /// Number of bytes towards the server after which the connection is closed.
    pub cut_request_after: Option<usize>,
    /// Number of bytes towards the client after which the connection is closed.
    pub cut_response_after: Option<usize>,
    /// How connections are closed.
    pub cut: Cut,
    /// Whether all bytes are held back until this setting changes.
    pub stall: Stall,
    /// Maximum size of a piece that is passed on in one write; 0 for no limit.
    pub piece_bytes_max: usize,
    /// Handling of new connections.
    pub accept: Accept,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// Orderly, by FIN.
    #[default]
    Close,
    /// By RST.
    Reset,
}

/// Whether bytes are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stall {
    /// Bytes are passed on.
    #[default]
    No,
    /// Bytes are held back.
    Yes,
}

/// Handling of new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// The connection is passed on to the server.
    #[default]
    Forward,
    /// The connection is reset immediately.
    Reset,
}

/// Passes connections on to a server, with faults that can be set at any time.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    target: SocketAddr,
    faults: Faults,
    is_stopping: bool,
    open: Vec<TcpStream>,
    /// Number of connections opened.
    opened: u64,
    /// Connections with numbers below this are half-open.
    abandoned: u64,
}

/// One direction of one connection.
struct Way {
    connection: u64,
    direction: Direction,
    line: DelayLine,
}

#[derive(Clone, Copy)]
enum Direction {
    Request,
    Response,
}

impl FaultProxy {
    /// Listens on a free port in front of a server.
    ///
    /// # Panics
    /// Panics if the system refuses a socket.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = State {
            target,
            faults: Faults::default(),
            is_stopping: false,
            open: Vec::new(),
            opened: 0,
            abandoned: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL, for the configuration of a gateway.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of connections since all were closed, including those that have ended.
    pub fn connections(&self) -> usize {
        // Each connection has two ends in the list.
        self.shared.state().open.len() / 2
    }

    /// Closes all connections.
    pub fn close_connections(&self) {
        let open = std::mem::take(&mut self.shared.state().open);
        // An error means that the connection has already ended.
        open.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Makes all connections half-open: each end sees that the other has vanished. Nothing is read, passed on or closed any more.
    /// New connections are not affected.
    pub fn abandon_connections(&self) {
        let mut state = self.shared.state();
        state.abandoned = state.opened;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Sets the server for new connections, as if it had returned at a new address.
    pub fn aim(&self, target: SocketAddr) {
        self.shared.state().target = target;
    }

    /// Replaces the faults; open connections apply them from their next piece.
    pub fn set(&self, faults: Faults) {
        self.shared.state().faults = faults;
        self.shared.changed.notify_all();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
        self.close_connections();
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().expect("the acceptor does not panic");
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept() {
            let (stopping, accept, target) = {
                let state = self.state();
                (state.is_stopping, state.faults.accept, state.target)
            };
            if stopping {
                return;
            }
            match (accept, TcpStream::connect(target)) {
                (Accept::Forward, Ok(server)) => self.join(client, server),
                _ => cut(&client, Cut::Reset),
            }
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let clones = || Ok::<_, std::io::Error>((client.try_clone()?, server.try_clone()?));
        let (Ok(mine), Ok(registered)) = (clones(), clones()) else { return };
        at_once([&client, &server]);
        let connection = {
            let mut state = self.state();
            state.open.extend([registered.0, registered.1]);
            state.opened += 1;
            state.opened - 1
        };
        for (from, to, direction) in
            [(client, server, Direction::Request), (mine.1, mine.0, Direction::Response)]
        {
            let way = Arc::new(Way { connection, direction, line: DelayLine::default() });
            let Ok(reading) = from.try_clone() else { return };
            let (shared, other) = (Arc::clone(self), Arc::clone(&way));
            thread::spawn(move || shared.take_in(reading, &other));
            let shared = Arc::clone(self);
            thread::spawn(move || {
                shared.pass_on(&from, to, &way);
                way.line.close();
            });
        }
    }

    fn take_in(&self, mut from: TcpStream, way: &Way) {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            // An error counts as the end of the stream.
            let count = from.read(&mut buffer).unwrap_or(0);
            let room = if self.state().faults.latency_ms == 0 { PIECE_BYTES } else { LONG_LINE_BYTES };
            if way.line.put(buffer[..count].to_vec(), room).is_err() || count == 0 {
                return;
            }
        }
    }

    fn pass_on(&self, from: &TcpStream, mut to: TcpStream, way: &Way) {
        let mut passed = 0;
        while let Ok(piece) = way.line.take() {
            let mut rest = &piece.bytes[..];
            if rest.is_empty() && self.faults_when_moving(way, piece.came).is_some() {
                // An error means that the other side has already closed.
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            while !rest.is_empty() {
                let Some(faults) = self.faults_when_moving(way, piece.came) else { return };
                let left =
                    faults.limit(way.direction).map_or(usize::MAX, |limit| limit.saturating_sub(passed));
                let part = faults.piece(rest.len().min(left));
                if to.write_all(&rest[..part]).is_err() {
                    return;
                }
                passed += part;
                rest = &rest[part..];
                if part == left {
                    cut(&to, faults.cut);
                    return cut(from, faults.cut);
                }
            }
        }
    }

    /// Waits for the end of a stall, the latency and the delay; `None` if the connection is stopped or half-open.
    fn faults_when_moving(&self, way: &Way, came: Instant) -> Option<Faults> {
        let mut state = self.state();
        let faults = loop {
            if state.is_stopping || way.connection < state.abandoned {
                return None;
            }
            let latency = Duration::from_millis(state.faults.latency_ms);
            let left = latency.saturating_sub(came.elapsed());
            match state.faults.stall {
                Stall::Yes => state = self.changed.wait(state).expect("no holder of this lock panics"),
                Stall::No if left.is_zero() => break state.faults,
                Stall::No => {
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.expect("no holder of this lock panics").0;
                }
            }
        };
        drop(state);
        if faults.delay_ms > 0 {
            thread::park_timeout(Duration::from_millis(faults.delay_ms));
        }
        Some(faults)
    }
}

impl Faults {
    fn limit(&self, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Request => self.cut_request_after,
            Direction::Response => self.cut_response_after,
        }
    }

    fn piece(&self, bytes: usize) -> usize {
        if self.piece_bytes_max == 0 { bytes } else { bytes.min(self.piece_bytes_max) }
    }
}

/// Disables Nagle's algorithm: small pieces must not wait for delayed acknowledgements (40 ms).
pub(crate) fn at_once(ends: [&TcpStream; 2]) {
    for end in ends {
        // If an end has already closed, the next read reports it.
        let _ = end.set_nodelay(true);
    }
}

fn cut(stream: &TcpStream, how: Cut) {
    if how == Cut::Reset {
        // If this fails, the close is orderly, which the test notices.
        let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Maximum number of bytes in one read.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of bytes in transit with latency: more than any test sends.
const LONG_LINE_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that sends back the bytes of one connection.
    fn echo() -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..count]).unwrap();
            }
        });
        (address, serving)
    }

    #[test]
    fn a_long_way_delays_each_byte_and_carries_as_many() {
        let (server, serving) = echo();
        let proxy = FaultProxy::start(server);
        let latency = Duration::from_millis(100);
        proxy.set(Faults { latency_ms: 100, ..Faults::default() });
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let begun = Instant::now();
        let sent: Vec<u8> = (0..50u8).collect();
        for byte in &sent {
            stream.write_all(&[*byte]).unwrap();
            thread::park_timeout(Duration::from_millis(1));
        }
        let mut came = vec![0; sent.len()];
        stream.read_exact(&mut came[..1]).unwrap();
        assert!(begun.elapsed() >= 2 * latency, "both ways: {:?}", begun.elapsed());
        stream.read_exact(&mut came[1..]).unwrap();
        assert_eq!(came, sent);
        assert!(begun.elapsed() < 10 * latency, "no byte waits for another: {:?}", begun.elapsed());
        proxy.set(Faults::default());
        let now = Instant::now();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut came[..1]).unwrap();
        assert!(now.elapsed() < latency, "the latency is over: {:?}", now.elapsed());
        drop(stream);
        serving.join().unwrap();
    }

    #[test]
    fn an_abandoned_connection_is_silent_at_both_ends() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = FaultProxy::start(listener.local_addr().unwrap());
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut byte = [0];
        client.write_all(b"a").unwrap();
        server.read_exact(&mut byte).unwrap();
        proxy.abandon_connections();
        client.write_all(b"b").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.write_all(b"c").unwrap();
        for stream in [&mut client, &mut server] {
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let silence = stream.read(&mut byte).unwrap_err();
            assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock, "neither bytes nor an end");
        }
        let mut anew = TcpStream::connect(proxy.address()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        anew.write_all(b"d").unwrap();
        server.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"d", "a new connection works as usual");
    }
}
