//! The byte stream of a connection: plain, or TLS.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use mio::net::TcpStream;
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::{ServerConfig, ServerConnection};

#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

#[derive(Debug)]
pub(crate) struct Tls {
    socket: TcpStream,
    session: ServerConnection,
    /// Bytes received during the handshake, all of which the session may be buffering.
    handshake_bytes: usize,
}

impl Transport {
    /// Begins a TLS session.
    ///
    /// # Errors
    /// If the configuration permits no session.
    pub(crate) fn tls(socket: TcpStream, config: &Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let session = ServerConnection::new(Arc::clone(config))?;
        Ok(Self::Tls(Box::new(Tls { socket, session, handshake_bytes: 0 })))
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &mut tls.socket,
        }
    }

    /// Like [`Read::read`]. If it reads fewer bytes than `buffer` can hold, no more are available for now.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            // This bypasses libc, whose blocking calls are cancellation points: each one costs two locked
            // operations, although threads are never cancelled here.
            Self::Plain(socket) => Ok(recv(socket, buffer, RecvFlags::empty())?.0),
            Self::Tls(tls) => tls.read(buffer),
        }
    }

    /// The socket, if the connection is not encrypted.
    pub(crate) fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(_) => None,
        }
    }

    /// Like [`Write::write`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(send(socket, bytes, SendFlags::NOSIGNAL)?),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    /// Like [`Write::write_vectored`].
    pub(crate) fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(parts),
            Self::Tls(tls) => tls.write(parts.iter().find(|part| !part.is_empty()).map_or(&[], |part| part)),
        }
    }

    /// Writes encrypted data as far as the socket accepts it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Returns whether the TLS handshake is still in progress, so that the client hasn't been identified.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.session.is_handshaking(),
        }
    }

    /// Received bytes that may be buffered until the end of the handshake.
    pub(crate) fn unread_bytes(&self) -> usize {
        match self {
            Self::Tls(tls) if tls.session.is_handshaking() => tls.handshake_bytes,
            _ => 0,
        }
    }

    /// Closes the sending direction.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        if let Self::Tls(tls) = self {
            tls.session.send_close_notify();
            tls.flush()?;
        }
        self.socket_mut().shutdown(Shutdown::Write)
    }

    /// Returns whether everything has been written to the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => !tls.session.wants_write(),
        }
    }
}

/// Like [`Transport::read`], into the spare capacity of `buffer`.
pub(crate) fn read_behind(socket: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    Ok(recv(socket, spare_capacity(buffer), RecvFlags::empty())?.0)
}

impl Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut bytes = 0;
        while bytes < buffer.len() {
            match self.session.reader().read(&mut buffer[bytes..]) {
                Ok(0) => break,
                Ok(more) => bytes += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.receive() {
                    Ok(()) => {}
                    // Return the data before the end first, even without a close_notify. The next read sees
                    // the end.
                    Err(error) if bytes > 0 && is_no_more(error.kind()) => break,
                    Err(error) => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn receive(&mut self) -> io::Result<()> {
        let bytes = self.session.read_tls(&mut self.socket)?;
        if bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if self.session.is_handshaking() {
            self.handshake_bytes += bytes;
        }
        let understood = self.session.process_new_packets();
        // Sends handshake messages, or an alert.
        self.flush()?;
        understood.map(|_| ()).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        if self.session.wants_write() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.session.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_no_more(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::UnexpectedEof)
}
