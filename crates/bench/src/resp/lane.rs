//! One connection to one server, and its commands in flight.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::SockRef;

use super::dialect::{Dialect, Due, Verb};
use crate::result::Failure;

#[derive(Debug, Default)]
pub(super) struct Lane {
    stream: Option<TcpStream>,
    /// Bytes to write, and the number already written.
    out: Vec<u8>,
    written: usize,
    /// Bytes of an incomplete reply.
    pub(super) rest: Vec<u8>,
    pub(super) due: VecDeque<Due>,
    /// Whether it is connected, according to the kernel.
    is_open: bool,
}

impl Lane {
    /// Starts to connect unless it is connected. Bytes that were appended before are written after the greeting.
    pub(super) fn open(
        &mut self,
        registry: &Registry,
        token: Token,
        node: SocketAddr,
        dialect: &Dialect,
    ) -> io::Result<()> {
        if self.stream.is_some() {
            return Ok(());
        }
        let mut stream = TcpStream::connect(node)?;
        stream.set_nodelay(true)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.stream = Some(stream);
        if !dialect.greeting.is_empty() {
            self.out.splice(..0, dialect.greeting.iter().copied());
            self.due.push_front(Due { verb: Verb::Greeting, redirects: 0, key: 0 });
        }
        Ok(())
    }

    #[inline]
    pub(super) fn append(&mut self, dialect: &Dialect, due: Due) {
        dialect.write(&mut self.out, due);
        self.due.push_back(due);
    }

    /// Confirms that the connection was opened, or reports its failure.
    pub(super) fn confirm(&mut self) -> Result<(), Failure> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if self.is_open {
            return Ok(());
        }
        match stream.peer_addr() {
            Ok(_) => self.is_open = true,
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                return stream.take_error().map_or(Err(Failure::Connect), |error| match error {
                    Some(_) => Err(Failure::Connect),
                    None => Ok(()),
                });
            }
            Err(_) => return Err(Failure::Connect),
        }
        Ok(())
    }

    /// Writes as much as the socket takes. Returns the number of bytes written.
    pub(super) fn flush(&mut self) -> Result<u64, Failure> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.is_open) else { return Ok(0) };
        let before = self.written;
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(Failure::Broken),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Failure::Broken),
            }
        }
        let bytes = (self.written - before) as u64;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        Ok(bytes)
    }

    /// Reads once, after the rest of the last read. `None` if there is nothing to read.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> Result<Option<ReadBytes>, Failure> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let begin = self.rest.len();
        if buffer.len() < begin + READ_BYTES {
            buffer.resize(begin + READ_BYTES, 0);
        }
        loop {
            match stream.read(&mut buffer[begin..]) {
                Ok(0) => return Err(Failure::Broken),
                Ok(bytes) => {
                    buffer[..begin].copy_from_slice(&self.rest);
                    self.rest.clear();
                    let is_drained = begin + bytes < buffer.len();
                    return Ok(Some(ReadBytes { new: bytes, end: begin + bytes, is_drained }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Failure::Broken),
            }
        }
    }

    /// Closes the connection, without lingering, so that a load with many short connections doesn't run out of ports.
    pub(super) fn close(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
        self.out.clear();
        self.rest.clear();
        self.due.clear();
        (self.written, self.is_open) = (0, false);
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadBytes {
    pub(super) new: usize,
    /// End of the received bytes in the buffer.
    pub(super) end: usize,
    /// Whether the socket has no more data, since the read was short.
    pub(super) is_drained: bool,
}

/// Room for the replies of a batch, in one read.
const READ_BYTES: usize = 128 << 10;
