//! A client for single commands that a measurement sends beside its load.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use resp::{Limits, Scanner};

/// A connection with one command at a time.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Received bytes, and the number of them that belong to returned replies.
    unread: Vec<u8>,
    taken: usize,
}

/// Longer than any command here takes, including a SAVE of gigabytes.
const LIMIT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 << 10;

impl Client {
    /// # Errors
    /// Returns an error if nothing listens on the address.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::connect_within(address, LIMIT)
    }

    /// Connects with another limit for the connection and for each reply.
    pub(super) fn connect_within(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, unread: Vec::new(), taken: 0 })
    }

    /// Sends a command, and returns the bytes of its reply, even of an error reply.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, or the reply isn't RESP.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        self.send(&[words])?;
        self.reply()
    }

    /// Sends commands at once, and returns the bytes of each reply.
    ///
    /// # Errors
    /// Returns the errors of [`Self::ask`].
    pub fn ask_all(&mut self, commands: &[&[&[u8]]]) -> io::Result<Vec<Vec<u8>>> {
        self.send(commands)?;
        commands.iter().map(|_| self.reply()).collect()
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

    fn send(&mut self, commands: &[&[&[u8]]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| resp::encode_command(&mut bytes, words));
        self.stream.write_all(&bytes)
    }

    fn reply(&mut self) -> io::Result<Vec<u8>> {
        let mut scanner = Scanner::new(Limits::default());
        loop {
            let found = scanner.scan(&self.unread[self.taken..]);
            if let Some(length) = found.map_err(|error| Error::new(ErrorKind::InvalidData, error))? {
                let reply = self.unread[self.taken..self.taken + length].to_vec();
                self.taken += length;
                return Ok(reply);
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        self.unread.drain(..self.taken);
        self.taken = 0;
        let before = self.unread.len();
        self.unread.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.unread[before..]);
        self.unread.truncate(before + read.as_ref().map_or(0, |bytes| *bytes));
        if read? == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}
