//! The smallest HTTP server that the kernel allows: epoll, read, fixed write.
//!
//! Counts the ends of request heads in what it reads, and writes as many copies of one response. It reads no request:
//! a request with a body is taken for more than one. What other servers need beyond this is their own work.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener as BlockingListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memmem;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

/// What the server answers, and when.
#[derive(Clone, Debug, Default)]
pub struct NullHttp {
    pub body_bytes: usize,
    /// Beside `Content-Length`.
    pub fields: Vec<(String, String)>,
    pub after: After,
    /// Stands still now and then, for tests of what measures it.
    pub stall: Option<Stall>,
}

/// What becomes of a connection when its requests are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    #[default]
    KeepAlive,
    Close,
}

/// The whole server does nothing for `length`, first `every` after the first request, and from then on as often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    pub length: Duration,
    pub every: Duration,
}

/// A server that listens.
#[derive(Debug)]
pub struct NullServer {
    listener: TcpListener,
    address: SocketAddr,
    poll: Poll,
    waker: Arc<Waker>,
    /// The response, as often as is written at once at most.
    responses: Vec<u8>,
    response_bytes: usize,
    after: After,
    stall: Option<Stall>,
    next_stall: Option<Instant>,
    connections: HashMap<usize, Connection>,
    next_token: usize,
    buffer: Vec<u8>,
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Waker>);

impl Stop {
    /// Ends the server's loop.
    ///
    /// # Errors
    ///
    /// When the system refuses the wake-up.
    pub fn stop(&self) -> io::Result<()> {
        self.0.wake()
    }
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    /// The last bytes read, where the end of a head may begin.
    tail: Vec<u8>,
    unsent_bytes: usize,
}

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const TOKEN_FIRST: usize = 2;
const HEAD_END: &[u8] = b"\r\n\r\n";
const RESPONSES_AT_ONCE: usize = 128;
/// With large bodies fewer are written at once.
const BYTES_AT_ONCE: usize = 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;

impl NullHttp {
    /// Listens.
    ///
    /// # Errors
    ///
    /// When the address is taken, or the system refuses.
    pub fn bind(&self, address: SocketAddr) -> io::Result<NullServer> {
        let listener = BlockingListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let address = listener.local_addr()?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let response = self.response();
        let copies = (BYTES_AT_ONCE / response.len()).clamp(1, RESPONSES_AT_ONCE);
        Ok(NullServer {
            listener,
            address,
            poll,
            waker,
            responses: response.repeat(copies),
            response_bytes: response.len(),
            after: self.after,
            stall: self.stall,
            next_stall: None,
            connections: HashMap::new(),
            next_token: TOKEN_FIRST,
            buffer: vec![0; READ_BYTES],
        })
    }

    fn response(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", self.body_bytes);
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        if self.after == After::Close {
            head += "Connection: close\r\n";
        }
        head += "\r\n";
        let mut response = head.into_bytes();
        response.resize(response.len() + self.body_bytes, b'x');
        response
    }
}

