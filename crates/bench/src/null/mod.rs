//! The smallest servers that the kernel allows: epoll, read, count, write answers that are ready. What they cost is what no server on the same machine
//! can go below; what other servers need beyond this is their own work.
//!
//! They read no request. [`NullHttp`] counts the ends of request heads, [`NullResp`] marks that neither keys nor values of a load hold.

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

pub use http::{After, NullHttp, Stall};
pub use resp::{NullReply, NullResp};

/// A server that listens.
#[derive(Debug)]
pub struct NullServer {
    listener: TcpListener,
    address: SocketAddr,
    poll: Poll,
    waker: Arc<Waker>,
    answers: Answers,
    after: After,
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
    /// When the system refuses the wake-up.
    pub fn stop(&self) -> io::Result<()> {
        self.0.wake()
    }
}

/// What a server counts, and what it writes.
#[derive(Debug)]
struct Answers {
    /// How many requests end in what was read, with what the connection keeps of the bytes before.
    count: fn(&mut Vec<u8>, &[u8]) -> usize,
    /// Which script a connection gets, by what it asks first; none before that can be told.
    choose: fn(&[u8]) -> Option<usize>,
    scripts: Vec<Script>,
}

/// Answers, so many rounds of them that one write does for any batch.
#[derive(Debug)]
struct Script {
    bytes: Vec<u8>,
    /// Where each answer begins, and where the last one ends.
    edges: Vec<usize>,
    /// Answers in a round.
    round: usize,
}

impl Script {
    /// These answers, again and again.
    fn of(round: &[Vec<u8>]) -> Self {
        let (mut bytes, mut edges) = (Vec::new(), vec![0]);
        while edges.len() == 1 || (edges.len() < ANSWERS_MIN && bytes.len() < SCRIPT_BYTES) {
            for answer in round {
                bytes.extend_from_slice(answer);
                edges.push(bytes.len());
            }
        }
        Self { bytes, edges, round: round.len() }
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// The last bytes read, where they matter for those that follow.
    tail: Vec<u8>,
    script: Option<usize>,
    /// Answers that were written, modulo the length of the script.
    place: usize,
    /// Requests whose answers are not written yet, and how much is written of the first of them.
    owed: usize,
    written: usize,
    /// Whether a request was counted.
    has_asked: bool,
}

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
const READ_BYTES: usize = 256 << 10;
/// Answers in one write at least, if they are short.
const ANSWERS_MIN: usize = 3072;
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
            after: After::KeepAlive,
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
                    Token(index) => self.attend(index, event),
                }
            }
            self.stall_if_due();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        // What ends it otherwise is a client that left before it was taken, or a limit that others may free.
        while let Ok((mut stream, _)) = self.listener.accept() {
            stream.set_nodelay(true)?;
            let entry = self.connections.vacant_entry();
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(entry.key()), interest)?;
            let (tail, script, place, owed, written, has_asked) = (Vec::new(), None, 0, 0, 0, false);
            entry.insert(Connection { stream, tail, script, place, owed, written, has_asked });
        }
        Ok(())
    }

    fn attend(&mut self, index: usize, event: &Event) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let outcome = connection.attend(&self.answers, &mut self.buffer, event);
        if connection.has_asked && self.next_stall.is_none() {
            self.next_stall = self.stall.map(|stall| Instant::now() + stall.every);
        }
        let is_done = self.after == After::Close && connection.has_asked && connection.owed == 0;
        if outcome.is_err() || is_done {
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
    /// Writes and reads until there is nothing more to read, or nothing more can be written.
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
                // The socket has no more: it gave less than there was room for.
                return self.write(answers).map(drop);
            }
        }
        Ok(())
    }

    /// Writes what is owed: true when that is nothing any more.
    fn write(&mut self, answers: &Answers) -> io::Result<bool> {
        let Some(script) = self.script.map(|script| &answers.scripts[script]) else { return Ok(true) };
        while self.owed > 0 {
            let most = self.owed.min(script.edges.len() - 1 - self.place);
            let begin = script.edges[self.place] + self.written;
            let end = script.edges[self.place + most];
            let bytes = match self.stream.write(&script.bytes[begin..end]) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // The common case needs no search.
            let whole = if begin + bytes == end {
                most
            } else {
                script.edges.partition_point(|edge| *edge <= begin + bytes) - 1 - self.place
            };
            self.written = begin + bytes - script.edges[self.place + whole];
            self.owed -= whole;
            self.place = (self.place + whole) % script.round;
        }
        Ok(true)
    }
}
