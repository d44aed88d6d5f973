//! A few commands by hand: what a measurement asks of a server beside its load.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use resp::{Limits, Scanner};

/// A connection on which every command is answered before the next.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// What came and belongs to no reply yet.
    unread: Vec<u8>,
}

/// No command here takes longer, a SAVE of gigabytes among them.
const LIMIT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 << 10;

impl Client {
    /// # Errors
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, unread: Vec::new() })
    }

    /// Sends a command, and gives the bytes of its reply, an error reply too.
    ///
    /// # Errors
    /// When the connection breaks, or what comes is no RESP.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        self.send(&[words])?;
        self.reply()
    }

    /// Sends commands at once, and gives the bytes of each reply.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_all(&mut self, commands: &[&[&[u8]]]) -> io::Result<Vec<Vec<u8>>> {
        self.send(commands)?;
        commands.iter().map(|_| self.reply()).collect()
    }

    /// A field of a section of INFO; nothing when the server has no such field.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn info(&mut self, section: &str, field: &str) -> io::Result<Option<String>> {
        let reply = self.ask(&[b"INFO", section.as_bytes()])?;
        let text = String::from_utf8_lossy(&reply);
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(found.map(str::to_owned))
    }

    fn send(&mut self, commands: &[&[&[u8]]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| resp::encode_command(&mut bytes, words));
        self.stream.write_all(&bytes)
    }

    fn reply(&mut self) -> io::Result<Vec<u8>> {
        let mut scanner = Scanner::new(Limits::default());
        let mut piece = vec![0; READ_BYTES];
        loop {
            let length =
                scanner.scan(&self.unread).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
            if let Some(length) = length {
                let rest = self.unread.split_off(length);
                return Ok(std::mem::replace(&mut self.unread, rest));
            }
            match self.stream.read(&mut piece)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                bytes => self.unread.extend_from_slice(&piece[..bytes]),
            }
        }
    }
}
