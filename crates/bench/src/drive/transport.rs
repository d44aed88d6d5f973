//! The socket of a connection, with or without TLS. Never blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::ClientConnection;
use socket2::SockRef;

use crate::http::Tls;

#[derive(Debug)]
pub(super) struct Transport {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

/// Progress of opening a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    UnderWay,
    Made,
}

impl Transport {
    /// Starts to open a connection.
    pub(super) fn connect(
        address: SocketAddr,
        tls: Option<&Tls>,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let tls = tls.map(Tls::connection).transpose().map_err(io::Error::other)?;
        Ok(Self { socket, tls: tls.map(Box::new) })
    }

    /// Continues to open the connection. The worker calls this at each event until the connection is open.
    pub(super) fn advance(&mut self) -> io::Result<Progress> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Progress::UnderWay),
            Err(error) => return Err(error),
        }
        match &mut self.tls {
            None => Ok(Progress::Made),
            Some(tls) => shake_hands(tls, &mut self.socket),
        }
    }

    /// Returns whether a read that fills less than its buffer has taken all available bytes.
    pub(super) fn short_read_is_last(&self) -> bool {
        self.tls.is_none()
    }

    /// Reads plain bytes. Zero means the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A missing close_notify does no harm, since the length of an answer is known.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                outcome => return outcome,
            }
            // If `read_tls` returns zero, the stream has ended, which the next iteration reports.
            tls.read_tls(&mut self.socket)?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Writes plain bytes. Returns the number of bytes accepted.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        let taken = tls.writer().write(bytes)?;
        let is_flushed = send(tls, &mut self.socket)?;
        // The buffer of TLS is full and accepts nothing. The next event of the socket reports that it has room again.
        if taken == 0 && !is_flushed {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    /// Makes the close reset the connection, so that a load with many short connections doesn't run out of ports.
    pub(super) fn discard(&self) {
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }

    /// Sends the bytes that TLS has buffered. The worker calls this when the socket is writable again.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            send(tls, &mut self.socket)?;
        }
        Ok(())
    }
}

/// Sends the pending TLS records. Returns whether all were sent.
fn send(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn shake_hands(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<Progress> {
    loop {
        send(tls, socket)?;
        if !tls.is_handshaking() {
            return Ok(Progress::Made);
        }
        match tls.read_tls(socket) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::UnderWay),
            Err(error) => return Err(error),
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert tells the server the reason. A lost alert does no harm.
            let _ = send(tls, socket);
            return Err(io::Error::other(error));
        }
    }
}
