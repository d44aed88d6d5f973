//! One client: its socket, and what is under way on it.

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use resp::{DecodeError, Limits, Problem, RequestScanner};

use crate::command::{self, Shared};
use crate::reply::Reply;
use crate::session::Session;

/// From here on nothing more is executed until the client has read what it asked for.
const UNSENT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) session: Session,
    scanner: RequestScanner,
    /// The begin of a request whose end is missing.
    unread: Vec<u8>,
    /// Replies that the socket did not take.
    unsent: Vec<u8>,
    sent: usize,
}

/// What is to become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Wait for the next event.
    Wait,
    /// There may be more: go on when others had their turn.
    Again,
    Close,
}

/// Buffers that all connections of a worker share.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, session: Session) -> Self {
        Self {
            socket,
            session,
            scanner: RequestScanner::new(Limits::default()),
            unread: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
        }
    }

    /// Reads once, executes what is there, and writes the replies.
    pub(crate) fn turn(&mut self, shared: &Shared, buffers: &mut Buffers, now_ms: u64) -> Then {
        if !self.flush() {
            return Then::Close;
        }
        if !self.unsent.is_empty() {
            return Then::Wait;
        }
        match self.socket.read(&mut buffers.input) {
            Ok(0) => Then::Close,
            Ok(bytes) => {
                let is_full = bytes == buffers.input.len();
                let then = self.execute(&buffers.input[..bytes], &mut buffers.output, shared, now_ms);
                if then == Then::Wait && is_full { Then::Again } else { then }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Then::Wait,
            Err(error) if error.kind() == ErrorKind::Interrupted => Then::Again,
            Err(_) => Then::Close,
        }
    }

    fn execute(&mut self, input: &[u8], output: &mut Vec<u8>, shared: &Shared, now_ms: u64) -> Then {
        output.clear();
        let mut unread = std::mem::take(&mut self.unread);
        let executed = if unread.is_empty() {
            self.execute_all(input, output, shared, now_ms)
        } else {
            unread.extend_from_slice(input);
            self.execute_all(&unread, output, shared, now_ms)
        };
        self.keep_rest(unread, input, executed);
        if !self.send(output) || (self.session.is_over && self.unsent.is_empty()) {
            return Then::Close;
        }
        Then::Wait
    }

    /// Executes every whole request; how many bytes they had.
    fn execute_all(&mut self, input: &[u8], output: &mut Vec<u8>, shared: &Shared, now_ms: u64) -> usize {
        let mut at = 0;
        while !self.session.is_over {
            match self.scanner.scan(&input[at..]) {
                Ok(None) => break,
                Ok(Some(arguments)) => {
                    at += arguments.bytes;
                    let mut reply = Reply { out: output, version: self.session.version };
                    command::execute(&arguments, &mut self.session, shared, &mut reply, now_ms);
                }
                Err(error) => {
                    let mut reply = Reply { out: output, version: self.session.version };
                    reply.error(&protocol_error(&error, &input[at..]));
                    self.session.is_over = true;
                }
            }
            if output.len() > UNSENT_BYTES_MAX && !self.send_now(output) {
                self.session.is_over = true;
            }
        }
        at
    }

    fn keep_rest(&mut self, mut unread: Vec<u8>, input: &[u8], executed: usize) {
        if unread.is_empty() {
            self.unread.extend_from_slice(&input[executed..]);
        } else {
            unread.drain(..executed);
            self.unread = unread;
        }
        if self.unread.is_empty() {
            self.unread = Vec::new();
        }
    }

    /// Sends in the middle of a batch, so that its replies are not all in memory at once; whether the client is there.
    fn send_now(&mut self, output: &mut Vec<u8>) -> bool {
        let is_there = self.send(output);
        output.clear();
        is_there
    }

    /// Writes what the socket takes, and keeps the rest; whether the client is there.
    fn send(&mut self, output: &[u8]) -> bool {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(output);
            return self.flush();
        }
        let Ok(sent) = write(&mut self.socket, output) else { return false };
        self.unsent.extend_from_slice(&output[sent..]);
        true
    }

    /// Writes what was kept; whether the client is there.
    fn flush(&mut self) -> bool {
        let Ok(sent) = write(&mut self.socket, &self.unsent[self.sent..]) else { return false };
        self.sent += sent;
        if self.sent == self.unsent.len() {
            (self.unsent, self.sent) = (Vec::new(), 0);
            return !self.session.is_over;
        }
        true
    }
}

/// Writes until the socket takes no more; how much it took.
fn write(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// In the words of Redis, on which clients match.
fn protocol_error(error: &DecodeError, request: &[u8]) -> String {
    let is_array = request.first() == Some(&b'*');
    let what = match error.problem {
        Problem::NotBulk => {
            let byte = request.get(error.at).copied().unwrap_or_default();
            return format!("ERR Protocol error: expected '$', got '{}'", char::from(byte));
        }
        Problem::Quote => "unbalanced quotes in request",
        Problem::LineOverLimit { .. } if !is_array => "too big inline request",
        Problem::LineOverLimit { .. } if error.at < 2 => "too big mbulk count string",
        Problem::LineOverLimit { .. } => "too big bulk count string",
        Problem::ElementsOverLimit { .. } | Problem::Length if error.at < 2 => "invalid multibulk length",
        _ => "invalid bulk length",
    };
    format!("ERR Protocol error: {what}")
}
