//! A server that replies from a script, regardless of the requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A step of the script. The server waits for data from the client before it takes a step, except after a partial reply and before a close.
pub(crate) enum Step {
    /// Writes these bytes.
    Reply(Vec<u8>),
    /// Closes the connection. The next connection continues with the next step.
    Close,
    /// Sends nothing from now on.
    Silence,
}

pub(crate) struct Scripted {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Scripted {
    pub(crate) fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&received);
        thread::spawn(move || serve(&listener, steps, &seen));
        Self { address, received }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all bytes that the server has read.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.received.lock().expect("no panic").clone()
    }
}

/// Serves one connection after the other. A connection that the client closes without sending data uses no step.
fn serve(listener: &TcpListener, steps: Vec<Step>, received: &Mutex<Vec<u8>>) {
    let mut steps = steps.into_iter().peekable();
    while let Ok((stream, _)) = listener.accept() {
        let mut stream = stream;
        stream.set_nodelay(true).expect("an option of TCP");
        let mut owes = false;
        while is_due(steps.peek(), owes) || (steps.peek().is_some() && hear(&mut stream, received)) {
            match steps.next() {
                Some(Step::Reply(bytes)) => {
                    owes = !(bytes.ends_with(b"\r\n") || bytes.ends_with(b"\x1f"));
                    if stream.write_all(&bytes).is_err() {
                        break;
                    }
                }
                Some(Step::Silence) => while hear(&mut stream, received) {},
                Some(Step::Close) | None => break,
            }
        }
    }
}

/// Returns whether the step is taken without data from the client.
fn is_due(step: Option<&Step>, owes: bool) -> bool {
    matches!(step, Some(Step::Close)) || (owes && step.is_some())
}

fn hear(stream: &mut TcpStream, received: &Mutex<Vec<u8>>) -> bool {
    let mut bytes = [0; 64 << 10];
    let read = stream.read(&mut bytes).unwrap_or(0);
    received.lock().expect("no panic").extend_from_slice(&bytes[..read]);
    read > 0
}
