//! What the store needs to tell something to as many connections as there are gateways: `PUBLISH`, until each of them has it.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::resp::Client;

/// A connection that publishes, and some that are told.
pub(super) struct Published {
    publisher: Client,
    told: Vec<Receiver<Instant>>,
}

const SUBSCRIBE: &[u8] = b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\np\r\n";
const SUBSCRIBED: &[u8] = b"*3\r\n$9\r\nsubscribe\r\n$1\r\np\r\n:1\r\n";
const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\np\r\n$1\r\nm\r\n";
const PATIENCE: Duration = Duration::from_secs(10);

impl Published {
    pub(super) fn to(store: SocketAddr, receivers: usize) -> io::Result<Self> {
        let told = (0..receivers).map(|_| subscribe(store)).collect::<io::Result<_>>()?;
        Ok(Self { publisher: Client::connect(store)?, told })
    }

    /// How long until each has it.
    pub(super) fn publish(&mut self) -> io::Result<Vec<Duration>> {
        let begun = Instant::now();
        self.publisher.ask(&[b"PUBLISH", b"p", b"m"])?;
        let told = self.told.iter().map(|told| told.recv_timeout(PATIENCE).map(|at| at - begun));
        told.collect::<Result<_, _>>().map_err(io::Error::other)
    }
}

fn subscribe(store: SocketAddr) -> io::Result<Receiver<Instant>> {
    let mut stream = TcpStream::connect(store)?;
    stream.write_all(SUBSCRIBE)?;
    stream.read_exact(&mut [0; SUBSCRIBED.len()])?;
    let (sender, told) = sync_channel(1);
    // It ends with the store.
    thread::spawn(move || listen(&mut stream, &sender));
    Ok(told)
}

fn listen(stream: &mut TcpStream, sender: &SyncSender<Instant>) -> Option<()> {
    loop {
        stream.read_exact(&mut [0; MESSAGE.len()]).ok()?;
        sender.send(Instant::now()).ok()?;
    }
}
