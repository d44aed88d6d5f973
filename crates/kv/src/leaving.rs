//! Lingering close of connections whose clients may have sent more than was read.
//!
//! The kernel resets a connection that is closed with unread input, and the reset makes the client lose data
//! that it has not read yet, such as an error message. So the server closes only its sending direction, and
//! discards input until the client closes too, for a limited time.

use std::io::{ErrorKind, Read};

use mio::net::TcpStream;

use crate::transport::Transport;

/// Time limit of a lingering close, in which the client can read its last reply.
pub(crate) const WITHIN_MS: u64 = 2_000;
/// Maximum number of bytes that a client may send meanwhile.
pub(crate) const BYTES_MAX: usize = 16 << 20;
/// Limits for lingering connections of all workers: one per `SHARE` clients that may be open, and at most
/// `LEAVING_MAX`. Their file descriptors are needed in addition to those of open connections.
const SHARE: usize = 8;
pub(crate) const LEAVING_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Leaving {
    transport: Transport,
    until_ms: u64,
    left_bytes: usize,
}

/// The limit for each worker. Above it, the oldest lingering connection is closed.
pub(crate) fn count_max(clients_max: usize, workers: usize) -> usize {
    ((clients_max / SHARE).min(LEAVING_MAX) / workers).max(1)
}

impl Leaving {
    /// Begins a lingering close. Returns `None` if the client is gone already.
    pub(crate) fn begin(mut transport: Transport, now_ms: u64) -> Option<Self> {
        transport.end().ok()?;
        Some(Self { transport, until_ms: now_ms.saturating_add(WITHIN_MS), left_bytes: BYTES_MAX })
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        self.transport.socket_mut()
    }

    /// Discards input; returns whether the client has closed or exceeded the byte limit.
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

    /// Deadline of the lingering close.
    pub(crate) fn until_ms(&self) -> u64 {
        self.until_ms
    }

    pub(crate) fn is_late(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }
}
