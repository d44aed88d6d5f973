//! The smallest servers that the kernel allows: epoll, read, count, write prepared answers. Their cost is the lower bound for any
//! server on the same machine; the difference is the other server's own work.
//!
//! They parse no requests. [`NullHttp`] counts the ends of request heads, [`NullResp`] counts a byte that occurs in no key and no value of
//! a load.

mod http;
mod resp;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener as BlockingListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

pub use http::{NullHttp, Stall};
pub use resp::NullResp;

/// A listening server.
#[derive(Debug)]
pub struct NullServer {
    listener: TcpListener,
    address: SocketAddr,
    poll: Poll,
    waker: Arc<Waker>,
    answers: Answers,
    stall: Option<Stall>,
    next_stall: Option<Instant>,
    connections: Slab<Connection>,
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
    /// Returns an error if the server can't be woken up.
    pub fn stop(&self) -> io::Result<()> {
        self.0.wake()
    }
}

/// How a server counts requests, and its answers.
#[derive(Debug)]
struct Answers {
    /// Counts the requests that end in the bytes read. The first argument holds the connection's earlier bytes.
    count: fn(&mut Vec<u8>, &[u8]) -> usize,
    /// Chooses the script of a connection by its first request. `None` if there are too few bytes to decide.
    choose: fn(&[u8]) -> Option<usize>,
    scripts: Vec<Script>,
}

/// One answer, repeated until one write covers any batch.
#[derive(Debug)]
struct Script {
    bytes: Vec<u8>,
    answer_bytes: usize,
}

impl Script {
    fn of(answer: &[u8]) -> Self {
        let count = (SCRIPT_BYTES / answer.len()).clamp(1, ANSWERS_MAX);
        Self { bytes: answer.repeat(count), answer_bytes: answer.len() }
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// The last bytes read, if counting in the next ones needs them.
    tail: Vec<u8>,
    script: Option<usize>,
    /// Requests without a complete answer; `written` is the number of bytes written of the first missing answer.
    owed: usize,
    written: usize,
    /// Whether a request was counted.
    has_asked: bool,
}

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
const READ_BYTES: usize = 256 << 10;
/// Maximum number of answers in a script: more than the commands of any batch.
const ANSWERS_MAX: usize = 3072;
const SCRIPT_BYTES: usize = 1 << 20;

impl NullServer {
    fn bind(address: SocketAddr, answers: Answers) -> io::Result<Self> {
        let listener = BlockingListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            waker: Arc::new(Waker::new(poll.registry(), WAKER)?),
            poll,
            answers,
            stall: None,
            next_stall: None,
            connections: Slab::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

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
    /// Returns an error if the poll fails. A failure on a connection only ends the connection.
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
                    Token(index) => self.attend(index, event),
                }
            }
            self.stall_if_due();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        // Other errors come from a client that disconnected before it was accepted, or from a resource that other processes may free.
        while let Ok((mut stream, _)) = self.listener.accept() {
            stream.set_nodelay(true)?;
            let entry = self.connections.vacant_entry();
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(entry.key()), interest)?;
            let (tail, script, owed, written, has_asked) = (Vec::new(), None, 0, 0, false);
            entry.insert(Connection { stream, tail, script, owed, written, has_asked });
        }
        Ok(())
    }

    fn attend(&mut self, index: usize, event: &Event) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let outcome = connection.attend(&self.answers, &mut self.buffer, event);
        if connection.has_asked && self.next_stall.is_none() {
            self.next_stall = self.stall.map(|stall| Instant::now() + stall.every);
        }
        if outcome.is_err() {
            self.connections.remove(index);
        }
    }

    fn stall_if_due(&mut self) {
        let (Some(stall), Some(due)) = (self.stall, self.next_stall) else { return };
        let begin = Instant::now();
        if begin < due {
            return;
        }
        while let Some(rest) = stall.length.checked_sub(begin.elapsed()).filter(|rest| *rest > Duration::ZERO)
        {
            std::thread::park_timeout(rest);
        }
        self.next_stall = Some(due + stall.every);
    }
}

impl Connection {
    /// Reads and writes until the socket has no more data, or accepts no more.
    fn attend(&mut self, answers: &Answers, buffer: &mut [u8], event: &Event) -> io::Result<()> {
        while self.write(answers)? {
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let asked = (answers.count)(&mut self.tail, &buffer[..bytes]);
            self.owed += asked;
            self.has_asked |= asked > 0;
            self.script = self.script.or_else(|| (answers.choose)(&buffer[..bytes]));
            if bytes < buffer.len() && !event.is_read_closed() {
                // A short read: the socket has no more data.
                return self.write(answers).map(drop);
            }
        }
        Ok(())
    }

    /// Writes the pending answers. Returns whether all were written.
    fn write(&mut self, answers: &Answers) -> io::Result<bool> {
        let Some(script) = self.script.map(|script| &answers.scripts[script]) else { return Ok(true) };
        while self.owed > 0 {
            let end = script.bytes.len().min(self.owed * script.answer_bytes);
            let bytes = match self.stream.write(&script.bytes[self.written..end]) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let written = self.written + bytes;
            self.owed -= written / script.answer_bytes;
            self.written = written % script.answer_bytes;
        }
        Ok(true)
    }
}
