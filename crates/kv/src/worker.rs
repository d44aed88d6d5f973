//! The loop of one thread: a listener and the connections that it has accepted.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::command::Shared;
use crate::connection::{Buffers, Connection, Then};
use crate::session::Session;

const EVENTS: usize = 1024;
const LISTENER: Token = Token(usize::MAX);
pub(crate) const STOP: Token = Token(usize::MAX - 1);
/// Read at once. A batch that is larger goes on after the others.
const INPUT_BYTES: usize = 64 << 10;
const OUTPUT_BYTES: usize = 64 << 10;
/// How often expired keys are looked for.
const EXPIRE_EVERY: Duration = Duration::from_millis(100);
/// Segments that are looked at in one turn of the loop: a fraction of a millisecond.
const SEGMENTS_AT_ONCE: usize = 2;

pub(crate) struct Worker {
    poll: Poll,
    listener: TcpListener,
    connections: Slab<Connection>,
    /// Connections that have more to do.
    again: Vec<usize>,
    buffers: Buffers,
    shared: Arc<Shared>,
    expired_at_ms: u64,
}

impl Worker {
    pub(crate) fn new(poll: Poll, mut listener: TcpListener, shared: Arc<Shared>) -> io::Result<Self> {
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let buffers = Buffers { input: vec![0; INPUT_BYTES], output: Vec::with_capacity(OUTPUT_BYTES) };
        Ok(Self {
            poll,
            listener,
            connections: Slab::new(),
            again: Vec::new(),
            buffers,
            shared,
            expired_at_ms: 0,
        })
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let wait = if self.again.is_empty() { EXPIRE_EVERY } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let now_ms = now_ms();
            let more = std::mem::take(&mut self.again);
            for event in &events {
                match event.token() {
                    STOP => return Ok(()),
                    LISTENER => self.accept(now_ms),
                    Token(number) => {
                        self.turn(number, now_ms);
                        // The end may have come with the last bytes, and then no other event tells of it.
                        if event.is_read_closed() || event.is_error() {
                            self.again.push(number);
                        }
                    }
                }
            }
            more.into_iter().for_each(|number| self.turn(number, now_ms));
            self.expire(now_ms);
        }
    }

    fn accept(&mut self, now_ms: u64) {
        loop {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    let session = Session::new(self.shared.next_client_id(), address, now_ms);
                    if let Err(error) = self.admit(socket, session) {
                        tracing::debug!(%error, "a connection is refused");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "connections can't be accepted");
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut socket: TcpStream, session: Session) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let entry = self.connections.vacant_entry();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, Token(entry.key()), interest)?;
        entry.insert(Connection::new(socket, session));
        self.shared.connected();
        Ok(())
    }

    fn turn(&mut self, number: usize, now_ms: u64) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        match connection.turn(&self.shared, &mut self.buffers, now_ms) {
            // Events come on edges: only an answer of the socket that there is no more ends a turn for good.
            Then::Wait => {}
            Then::Again => self.again.push(number),
            Then::Close => {
                self.connections.remove(number);
                self.shared.disconnected();
            }
        }
    }

    fn expire(&mut self, now_ms: u64) {
        if now_ms < self.expired_at_ms + EXPIRE_EVERY.as_millis() as u64 {
            return;
        }
        self.expired_at_ms = now_ms;
        for mut shard in self.shared.engine.shards() {
            shard.expire(SEGMENTS_AT_ONCE, now_ms);
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
