//! Many clients at the memory limit, half of them slow readers, that know the expected reply to each request.
//!
//! One thread serves all sockets. It knows the requests of each in order, so a reply that is missing, wrong or out of place shows at
//! once. Another thread sends one request after the other and measures.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Kv, raise_open_files_limit};

use crate::LARDER;

/// What the process has before the first key, but its code, which is three times as much where it is not optimised: threads, sockets.
const BASE_BYTES: u64 = 8 << 20;

/// `memory_mib` has to be less than their keys need together, so that it is full all the time.
pub(crate) fn run(clients: usize, duration: Duration, memory_mib: u64) {
    raise_open_files_limit();
    let mut kv = Kv::start(LARDER, &["--maxmemory", &format!("{memory_mib}MiB"), "--workers", "1"]);
    // The one who measures is a client as well.
    let report = Crowd { clients: clients - 1, duration }.visit(kv.address());
    let data = kv.service.data_bytes();
    eprintln!(
        "{clients} clients for {duration:?}: {} replies, p99.9 {:?}, longest {:?}, {} MiB of data",
        report.replies,
        report.p999,
        report.longest,
        data >> 20
    );
    kv.service.assert_runs();
    assert!(data <= (memory_mib << 20) * 11 / 10 + BASE_BYTES, "{} MiB of data", data >> 20);
    assert!(
        kv.ask(&["INFO stats"]).lines().any(|line| is_above_zero(line, "evicted_keys:")),
        "memory was never full"
    );
}

fn is_above_zero(line: &str, field: &str) -> bool {
    line.strip_prefix(field).is_some_and(|number| number.trim() != "0")
}

/// Size of a crowd, and the duration of its visit.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    /// Number of clients; every second one reads slowly.
    clients: usize,
    duration: Duration,
}

/// Result of a visit without a wrong reply: one would have failed the test.
#[derive(Clone, Copy, Debug)]
struct CrowdReport {
    replies: u64,
    /// Latency of the thread that sends one request after the other.
    p999: Duration,
    longest: Duration,
}

struct Member {
    number: usize,
    stream: TcpStream,
    pace: Pace,
    step: u64,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    due: VecDeque<Due>,
}

#[derive(Clone, Copy, PartialEq)]
enum Pace {
    Fast,
    Slow,
}

/// An expected reply.
enum Due {
    Literal(Vec<u8>),
    /// The stored value, or null if it was evicted.
    Stored(Vec<u8>),
}

/// Most replies under way on each connection.
const WINDOW: usize = 24;
/// Bytes that a slow reader reads in a round.
const SLOW_BYTES: usize = 512;
const FAST_BYTES: usize = 64 << 10;
/// Time after the last request within which all replies must arrive.
const PATIENCE: Duration = Duration::from_secs(120);
/// Largest value: large enough for slow readers to fill the buffers of the server.
const VALUE_BYTES: u64 = 4096;

impl Crowd {
    /// Connects the clients, sends requests, checks every reply, and leaves.
    ///
    /// # Panics
    /// Panics if a reply is wrong, missing or out of place, or if the server closes a connection.
    fn visit(&self, address: SocketAddr) -> CrowdReport {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let measuring = scope.spawn(|| latencies(address, &is_over));
            let replies = self.ask(address);
            is_over.store(true, Relaxed);
            let mut latencies = measuring.join().expect("the one who measures is answered");
            latencies.sort_unstable();
            let longest = *latencies.last().expect("it asked at least once");
            CrowdReport { replies, p999: latencies[latencies.len() * 999 / 1000], longest }
        })
    }

    fn ask(&self, address: SocketAddr) -> u64 {
        let mut members: Vec<Member> =
            (0..self.clients).map(|number| Member::connect(number, address)).collect();
        let end = Instant::now() + self.duration;
        let mut replies = 0;
        let mut buffer = vec![0; FAST_BYTES];
        while Instant::now() < end {
            for member in &mut members {
                member.ask();
                replies += member.exchange(&mut buffer);
            }
        }
        for member in &mut members {
            // Slow readers would take hours for the rest.
            member.pace = Pace::Fast;
        }
        let patience_end = Instant::now() + PATIENCE;
        while members.iter().any(|member| !member.due.is_empty()) {
            assert!(Instant::now() < patience_end, "replies are missing");
            replies += members.iter_mut().map(|member| member.exchange(&mut buffer)).sum::<u64>();
        }
        replies
    }
}

