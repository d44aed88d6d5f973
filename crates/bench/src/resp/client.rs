//! A client for single commands that a measurement sends in addition to its load.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use resp::{Limits, Scanner};

/// A connection with one command at a time.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
}

/// Time limit: longer than any command here, including a SAVE of gigabytes.
const LIMIT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 << 10;

impl Client {
    /// # Errors
    /// Returns an error if nothing listens on the address.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::connect_within(address, LIMIT)
    }

    /// Connects with this limit for the connection and for each reply.
    pub(super) fn connect_within(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends a command, and returns the bytes of its reply, even of an error reply.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, or the reply isn't RESP.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut command = Vec::new();
        resp::encode_command(&mut command, words);
        self.exchange(&command)
    }

    /// A field of a section of INFO. `None` if the server has no such field.
    ///
    /// # Errors
    /// Returns the errors of [`Self::ask`].
    pub fn info(&mut self, section: &str, field: &str) -> io::Result<Option<String>> {
        let reply = self.ask(&[b"INFO", section.as_bytes()])?;
        let text = String::from_utf8_lossy(&reply);
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(found.map(str::to_owned))
    }

    /// Sends an encoded command.
    pub(super) fn exchange(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(command)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Vec<u8>> {
        let (mut scanner, mut received) = (Scanner::new(Limits::default()), Vec::new());
        let mut piece = vec![0; READ_BYTES];
        loop {
            let found = scanner.scan(&received);
            if let Some(length) = found.map_err(|error| Error::new(ErrorKind::InvalidData, error))? {
                received.truncate(length);
                return Ok(received);
            }
            let bytes = self.stream.read(&mut piece)?;
            if bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            received.extend_from_slice(&piece[..bytes]);
        }
    }
}
