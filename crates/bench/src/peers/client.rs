//! One request at a time, by hand: to see that a peer is there, and that it answers from its cache.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// What a peer answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Field lines as they came.
    pub(crate) fields: Vec<String>,
    pub(crate) body: Vec<u8>,
}

/// A kept connection.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

/// Nothing here takes longer than the slowest peer needs for a first answer.
const LIMIT: Duration = Duration::from_secs(10);

impl Client {
    /// # Errors
    /// When nobody listens.
    pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// GET with further field lines.
    ///
    /// # Errors
    /// When the connection breaks, or the answer is not delimited by a Content-Length.
    pub(crate) fn get(&mut self, path: &str, fields: &[&str]) -> anyhow::Result<Answer> {
        let more: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: compare\r\n{more}\r\n");
        self.reader.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status line")?;
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            fields.push(line);
        }
        let mut answer = Answer { status, fields, body: Vec::new() };
        if status != 304 {
            let length = answer.field("content-length").context("an answer without Content-Length")?;
            answer.body.resize(length.parse()?, 0);
            self.reader.read_exact(&mut answer.body)?;
        }
        Ok(answer)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("the connection was closed");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Answer {
    /// The value of the first field of that name (in lower case).
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let pairs = self.fields.iter().filter_map(|line| line.split_once(':'));
        pairs.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}