impl Member {
    fn connect(number: usize, address: SocketAddr) -> Self {
        let stream =
            TcpStream::connect(address).unwrap_or_else(|error| panic!("client {number} can't come: {error}"));
        stream.set_nonblocking(true).expect("a socket option");
        let pace = if number.is_multiple_of(2) { Pace::Fast } else { Pace::Slow };
        Self { number, stream, pace, step: 0, unsent: Vec::new(), unread: Vec::new(), due: VecDeque::new() }
    }

    /// Adds SET, GET and ECHO for the next key while the window has room.
    fn ask(&mut self) {
        while self.due.len() + 3 <= WINDOW {
            let (number, step) = (self.number, self.step);
            self.step += 1;
            let key = format!("{number}:{}", step % 64);
            let length = (step * 7919 + number as u64 * 104_729) % VALUE_BYTES;
            let value =
                format!("{number}:{step}:").repeat(usize::try_from(length).expect("it is small") / 8 + 1);
            let mark = format!("{number}/{step}");
            let command = |words: &[&str]| {
                let words: String =
                    words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
                words
            };
            self.unsent.extend(format!("*3\r\n{}", command(&["SET", &key, &value])).bytes());
            self.unsent.extend(format!("*2\r\n{}", command(&["GET", &key])).bytes());
            self.unsent.extend(format!("*2\r\n{}", command(&["ECHO", &mark])).bytes());
            self.due.push_back(Due::Literal(b"+OK\r\n".to_vec()));
            self.due.push_back(Due::Stored(command(&[&value]).into_bytes()));
            self.due.push_back(Due::Literal(command(&[&mark]).into_bytes()));
        }
    }

    /// Sends and reads as much as the socket allows. Returns the number of replies received.
    fn exchange(&mut self, buffer: &mut [u8]) -> u64 {
        if let Some(sent) = self.settle(|stream, member| stream.write(&member.unsent)) {
            self.unsent.drain(..sent);
        }
        let room = if self.pace == Pace::Slow { SLOW_BYTES } else { FAST_BYTES };
        let Some(read) = self.settle(|stream, _| stream.read(&mut buffer[..room])) else { return 0 };
        assert!(read > 0, "client {}: the server has closed the connection", self.number);
        self.unread.extend_from_slice(&buffer[..read]);
        self.take()
    }

    /// Returns the result of a call on the socket; `None` if it would block.
    fn settle(&self, call: impl FnOnce(&mut &TcpStream, &Self) -> io::Result<usize>) -> Option<usize> {
        match call(&mut &self.stream, self) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("client {}: {error}", self.number),
        }
    }

    fn take(&mut self) -> u64 {
        let (mut at, mut replies) = (0, 0);
        while let Some(due) = self.due.front() {
            let Some(length) = due.length_of(&self.unread[at..], self.number) else { break };
            at += length;
            replies += 1;
            self.due.pop_front();
        }
        assert!(!self.due.is_empty() || at == self.unread.len(), "client {}: a reply too many", self.number);
        self.unread.drain(..at);
        replies
    }
}

impl Due {
    /// Returns the length of the reply at the start of the buffer; `None` if it is incomplete.
    fn length_of(&self, bytes: &[u8], client: usize) -> Option<usize> {
        let (expected, other): (&[u8], &[u8]) = match self {
            Self::Literal(literal) => (literal, literal),
            Self::Stored(value) => (value, b"$-1\r\n"),
        };
        for reply in [expected, other] {
            let common = reply.len().min(bytes.len());
            if reply[..common] == bytes[..common] {
                return (common == reply.len()).then_some(common);
            }
        }
        let (shown, expected) = (&bytes[..bytes.len().min(80)], &expected[..expected.len().min(80)]);
        panic!("client {client}: {} came, and not {}", shown.escape_ascii(), expected.escape_ascii());
    }
}

/// Sends one GET after the other until the visit is over, and returns the latencies.
fn latencies(address: SocketAddr, is_over: &AtomicBool) -> Vec<Duration> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    let mut latencies = Vec::new();
    let mut reply = [0; 5];
    while !is_over.load(Relaxed) {
        let begin = Instant::now();
        stream.write_all(b"GET nothing\r\n").expect("it reads");
        stream.read_exact(&mut reply).expect("it answers");
        assert_eq!(&reply, b"$-1\r\n");
        latencies.push(begin.elapsed());
    }
    latencies
}
