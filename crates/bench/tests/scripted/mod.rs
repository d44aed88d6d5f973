//! A server that says what a test tells it to say, whatever it is asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What it does next, when the client has sent something; at once after half a reply, after a stall, and to close.
pub(crate) enum Step {
    /// Writes these bytes.
    Reply(Vec<u8>),
    /// Says nothing for a while, then goes on.
    Stall(Duration),
    /// Closes the connection; the next one goes on with the next step.
    Close,
    /// Says nothing any more.
    Silence,
}

pub(crate) struct Scripted {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Scripted {
    pub(crate) fn start(steps: Vec<Step>) -> Self {
        Self::with_address(|_| steps)
    }

    /// With steps that depend on where it listens.
    pub(crate) fn with_address(steps: impl FnOnce(SocketAddr) -> Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let received = Arc::new(Mutex::new(Vec::new()));
        let (steps, seen) = (steps(address), Arc::clone(&received));
        thread::spawn(move || serve(&listener, steps, &seen));
        Self { address, received }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All bytes that it has read.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.received.lock().expect("no panic").clone()
    }
}

/// One connection after the other. A connection that the client ends without a word takes no step.
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
                Some(Step::Stall(duration)) => {
                    // Of the condition under test, and not in place of one.
                    thread::park_timeout(duration);
                    owes = true;
                }
                Some(Step::Silence) => while hear(&mut stream, received) {},
                Some(Step::Close) | None => break,
            }
        }
    }
}

/// Whether a step comes without a word of the client.
fn is_due(step: Option<&Step>, owes: bool) -> bool {
    matches!(step, Some(Step::Close)) || (owes && step.is_some())
}

fn hear(stream: &mut TcpStream, received: &Mutex<Vec<u8>>) -> bool {
    let mut bytes = [0; 64 << 10];
    let read = stream.read(&mut bytes).unwrap_or(0);
    received.lock().expect("no panic").extend_from_slice(&bytes[..read]);
    read > 0
}
