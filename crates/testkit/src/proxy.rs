//! A TCP proxy that stands for a bad network.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

/// What goes wrong. Counts of bytes are per connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Wait before each piece is passed on.
    pub delay_ms: u64,
    /// Close after so many bytes towards the server.
    pub cut_request_after: Option<usize>,
    /// Close after so many bytes towards the client.
    pub cut_response_after: Option<usize>,
    /// How connections are cut.
    pub cut: Cut,
    /// Pass nothing on until this changes.
    pub stall: Stall,
    /// Largest piece that is passed on at once; 0 is no limit.
    pub piece_bytes_max: usize,
    /// What happens to new connections.
    pub accept: Accept,
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// In order (FIN).
    #[default]
    Close,
    /// By RST.
    Reset,
}

/// Whether bytes stand still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stall {
    /// They move.
    #[default]
    No,
    /// They stand.
    Yes,
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// They are passed on.
    #[default]
    Forward,
    /// They are reset at once.
    Reset,
}

/// Passes connections on to a server, with faults that can be set at any time.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    faults: Faults,
    stopping: Option<Stopping>,
    open: Vec<TcpStream>,
}

struct Stopping;

#[derive(Clone, Copy)]
enum Direction {
    Request,
    Response,
}

impl FaultProxy {
    /// Listens on a free port in front of a server.
    ///
    /// # Panics
    /// When the system refuses a socket.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared { target, state: Mutex::default(), changed: Condvar::new() });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For the configuration of a gateway.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Connections since all were closed, those that have ended too.
    pub fn connections(&self) -> usize {
        // Of each both ends.
        self.shared.state().open.len() / 2
    }

    /// Closes all connections.
    pub fn close_connections(&self) {
        let open = std::mem::take(&mut self.shared.state().open);
        // Gone already: that's closed, too.
        open.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Replaces the faults; open connections see them at their next piece.
    pub fn set(&self, faults: Faults) {
        self.shared.state().faults = faults;
        self.shared.changed.notify_all();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.state().stopping = Some(Stopping);
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
            let (stopping, accept) = {
                let state = self.state();
                (state.stopping.is_some(), state.faults.accept)
            };
            if stopping {
                return;
            }
            match (accept, TcpStream::connect(self.target)) {
                (Accept::Forward, Ok(server)) => self.join(client, server),
                _ => cut(&client, Cut::Reset),
            }
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let clones = || Ok::<_, std::io::Error>((client.try_clone()?, server.try_clone()?));
        let (Ok(mine), Ok(registered)) = (clones(), clones()) else { return };
        self.state().open.extend([registered.0, registered.1]);
        for (from, to, direction) in
            [(client, server, Direction::Request), (mine.1, mine.0, Direction::Response)]
        {
            let shared = Arc::clone(self);
            thread::spawn(move || shared.pass_on(from, to, direction));
        }
    }

    fn pass_on(&self, mut from: TcpStream, mut to: TcpStream, direction: Direction) {
        let mut buffer = vec![0; 64 << 10];
        let mut passed = 0;
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let mut rest = &buffer[..count];
            while !rest.is_empty() {
                let Some(faults) = self.faults_when_moving() else { return };
                let left = faults.limit(direction).map_or(usize::MAX, |limit| limit.saturating_sub(passed));
                let piece = faults.piece(rest.len().min(left));
                if to.write_all(&rest[..piece]).is_err() {
                    return;
                }
                passed += piece;
                rest = &rest[piece..];
                if piece == left {
                    cut(&to, faults.cut);
                    return cut(&from, faults.cut);
                }
            }
        }
        // The other side has closed already: nothing is left to say.
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Waits out a stall and the delay; none when the proxy stops.
    fn faults_when_moving(&self) -> Option<Faults> {
        let mut state = self.state();
        while state.faults.stall == Stall::Yes && state.stopping.is_none() {
            state = self.changed.wait(state).expect("no holder of this lock panics");
        }
        if state.stopping.is_some() {
            return None;
        }
        let faults = state.faults;
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

fn cut(stream: &TcpStream, how: Cut) {
    if how == Cut::Reset {
        // Without it the close is orderly, which the test notices.
        let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    }
    let _ = stream.shutdown(Shutdown::Both);
}
