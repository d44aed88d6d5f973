//! One line per request, for people who watch a demo. Written in place: a mock origin may wait for its log.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    net::SocketAddr,
    path::Path,
};

use http::{Method, StatusCode, Version};
use parking_lot::Mutex;

/// The log that access lines go to.
pub(crate) struct AccessLog {
    sink: Option<Mutex<Box<dyn Write + Send>>>,
}

/// The values of one line.
pub(crate) struct AccessLine<'a> {
    pub(crate) peer: SocketAddr,
    pub(crate) method: &'a Method,
    pub(crate) target: &'a str,
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
}

impl AccessLog {
    /// Opens the log: `None` is off, `-` is standard error, anything else is a file to append to.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { sink: None });
        };
        if path.as_os_str() == "-" {
            return Ok(Self { sink: Some(Mutex::new(Box::new(io::stderr()))) });
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { sink: Some(Mutex::new(Box::new(file))) })
    }

    /// Writes one line. A full disk must not fail the request, so errors end here.
    pub(crate) fn write(&self, line: &AccessLine<'_>) {
        let Some(sink) = &self.sink else { return };
        let AccessLine { peer, method, target, version, status } = line;
        let text = format!("{peer} {version:?} {method} {target} {}\n", status.as_u16());
        if let Err(error) = sink.lock().write_all(text.as_bytes()) {
            tracing::warn!(%error, "the access log of the mock origin cannot be written");
        }
    }
}
