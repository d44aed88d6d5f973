//! The end of a connection whose client may have sent more than was read.
//!
//! The kernel resets a connection that is closed with input unread, and a reset makes the client lose what it has not read yet: the error that
//! tells why. So the server ends its own direction, and reads on into nothing until the client has ended too, for a while.

use std::io::{ErrorKind, Read};

use mio::net::TcpStream;

use crate::transport::Transport;

/// How long a client may take to read its last reply.
pub(crate) const WITHIN_MS: u64 = 2_000;
/// How much it may have sent meanwhile.
pub(crate) const BYTES_MAX: usize = 16 << 20;
/// Connections of all workers that end like this at a time: one for so many that may be open, and no more than so many. They have descriptors
/// beside those.
const SHARE: usize = 8;
pub(crate) const LEAVING_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Leaving {
    transport: Transport,
    until_ms: u64,
    left_bytes: usize,
}

/// How many connections of each worker may end like this at a time; for another, the oldest of them ends at once.
pub(crate) fn count_max(clients_max: usize, workers: usize) -> usize {
    ((clients_max / SHARE).min(LEAVING_MAX) / workers).max(1)
}

impl Leaving {
    /// Nothing more will be sent. None: the client is gone already.
    pub(crate) fn begin(mut transport: Transport, now_ms: u64) -> Option<Self> {
        transport.end().ok()?;
        Some(Self { transport, until_ms: now_ms.saturating_add(WITHIN_MS), left_bytes: BYTES_MAX })
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        self.transport.socket_mut()
    }

    /// Reads what there is; whether the client has ended too, or has sent enough.
    pub(crate) fn is_over(&mut self, buffer: &mut [u8]) -> bool {
        loop {
            match self.socket_mut().read(buffer) {
                Ok(bytes @ 1..) if bytes < self.left_bytes => self.left_bytes -= bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return true,
            }
        }
    }

    /// When it is waited for no longer.
    pub(crate) fn until_ms(&self) -> u64 {
        self.until_ms
    }

    pub(crate) fn is_late(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }
}
