//! A minimal client with one request at a time, to check that a server runs and to read its answers.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Field lines as received.
    pub fields: Vec<String>,
    pub body: Vec<u8>,
}

/// A persistent HTTP/1.1 connection.
#[derive(Debug)]
pub struct Client {
    /// The address for `Host`, written as browsers and our generator write it, so that a cache uses the same key.
    address: SocketAddr,
    reader: BufReader<TcpStream>,
}

/// Time limit: longer than the slowest server needs for its first answer.
const LIMIT: Duration = Duration::from_secs(10);

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing listens on the address.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { address, reader: BufReader::with_capacity(READ_BYTES, stream) })
    }

    /// Sends a GET with additional field lines, and reads the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks, or the response isn't HTTP with a length.
    pub fn get(&mut self, path: &str, fields: &[&str]) -> io::Result<Answer> {
        self.send(path, fields)?;
        self.receive()
    }

    /// Sends a GET with additional field lines.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks.
    pub fn send(&mut self, path: &str, fields: &[&str]) -> io::Result<()> {
        let more: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{more}\r\n", self.address);
        self.reader.get_mut().write_all(request.as_bytes())
    }

    /// Reads the next answer.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::get`].
    pub fn receive(&mut self) -> io::Result<Answer> {
        let status = self.line()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = code.ok_or_else(|| malformed("no status line"))?;
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            fields.push(line);
        }
        let mut answer = Answer { status, fields, body: Vec::new() };
        if answer.field("transfer-encoding").is_some() {
            answer.body = self.chunks()?;
        } else if status != 304 {
            let length = answer.field("content-length").and_then(|length| length.parse().ok());
            answer.body.resize(length.ok_or_else(|| malformed("no Content-Length"))?, 0);
            self.reader.read_exact(&mut answer.body)?;
        }
        Ok(answer)
    }

    /// Reads a chunked body without trailers.
    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).map_err(|_| malformed("no chunk size"))?;
            let begin = body.len();
            body.resize(begin + size, 0);
            self.reader.read_exact(&mut body[begin..])?;
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Returns whether an answer has begun to arrive, without blocking.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is closed or broken.
    pub fn is_answered(&self) -> io::Result<bool> {
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true)?;
        let arrived = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        match arrived {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Small, since there may be thousands of connections.
const READ_BYTES: usize = 1024;

impl Answer {
    /// The value of the first field with this name, case-insensitive.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut pairs = self.fields.iter().filter_map(|line| line.split_once(':'));
        pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

fn malformed(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn answers_follow_one_another_on_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // The server must not answer before it has a request.
            stream.read_exact(&mut [0]).expect("a request");
            stream
                .write_all(b"HTTP/1.1 304 Not Modified\r\nAge: 1\r\n\r\nHTTP/1.1 200 OK\r\ncontent-LENGTH: 2\r\n\r\nhi")
                .expect("it reads");
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nA\r\n, everyone\r\n0\r\n\r\n")
                .expect("it reads");
            let mut request = String::new();
            stream.read_to_string(&mut request).expect("it closes");
            request
        });
        let mut client = Client::connect(address).expect("it listens");
        assert!(!client.is_answered().expect("it is open"), "nothing was asked");
        let first = client.get("/", &["X: y"]).expect("an answer");
        assert_eq!((first.status, first.field("AGE"), first.body.len()), (304, Some("1"), 0));
        let second = client.receive().expect("an answer");
        assert_eq!((second.status, second.body.as_slice()), (200, &b"hi"[..]));
        let third = client.receive().expect("an answer");
        assert_eq!(third.body.as_slice(), b"hi, everyone");
        drop(client);
        let request = server.join().expect("it did not panic");
        assert_eq!(request, format!("ET / HTTP/1.1\r\nHost: {address}\r\nX: y\r\n\r\n"));
    }
}
