//! A client's TCP connection that is registered with the runtime only when it has to wait.
//!
//! Adding a socket to the kernel's poll set and removing it are two system calls. A connection needs neither call if its request has
//! arrived before the first read, its response fits into the buffer of the socket, and the connection is then closed.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use store::FileRange;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::wire::{Ending, Stream, end_by};

/// An accepted connection, in non-blocking mode.
pub(crate) struct ClientSocket(State);

enum State {
    /// The socket isn't registered. One read and one write are tried first.
    Fresh {
        socket: std::net::TcpStream,
        read: Attempt,
        write: Attempt,
    },
    Registered(TcpStream),
    /// Registration failed.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Open,
    Made,
}

impl ClientSocket {
    pub(crate) fn new(socket: std::net::TcpStream) -> Self {
        Self(State::Fresh { socket, read: Attempt::Open, write: Attempt::Open })
    }

    /// Returns the registered socket, on which a task can wait.
    ///
    /// # Errors
    /// The kernel can't add the socket to its poll set.
    fn registered(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if !matches!(self.0, State::Registered(_))
            && let State::Fresh { socket, .. } = std::mem::replace(&mut self.0, State::Lost)
        {
            self.0 = State::Registered(TcpStream::from_std(socket)?);
        }
        match &mut self.0 {
            State::Registered(stream) => Ok(Pin::new(stream)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Tries the first read. Returns `None` if no data has arrived yet, or the first read was already tried. Only this read needs a
    /// zeroed buffer, and zeroing it may cost more than the rest of a request.
    fn read_fresh(&mut self, buffer: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        match &mut self.0 {
            State::Fresh { socket, read, .. } if *read == Attempt::Open => {
                *read = Attempt::Made;
                let received = recv(&*socket, buffer.initialize_unfilled(), RecvFlags::empty());
                let read = unless_blocked(received.map(|(read, _)| read))?;
                Some(read.map(|read| buffer.advance(read)))
            }
            _ => None,
        }
    }

    /// Tries the first write. Returns `None` if the buffer of the socket is full, or the first write was already tried.
    fn write_fresh(&mut self, bytes: &[u8], flags: SendFlags) -> Option<io::Result<usize>> {
        match &mut self.0 {
            State::Fresh { socket, write, .. } if *write == Attempt::Open => {
                *write = Attempt::Made;
                unless_blocked(send(&*socket, bytes, SendFlags::NOSIGNAL | flags))
            }
            _ => None,
        }
    }
}

fn unless_blocked(done: rustix::io::Result<usize>) -> Option<io::Result<usize>> {
    match done {
        Err(error) if error == rustix::io::Errno::WOULDBLOCK || error == rustix::io::Errno::INTR => None,
        done => Some(done.map_err(io::Error::from)),
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(read) = self.read_fresh(buffer) {
            return Poll::Ready(read);
        }
        self.registered()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.write_fresh(bytes, SendFlags::empty()) {
            Some(written) => Poll::Ready(written),
            None => self.registered()?.poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match parts {
            // The TLS layer passes a record as a list with one part, for which `send` is cheaper than `writev`.
            [part] => self.poll_write(context, part),
            _ => self.registered()?.poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            State::Fresh { socket, .. } => Poll::Ready(socket.shutdown(Shutdown::Write)),
            State::Registered(stream) => Pin::new(stream).poll_shutdown(context),
            State::Lost => Poll::Ready(Ok(())),
        }
    }
}

impl Stream for ClientSocket {
    const SENDS_FILES: bool = true;
    const CLOSES_SILENTLY: bool = true;

    fn end_by(&self, ending: Ending) {
        match &self.0 {
            State::Fresh { socket, .. } => end_by(socket, ending),
            State::Registered(stream) => end_by(stream, ending),
            State::Lost => {}
        }
    }

    fn poll_write_ahead(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.write_fresh(bytes, SendFlags::MORE) {
            Some(written) => Poll::Ready(written),
            None => self.registered()?.get_mut().poll_write_ahead(context, bytes),
        }
    }

    fn poll_send_file(&mut self, context: &mut Context<'_>, range: FileRange<'_>) -> Poll<io::Result<usize>> {
        self.registered()?.get_mut().poll_send_file(context, range)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream as StdStream};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (StdStream, ClientSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = StdStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        (near, ClientSocket::new(far))
    }

    fn is_registered(socket: &ClientSocket) -> bool {
        matches!(socket.0, State::Registered(_))
    }

    #[tokio::test]
    async fn a_request_that_is_there_and_its_answer_need_no_runtime() {
        let (mut client, mut socket) = pair();
        client.write_all(b"ask").unwrap();
        let mut read = [0; 8];
        assert_eq!(socket.read(&mut read).await.unwrap(), 3);
        socket.write_all(b"answer").await.unwrap();
        assert!(!is_registered(&socket));
        drop(socket);
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "answer");
    }

    #[tokio::test]
    async fn what_was_written_ahead_goes_out_with_the_end() {
        let (mut client, mut socket) = pair();
        let written = poll_fn(|context| socket.poll_write_ahead(context, b"goodbye")).await;
        assert_eq!(written.unwrap(), 7);
        assert!(!is_registered(&socket));
        drop(socket);
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "goodbye");
    }

    #[tokio::test]
    async fn what_is_not_there_yet_is_waited_for() {
        let (mut client, mut socket) = pair();
        let mut read = [0; 8];
        let asked = poll_fn(|context| {
            let mut buffer = ReadBuf::new(&mut read);
            Poll::Ready(Pin::new(&mut socket).poll_read(context, &mut buffer).is_ready())
        });
        assert!(!asked.await);
        assert!(is_registered(&socket));
        client.write_all(b"late").unwrap();
        assert_eq!(socket.read(&mut read).await.unwrap(), 4);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(socket.read(&mut read).await.unwrap(), 0);
    }

    /// Further writes go through the runtime, so that a client that reads continuously can't block the worker.
    #[tokio::test]
    async fn more_than_one_write_goes_through_the_runtime() {
        let (mut client, mut socket) = pair();
        let sent = vec![7; 8 << 20];
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all)
        });
        socket.write_all(&sent).await.unwrap();
        assert!(is_registered(&socket));
        drop(socket);
        assert_eq!(reader.join().unwrap().unwrap(), sent);
    }
}
