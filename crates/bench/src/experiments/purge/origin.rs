//! An origin whose every response says how many there were before it: what was stored before a purge can be told from what came after.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::super::fleet::pass;

/// Until the program ends: it listens on a free port, and its threads wait for requests.
pub(super) struct VersionedOrigin {
    pub(super) address: SocketAddr,
    versions: Arc<AtomicU64>,
}

/// Pages below a folder of this name are sent in parts.
pub(super) const DRIPPING: &str = "drip";
const PARTS: usize = 10;
const BETWEEN_PARTS: Duration = Duration::from_millis(5);
const BODY: [u8; 2_000] = [b'x'; 2_000];

impl VersionedOrigin {
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let versions = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&versions);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                // A gateway that ends closes its connections.
                thread::spawn(move || answer_all(stream, &counted).ok());
            }
        });
        Ok(Self { address, versions })
    }

    /// Of the last response; it is also how many there were.
    pub(super) fn version(&self) -> u64 {
        self.versions.load(Ordering::SeqCst)
    }
}

/// The requests of a connection.
fn answer_all(stream: TcpStream, versions: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        line.clear();
        let version = versions.fetch_add(1, Ordering::SeqCst) + 1;
        answer(reader.get_mut(), &target, version)?;
    }
    Ok(())
}

/// `/SITE/FOLDER/PAGE` has the tag `FOLDER`.
fn answer(stream: &mut TcpStream, target: &str, version: u64) -> io::Result<()> {
    let folder = target.split('/').nth(2).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nCache-Tag: {folder}\r\nX-Version: {version}\r\nContent-Length: {}\r\n\r\n",
        BODY.len()
    );
    if folder != DRIPPING {
        return stream.write_all(&[head.as_bytes(), &BODY].concat());
    }
    stream.write_all(head.as_bytes())?;
    for part in BODY.chunks(BODY.len() / PARTS) {
        pass(BETWEEN_PARTS);
        stream.write_all(part)?;
    }
    Ok(())
}
