//! An HTTP/1.x client that sends any bytes and reports exactly the bytes received.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use crate::message::{self, Fields, Head};
use crate::wait::DEADLINE;

/// A connection. Reads and writes time out after [`DEADLINE`].
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// End of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The framing ended it: length or last chunk.
    Complete,
    /// The connection closed in order, and the body had no other framing.
    Closed,
    /// The connection closed or broke before the end according to the framing.
    Truncated,
}

/// A response with its body.
#[derive(Clone, Debug)]
pub struct Response {
    /// 1xx responses received before the final response.
    pub interim: Vec<Head>,
    /// Status line and fields.
    pub head: Head,
    /// The received bytes of the body.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: Fields,
    /// How the body ended.
    pub end: End,
}

impl Response {
    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// Returns the first value of a field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.head.fields.one(name).unwrap_or_default()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns all members of `Cache-Status`.
    pub fn cache_status(&self) -> String {
        self.head.fields.joined("cache-status")
    }

    /// Returns whether the cache answered without the origin server.
    pub fn is_hit(&self) -> bool {
        self.cache_status().split(';').any(|part| part.trim() == "hit")
    }
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// Panics if no server listens.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream =
            TcpStream::connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::over(stream)
    }

    /// Connects from this address of the machine, such as `127.0.0.2`.
    ///
    /// # Panics
    /// Panics if no server listens, or the address doesn't belong to this machine.
    #[track_caller]
    pub fn connect_from(from: IpAddr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(from, 0).into()).expect("an address of this machine");
        socket.connect(&address.into()).unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::over(socket.into())
    }

    /// Wraps an open connection.
    ///
    /// # Panics
    /// Panics if the socket refuses its options.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        stream.set_write_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        stream.set_nodelay(true).expect("a TCP socket has this option");
        Self { stream: BufReader::new(stream) }
    }

    /// Sets the time limit of reads from now on.
    ///
    /// # Panics
    /// Panics if the limit is zero.
    pub fn wait_at_most(&mut self, limit: Duration) {
        self.socket().set_read_timeout(Some(limit)).expect("the limit is not zero");
    }

    /// Returns the socket, for options that only one test needs.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// Panics if the peer has closed; see [`Client::try_send`].
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).expect("the peer accepts the bytes");
        self
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Returns an error if the peer has closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Closes the sending side.
    pub fn finish_sending(&mut self) {
        // If the peer has already closed, nothing more can be sent anyway.
        let _ = self.socket().shutdown(Shutdown::Write);
    }

    /// Aborts the connection: the kernel sends RST.
    ///
    /// # Panics
    /// Panics if the socket refuses its options.
    pub fn reset(self) {
        SockRef::from(self.socket()).set_linger(Some(Duration::ZERO)).expect("a TCP socket has this option");
    }

    /// Sends a request without body and reads its response.
    #[track_caller]
    pub fn ask(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n"));
        self.response_to(method)
    }

    /// Sends a request with a body to an admin API, on a new connection.
    #[track_caller]
    pub(crate) fn ask_admin(address: SocketAddr, method: &str, target: &str, body: &str) -> Response {
        let mut client = Self::connect(address);
        let length = body.len();
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ));
        client.response_to(method)
    }

    /// Sends a GET without further fields and reads its response.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.ask("GET", target, "")
    }

    /// Reads the response to any method except HEAD.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads the response to a request with this method.
    ///
    /// # Panics
    /// Panics if no complete head arrives.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Response {
        self.try_response_to(method).expect("a response")
    }

    /// Reads the response to a request with this method.
    ///
    /// # Errors
    /// Returns an error if no complete head arrives. A body that is cut short isn't an error;
    /// [`Response::end`] reports it.
    pub fn try_response_to(&mut self, method: &str) -> io::Result<Response> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self.try_head()?;
            if head.status() / 100 != 1 || head.status() == 101 {
                break head;
            }
            interim.push(head);
        };
        let (mut body, mut trailers) = (Vec::new(), Fields::default());
        let end = self.body(method, &head, &mut body, &mut trailers);
        Ok(Response { interim, head, body, trailers, end })
    }

    /// Reads one head, interim or not.
    ///
    /// # Panics
    /// Panics if none arrives.
    #[track_caller]
    pub fn head(&mut self) -> Head {
        self.try_head().expect("a response head")
    }

    /// Reads one head, interim or not.
    ///
    /// # Errors
    /// Returns an error if none arrives.
    pub fn try_head(&mut self) -> io::Result<Head> {
        Head::read(&mut self.stream)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Reads `count` bytes as they are.
    ///
    /// # Panics
    /// Panics if fewer arrive.
    #[track_caller]
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        message::exactly(&mut self.stream, count, &mut bytes).expect("that many bytes");
        bytes
    }

    /// Reads one chunk of a chunked body; the last one is empty.
    ///
    /// # Panics
    /// Panics if none arrives.
    #[track_caller]
    pub fn chunk(&mut self) -> Vec<u8> {
        let size = message::chunk_size(&mut self.stream).expect("a chunk size");
        let data = self.bytes(size);
        message::chunk_end(&mut self.stream).expect("the end of a chunk");
        data
    }

    /// Waits until the peer closes, and returns the bytes received before.
    ///
    /// # Panics
    /// Panics if it does not close within the deadline. A reset counts as closed.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                panic!("the peer left the connection open; it sent {:?}", String::from_utf8_lossy(&rest));
            }
            _ => rest,
        }
    }

    /// Waits for at most `pause` for bytes from the peer or its close. Returns whether either arrived; bytes
    /// stay unread.
    ///
    /// # Panics
    /// Panics if the pause is zero.
    pub fn wait_for_bytes(&mut self, pause: Duration) -> bool {
        self.wait_at_most(pause);
        let is_silent = |kind| matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let is_there = !matches!(self.stream.fill_buf(), Err(error) if is_silent(error.kind()));
        self.wait_at_most(DEADLINE);
        is_there
    }

    fn body(&mut self, method: &str, head: &Head, body: &mut Vec<u8>, trailers: &mut Fields) -> End {
        if method == "HEAD" || matches!(head.status(), 101 | 204 | 304) {
            return End::Complete;
        }
        if !head.is_framed() {
            return if self.stream.read_to_end(body).is_ok() { End::Closed } else { End::Truncated };
        }
        let read = message::body(&mut self.stream, head, body, trailers);
        if read.is_ok() { End::Complete } else { End::Truncated }
    }
}