impl NullServer {
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn stop(&self) -> Stop {
        Stop(self.waker.clone())
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    ///
    /// When the poll fails; what goes wrong on a connection ends the connection.
    pub fn serve(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                match event.token() {
                    WAKER => return Ok(()),
                    LISTENER => self.accept()?,
                    token => self.ready(token, event),
                }
            }
            self.stall_if_due();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => self.take(socket)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A client that left before it was taken, or a limit that others may free.
                Err(_) => return Ok(()),
            }
        }
    }

    fn take(&mut self, mut socket: TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let token = Token(self.next_token);
        self.next_token += 1;
        self.poll.registry().register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        self.connections.insert(token.0, Connection { socket, tail: Vec::new(), unsent_bytes: 0 });
        Ok(())
    }

    fn ready(&mut self, token: Token, event: &Event) {
        let Some(mut connection) = self.connections.remove(&token.0) else { return };
        let outcome = self.talk(&mut connection, event);
        let is_done =
            self.after == After::Close && connection.unsent_bytes == 0 && outcome == Outcome::Answered;
        if outcome != Outcome::Over && !is_done {
            self.connections.insert(token.0, connection);
        }
    }

    fn talk(&mut self, connection: &mut Connection, event: &Event) -> Outcome {
        let mut outcome = Outcome::Nothing;
        if event.is_writable() && connection.unsent_bytes > 0 {
            outcome = self.send(connection);
        }
        while event.is_readable() && outcome != Outcome::Over {
            let bytes = match connection.socket.read(&mut self.buffer) {
                Ok(0) => return Outcome::Over,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Outcome::Over,
            };
            let heads = heads_ended(&mut connection.tail, &self.buffer[..bytes]);
            if heads > 0 {
                connection.unsent_bytes += heads * self.response_bytes;
                self.next_stall = self.next_stall.or_else(|| Some(Instant::now() + self.stall?.every));
                outcome = self.send(connection);
            }
            if bytes < READ_BYTES && !event.is_read_closed() {
                break;
            }
        }
        outcome
    }

    fn send(&self, connection: &mut Connection) -> Outcome {
        while connection.unsent_bytes > 0 {
            // The buffer holds whole responses, and what is left to send ends with one: the begin follows from it.
            let begin =
                (self.response_bytes - connection.unsent_bytes % self.response_bytes) % self.response_bytes;
            let most = (self.responses.len() - begin).min(connection.unsent_bytes);
            match connection.socket.write(&self.responses[begin..begin + most]) {
                Ok(bytes) => connection.unsent_bytes -= bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Outcome::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Outcome::Over,
            }
        }
        Outcome::Answered
    }

    fn stall_if_due(&mut self) {
        let (Some(stall), Some(due)) = (self.stall, self.next_stall) else { return };
        let begin = Instant::now();
        if begin < due {
            return;
        }
        while let Some(rest) = stall.length.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) {
            std::thread::park_timeout(rest);
        }
        self.next_stall = Some(due + stall.every);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Nothing,
    Answered,
    Over,
}

/// How many request heads end in what was read, with the bytes read before in mind.
fn heads_ended(tail: &mut Vec<u8>, input: &[u8]) -> usize {
    if tail.is_empty() && input.ends_with(HEAD_END) {
        return memmem::find_iter(input, HEAD_END).count();
    }
    let before = tail.len();
    let seam_bytes = input.len().min(HEAD_END.len() - 1);
    tail.extend_from_slice(&input[..seam_bytes]);
    let across = memmem::find(tail, HEAD_END).filter(|at| *at < before);
    // Bytes of an end that began before the input belong to that end alone.
    let from = across.map_or(0, |at| at + HEAD_END.len() - before);
    let within = memmem::find_iter(&input[from..], HEAD_END);
    let (mut heads, mut rest) = (usize::from(across.is_some()), from);
    for at in within {
        heads += 1;
        rest = from + at + HEAD_END.len();
    }
    if heads == 0 && input.len() < HEAD_END.len() {
        // All of it may be the middle of an end.
        tail.drain(..tail.len().saturating_sub(HEAD_END.len() - 1));
    } else {
        let kept = input.len().saturating_sub(HEAD_END.len() - 1).max(rest);
        tail.clear();
        tail.extend_from_slice(&input[kept..]);
    }
    heads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_response_says_its_length() {
        let server =
            NullHttp { body_bytes: 3, fields: vec![("A".into(), "b".into())], ..NullHttp::default() };
        assert_eq!(server.response(), b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nA: b\r\n\r\nxxx");
    }

    proptest! {
        #[test]
        fn heads_are_counted_however_they_are_cut(
            heads in proptest::collection::vec("(GET / HTTP/1.1\r\n)(A: b\r\n){0,2}\r\n", 0..6),
            cuts in proptest::collection::vec(0_usize..200, 0..30),
        ) {
            let input = heads.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
            cuts.extend([0, input.len()]);
            cuts.sort_unstable();
            let mut tail = Vec::new();
            let counted: usize = cuts.windows(2).map(|cut| heads_ended(&mut tail, &input[cut[0]..cut[1]])).sum();
            prop_assert_eq!(counted, heads.len());
        }
    }
}
