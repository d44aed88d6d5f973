//! One exchange of a [`ScriptedOrigin`](crate::ScriptedOrigin): the request, and the means to answer it.

use std::io::{self, BufRead, BufReader, Write};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::Socket;

use crate::message::{self, Fields, Head};

/// A request as it reached the origin.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Request line and fields.
    pub head: Head,
    /// The body, as far as the script has read it.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: Fields,
    /// Number of its connection, from 0.
    pub connection: usize,
    /// Number of earlier requests for this target.
    pub earlier: usize,
}

impl Received {
    /// Returns the method.
    pub fn method(&self) -> &str {
        self.head.word(0)
    }

    /// Returns the request target.
    pub fn target(&self) -> &str {
        self.head.word(1)
    }

    /// Returns the first value of a field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.head.fields.one(name).unwrap_or_default()
    }
}

/// Handling of the connection after the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Close,
    /// Aborted: the kernel has sent RST.
    Gone,
}

/// A request and its connection. A failed write never fails a test, because a gateway may close the connection at any time.
/// [`Exchange::is_broken`] reports such a failure.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The request; its body is empty until [`Exchange::read_body`].
    pub request: Received,
    stream: &'a mut BufReader<Socket>,
    record: &'a Mutex<Vec<Received>>,
    place: usize,
    is_body_read: bool,
    broken: Option<io::ErrorKind>,
    after: After,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        request: Received,
        place: usize,
        record: &'a Arc<Mutex<Vec<Received>>>,
        stream: &'a mut BufReader<Socket>,
    ) -> Self {
        Self { request, stream, record, place, is_body_read: false, broken: None, after: After::Keep }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        if self.broken.is_none() {
            self.broken = self.stream.get_mut().write_all(bytes.as_ref()).err().map(|error| error.kind());
        }
        self
    }

    /// Sends a complete response with `Content-Length`; the body is omitted if the request is HEAD.
    pub fn respond(&mut self, status: &str, fields: &str, body: impl AsRef<[u8]>) -> &mut Self {
        let body = body.as_ref();
        self.head(status, &format!("Content-Length: {}\r\n{fields}", body.len()));
        if self.request.method() == "HEAD" { self } else { self.send(body) }
    }

    /// Sends a head; `fields` are field lines, each with its line end.
    pub fn head(&mut self, status: &str, fields: &str) -> &mut Self {
        self.send(format!("HTTP/1.1 {status}\r\n{fields}\r\n"))
    }

    /// Sends the head of a 200 with a chunked body.
    pub fn chunked_head(&mut self, fields: &str) -> &mut Self {
        self.head("200 OK", &format!("Transfer-Encoding: chunked\r\n{fields}"))
    }

    /// Sends one chunk.
    pub fn chunk(&mut self, data: impl AsRef<[u8]>) -> &mut Self {
        let data = data.as_ref();
        let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(b"\r\n");
        self.send(bytes)
    }

    /// Sends the last chunk with trailer lines.
    pub fn last_chunk(&mut self, trailers: &str) -> &mut Self {
        self.send(format!("0\r\n{trailers}\r\n"))
    }

    /// Waits for a time, as a slow origin does. A test must not depend on the exact time.
    pub fn delay_ms(&mut self, delay_ms: u64) -> &mut Self {
        let end = std::time::Instant::now() + Duration::from_millis(delay_ms);
        while let Some(left) = end.checked_duration_since(std::time::Instant::now()) {
            thread::park_timeout(left);
        }
        self
    }

    /// Reads the whole request body into [`Exchange::request`] and the record.
    pub fn read_body(&mut self) -> &[u8] {
        if !self.is_body_read {
            self.is_body_read = true;
            let Received { head, body, trailers, .. } = &mut self.request;
            let read = message::body(self.stream, head, body, trailers);
            self.broken = read.err().map(|error| error.kind());
            self.record.lock().expect("no holder of this lock panics")[self.place] = self.request.clone();
        }
        &self.request.body
    }

    /// Reads `count` bytes as they are, for tunnels.
    ///
    /// # Errors
    /// Returns an error if fewer arrive.
    pub fn read_exact(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        message::exactly(self.stream, count, &mut bytes).map(|()| bytes)
    }

    /// Waits until the peer closes or sends bytes, which stay unread.
    pub fn wait_for_peer(&mut self) {
        self.broken = self.stream.fill_buf().err().map(|error| error.kind());
    }

    /// Closes the connection in order (FIN) after the script.
    pub fn close(&mut self) -> &mut Self {
        self.after = After::Close;
        self
    }

    /// Aborts the connection (RST) after the script.
    pub fn reset(&mut self) -> &mut Self {
        // If this fails, the connection closes in order, and the test fails.
        let _ = self.stream.get_ref().set_linger(Some(Duration::ZERO));
        self.after = After::Gone;
        self
    }

    /// Returns whether the peer had closed when bytes were sent or read.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Reads the body if the script has not read it, and returns how to handle the connection.
    pub(crate) fn finish(mut self) -> After {
        if self.after == After::Keep {
            self.read_body();
        }
        let wants_close = self.request.head.fields.lists("connection", "close");
        match self.after {
            After::Keep if self.is_broken() || wants_close => After::Close,
            after => after,
        }
    }
}
