//! A scripted HTTP server.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Marks an answer that never comes.
pub(crate) const STAND_STILL: &[u8] = b"(stand still)";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    Whole,
    ByteByByte,
}

/// A server whose first connection is answered by the first script, the second by the second, and so on. The last script serves
/// all further connections. A connection is closed after the last answer of its script.
pub(crate) struct Scripted {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub(crate) fn start(scripts: Vec<Vec<Vec<u8>>>) -> Self {
        Self::start_with(scripts, Writes::Whole)
    }

    pub(crate) fn start_with(scripts: Vec<Vec<Vec<u8>>>, writes: Writes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                let script = scripts[number.min(scripts.len() - 1)].clone();
                let seen = seen.clone();
                std::thread::spawn(move || talk(socket.expect("a connection"), &script, writes, &seen));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All requests so far, with their bodies.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no test thread panicked").clone()
    }
}

fn talk(mut socket: TcpStream, script: &[Vec<u8>], writes: Writes, seen: &Mutex<Vec<String>>) {
    socket.set_nodelay(true).expect("a socket");
    let mut unread = Vec::new();
    for answer in script {
        let Some(request) = next_request(&mut socket, &mut unread) else { return };
        seen.lock().expect("no test thread panicked").push(request);
        if answer == STAND_STILL {
            while next_request(&mut socket, &mut unread).is_some() {}
            return;
        }
        let step = if writes == Writes::Whole { answer.len().max(1) } else { 1 };
        for piece in answer.chunks(step) {
            if socket.write_all(piece).is_err() {
                return;
            }
        }
    }
    // Reads the rest of the client's data, so that the close doesn't reset the connection.
    let _ = socket.shutdown(std::net::Shutdown::Write);
    while socket.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
}

/// Reads to the end of the next request.
fn next_request(socket: &mut TcpStream, unread: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(length) = length_of_first(unread) {
            let request = unread.drain(..length).collect();
            return Some(String::from_utf8(request).expect("the tests send text"));
        }
        let mut buffer = [0; 4096];
        match socket.read(&mut buffer) {
            Ok(0) => return None,
            Ok(bytes) => unread.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

fn length_of_first(bytes: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(bytes).ok()?;
    let head = text.find("\r\n\r\n")? + 4;
    let length = text[..head].lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let whole = head + length.map_or(0, |length| length.parse().expect("a number"));
    (bytes.len() >= whole).then_some(whole)
}

/// An address on which nothing listens.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}
