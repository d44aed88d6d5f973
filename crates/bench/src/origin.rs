//! An origin in this process, which answers as it is told, and counts what it is asked.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// Until the program ends: all copies are one. It listens on a free port, and its threads wait for requests.
#[derive(Clone, Debug)]
pub struct Origin {
    pub address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    /// That have no answer yet.
    present: AtomicU64,
    /// At the same time, so far.
    most: AtomicU64,
}

/// What comes of a request.
#[derive(Debug)]
pub enum Reply {
    /// The whole response, with a pause between its parts.
    Parts(Vec<Vec<u8>>),
    /// The connection ends with RST.
    Reset,
    /// Nothing, until the gateway closes the connection.
    Silence,
}

/// A page of 2 kB.
pub(crate) fn page(status: &str, cache_control: &str) -> Reply {
    let head = format!(
        "HTTP/1.1 {status}\r\nCache-Control: {cache_control}\r\nContent-Length: {}\r\n\r\n",
        BODY.len()
    );
    Reply::Parts(vec![[head.as_bytes(), &BODY].concat()])
}

pub(crate) const BODY: [u8; 2_000] = [b'x'; 2_000];
const BETWEEN_PARTS: Duration = Duration::from_millis(5);

impl Origin {
    /// `reply` is told the target, and how many requests there have been with this one.
    ///
    /// # Errors
    /// When it can't listen.
    pub fn start(reply: impl Fn(&str, u64) -> Reply + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let all = Arc::new((Arc::clone(&counts), reply));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                // A gateway that ends closes its connections.
                thread::spawn(move || answer_all(stream, &all.0, &all.1).ok());
            }
        });
        Ok(Self { address, counts })
    }

    /// How many there were.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Requests that it had at the same time, at most.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.counts.most.load(Ordering::SeqCst)
    }
}

/// What a field line says of the length of the content, if it does.
fn length(line: &str) -> Option<u64> {
    let (name, value) = line.split_once(':')?;
    if name.eq_ignore_ascii_case("content-length") { value.trim().parse().ok() } else { None }
}

/// The requests of a connection.
fn answer_all(stream: TcpStream, counts: &Counts, reply: &impl Fn(&str, u64) -> Reply) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut content_bytes = 0;
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line)?;
            content_bytes = length(&line).unwrap_or(content_bytes);
        }
        line.clear();
        io::copy(&mut reader.by_ref().take(content_bytes), &mut io::sink())?;
        match counts.during(|number| reply(&target, number)) {
            Reply::Parts(parts) => write(reader.get_mut(), &parts)?,
            Reply::Reset => return SockRef::from(reader.get_ref()).set_linger(Some(Duration::ZERO)),
            Reply::Silence => {}
        }
    }
    Ok(())
}

impl Counts {
    /// Before its answer is written a request is over: the next one may come with it.
    fn during<T>(&self, answer: impl FnOnce(u64) -> T) -> T {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let present = self.present.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(present, Ordering::SeqCst);
        let answer = answer(number);
        self.present.fetch_sub(1, Ordering::SeqCst);
        answer
    }
}

fn write(stream: &mut TcpStream, parts: &[Vec<u8>]) -> io::Result<()> {
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            pass(BETWEEN_PARTS);
        }
        stream.write_all(part)?;
    }
    Ok(())
}

/// Lets time pass, as a slow origin does.
#[expect(
    clippy::disallowed_methods,
    reason = "slowness is what is asked for, not a condition that is waited for"
)]
pub fn pass(time: Duration) {
    thread::sleep(time);
}
