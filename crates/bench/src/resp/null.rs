//! The smallest server that the kernel allows: counts commands, and writes replies that are ready. What it costs is what
//! no server on the same machine can go below.
//!
//! It stores nothing and parses nothing: a command is a `*`, or in the text protocol a 0x1F, which neither keys nor values
//! of a load hold. So its replies can be right only for [`Values::Fixed`], and each connection has to send one kind of
//! command, told by the first, or the kinds in a fixed order.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use resp::separator;
use slab::Slab;

use super::dialect::{Certainty, Dialect, Due, Format, Verb};
use super::load::{Expiry, Protocol, Values};

/// What the server is to say.
#[derive(Clone, Debug)]
pub struct NullResp {
    pub listen: SocketAddr,
    pub protocol: Protocol,
    pub value_bytes: usize,
    /// The replies of a connection, again and again; empty: what the first command of the connection asks for.
    pub replies: Vec<NullReply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullReply {
    Set,
    Get,
    Miss,
    Del,
}

/// A null server that has a thread of its own. Ends when dropped.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Starts it on a thread.
    ///
    /// # Errors
    /// When it can't listen.
    pub fn start(settings: &NullResp) -> io::Result<Self> {
        let mut null = Null::new(settings)?;
        let (address, is_over) = (null.listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let waker = Arc::new(Waker::new(null.poll.registry(), WAKER)?);
        let seen = Arc::clone(&is_over);
        let body = move || {
            // What fails here are its own means: whoever is connected sees that it ends.
            let _ = null.serve(|| {
                if seen.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        };
        let thread = thread::Builder::new().name("null-resp".to_owned()).spawn(body)?;
        Ok(Self { address, is_over, waker, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl NullResp {
    /// Serves on this thread until it fails. Tells where it listens, before it does.
    ///
    /// # Errors
    /// When it can't listen, or the kernel refuses it something.
    pub fn serve(&self, listening: impl FnOnce(SocketAddr)) -> io::Result<()> {
        let mut null = Null::new(self)?;
        listening(null.listener.local_addr()?);
        null.serve(|| ControlFlow::Continue(()))
    }
}

struct Null {
    poll: Poll,
    listener: TcpListener,
    connections: Slab<Connection>,
    replies: Replies,
    buffer: Vec<u8>,
}

/// What the client does after the bytes that are there, as far as the kernel has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    GoesOn,
    Ends,
}

struct Connection {
    stream: TcpStream,
    /// Its replies; none before the first command has told which.
    script: Option<usize>,
    /// Commands that were counted, modulo the length of the script.
    place: usize,
    /// Commands whose replies are not written yet, and how much is written of the first of them.
    owed: usize,
    written: usize,
}

/// Replies that are ready: of each script so many rounds that one write does for any batch.
struct Replies {
    protocol: Protocol,
    scripts: Vec<Script>,
}

struct Script {
    bytes: Vec<u8>,
    /// Where each reply of the bytes begins, and where the last one ends.
    edges: Vec<usize>,
    /// Replies in a round.
    round: usize,
}

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
const BUFFER_BYTES: usize = 256 << 10;
/// Replies in one write at least, if they are short.
const REPLIES_MIN: usize = 3072;
const SCRIPT_BYTES: usize = 1 << 20;

impl Null {
    fn new(settings: &NullResp) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(settings.listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let replies = Replies::new(settings);
        Ok(Self { poll, listener, connections: Slab::new(), replies, buffer: vec![0; BUFFER_BYTES] })
    }

    fn serve(&mut self, go_on: impl Fn() -> ControlFlow<()>) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while go_on().is_continue() {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    WAKER => {}
                    Token(index) if event.is_read_closed() => self.attend(index, After::Ends),
                    Token(index) => self.attend(index, After::GoesOn),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The client has gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let entry = self.connections.vacant_entry();
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(entry.key()), interest)?;
            entry.insert(Connection { stream, script: None, place: 0, owed: 0, written: 0 });
        }
    }

    fn attend(&mut self, index: usize, after: After) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.attend(&self.replies, &mut self.buffer, after).is_err() {
            self.connections.remove(index);
        }
    }
}

impl Connection {
    /// Reads and writes until there is nothing more to read, or nothing more can be written.
    fn attend(&mut self, replies: &Replies, buffer: &mut [u8], after: After) -> io::Result<()> {
        loop {
            if !self.write(replies)? {
                return Ok(());
            }
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.owed += replies.count(&buffer[..bytes]);
            if self.script.is_none() {
                self.script = replies.script_for(&buffer[..bytes]);
            }
            if bytes < buffer.len() && after == After::GoesOn {
                // The socket has no more: it gave less than there was room for.
                return self.write(replies).map(drop);
            }
        }
    }

    /// Writes what is owed: true when that is nothing any more.
    fn write(&mut self, replies: &Replies) -> io::Result<bool> {
        let Some(script) = self.script.map(|script| &replies.scripts[script]) else { return Ok(true) };
        while self.owed > 0 {
            let replies = self.owed.min(script.edges.len() - 1 - self.place);
            let begin = script.edges[self.place] + self.written;
            let end = script.edges[self.place + replies];
            let bytes = match self.stream.write(&script.bytes[begin..end]) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // The common case needs no search.
            let whole = if begin + bytes == end {
                replies
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

impl Replies {
    fn new(settings: &NullResp) -> Self {
        let dialect = Dialect::new(&Format {
            protocol: settings.protocol,
            key_bytes: 0,
            value_bytes: settings.value_bytes,
            values: Values::Fixed,
            expiry: Expiry::Never,
            login: None,
            certainty: Certainty::Known,
        });
        let scripts: Vec<Vec<NullReply>> = if settings.replies.is_empty() {
            vec![vec![NullReply::Set], vec![NullReply::Get], vec![NullReply::Del]]
        } else {
            vec![settings.replies.clone()]
        };
        let scripts = scripts.iter().map(|replies| Script::new(replies, &dialect)).collect();
        Self { protocol: settings.protocol, scripts }
    }

    fn count(&self, bytes: &[u8]) -> usize {
        let mark = if self.protocol == Protocol::UnitSeparator { separator::SEPARATOR } else { b'*' };
        memchr::memchr_iter(mark, bytes).count()
    }

    /// By the first letter of the first command, once it is there.
    fn script_for(&self, bytes: &[u8]) -> Option<usize> {
        if self.scripts.len() == 1 {
            return Some(0);
        }
        let letter = bytes.iter().find(|byte| byte.is_ascii_uppercase())?;
        Some(match letter {
            b'S' => 0,
            b'G' => 1,
            _ => 2,
        })
    }
}

impl Script {
    fn new(replies: &[NullReply], dialect: &Dialect) -> Self {
        let mut bytes = Vec::new();
        let mut edges = vec![0];
        while edges.len() == 1 || (edges.len() < REPLIES_MIN && bytes.len() < SCRIPT_BYTES) {
            for reply in replies {
                let verb = match reply {
                    NullReply::Set => Verb::Set,
                    NullReply::Get => Verb::Get,
                    NullReply::Miss => Verb::GetMissing,
                    NullReply::Del => Verb::Del,
                };
                dialect.write_reply(&mut bytes, Due { verb, redirects: 0, key: 0 });
                edges.push(bytes.len());
            }
        }
        Self { bytes, edges, round: replies.len() }
    }
}
