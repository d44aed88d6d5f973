//! Many clients at the memory limit, half of them slow readers. Each knows the expected reply to each request.
//!
//! One thread serves all sockets. It knows the requests of each in order, so it detects a missing, wrong or misplaced reply immediately.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use testkit::{Kv, raise_open_files_limit};

use crate::LARDER;

/// Memory for threads and sockets of the process before the first key, without its code, which is three times as large in an unoptimised
/// build.
const BASE_BYTES: u64 = 8 << 20;
const WINDOW: usize = 24;
/// Bytes that a slow reader reads in a round.
const SLOW_BYTES: usize = 512;
const FAST_BYTES: usize = 64 << 10;
/// Time within which memory must be full and, after the last request, all replies must arrive.
const PATIENCE: Duration = Duration::from_secs(120);
/// Largest value: large enough for slow readers to fill the buffers of the server.
const VALUE_BYTES: u64 = 4096;

/// Runs the clients and checks their replies. `memory_mib` must be less than their keys need, so that memory is always full.
pub(crate) fn run(clients: usize, duration: Duration, memory_mib: u64) {
    raise_open_files_limit();
    let mut kv = Kv::start(LARDER, &["--maxmemory", &format!("{memory_mib}MiB"), "--workers", "1"]);
    let replies = visit(&kv, clients, duration);
    let data = kv.service.data_bytes();
    eprintln!("{clients} clients for {duration:?}: {replies} replies, {} MiB of data", data >> 20);
    kv.service.assert_runs();
    assert!(data <= (memory_mib << 20) * 11 / 10 + BASE_BYTES, "{} MiB of data", data >> 20);
}

/// Connects clients, every second of them slow, sends requests and checks every reply. Returns the number of replies.
///
/// # Panics
/// Panics if a reply is wrong, missing or out of place, or if the server closes a connection.
fn visit(kv: &Kv, clients: usize, duration: Duration) -> u64 {
    let mut members: Vec<Member> = (0..clients).map(|number| Member::connect(number, kv.address())).collect();
    let end = Instant::now() + duration;
    let (mut replies, mut buffer) = (0, vec![0; FAST_BYTES]);
    // On a busy machine, it takes longer until memory is full.
    let stats = || kv.ask(&["INFO stats"]);
    while Instant::now() < end || stats().contains("\nevicted_keys:0\r") {
        assert!(Instant::now() < end + PATIENCE, "memory was never full: {}", stats());
        for member in &mut members {
            member.ask();
            replies += member.exchange(&mut buffer);
        }
    }
    // Slow readers would take hours for the rest.
    members.iter_mut().for_each(|member| member.read_bytes = FAST_BYTES);
    let patience_end = Instant::now() + PATIENCE;
    while members.iter().any(|member| !member.due.is_empty()) {
        assert!(Instant::now() < patience_end, "replies are missing");
        replies += members.iter_mut().map(|member| member.exchange(&mut buffer)).sum::<u64>();
    }
    replies
}

struct Member {
    number: usize,
    stream: TcpStream,
    /// Maximum number of bytes in one read.
    read_bytes: usize,
    step: u64,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    /// Two possible replies to each request: the value, or null if it was evicted.
    due: VecDeque<[Vec<u8>; 2]>,
}

impl Member {
    fn connect(number: usize, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("client {number} can't connect: {error}"));
        stream.set_nonblocking(true).expect("a socket option");
        let read_bytes = if number.is_multiple_of(2) { FAST_BYTES } else { SLOW_BYTES };
        let (unsent, unread, due) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { number, stream, read_bytes, step: 0, unsent, unread, due }
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
            let [key, value, mark] = [key, value, mark].map(|word| format!("${}\r\n{word}\r\n", word.len()));
            let requests = ["*3\r\n$3\r\nSET\r\n", &key, &value, "*2\r\n$3\r\nGET\r\n", &key];
            self.unsent.extend(requests.concat().bytes());
            self.unsent.extend(format!("*2\r\n$4\r\nECHO\r\n{mark}").bytes());
            let [value, mark] = [value, mark].map(String::into_bytes);
            self.due.push_back([b"+OK\r\n".to_vec(), b"+OK\r\n".to_vec()]);
            self.due.push_back([value, b"$-1\r\n".to_vec()]);
            self.due.push_back([mark.clone(), mark]);
        }
    }

    /// Sends and reads as much as the socket allows. Returns the number of replies received.
    fn exchange(&mut self, buffer: &mut [u8]) -> u64 {
        let sent = self.settled((&self.stream).write(&self.unsent)).unwrap_or_default();
        self.unsent.drain(..sent);
        let read = (&self.stream).read(&mut buffer[..self.read_bytes]);
        let Some(read) = self.settled(read) else { return 0 };
        assert!(read > 0, "client {}: the server has closed the connection", self.number);
        self.unread.extend_from_slice(&buffer[..read]);
        let (mut at, mut replies) = (0, 0);
        while let Some(due) = self.due.front() {
            let Some(length) = length_of(due, &self.unread[at..], self.number) else { break };
            at += length;
            replies += 1;
            self.due.pop_front();
        }
        assert!(!self.due.is_empty() || at == self.unread.len(), "client {}: an extra reply", self.number);
        self.unread.drain(..at);
        replies
    }

    /// Returns the result of a call on the socket; `None` if it would block.
    fn settled(&self, result: io::Result<usize>) -> Option<usize> {
        match result {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("client {}: {error}", self.number),
        }
    }
}

/// Returns the length of the reply at the start of the buffer; `None` if it is incomplete.
fn length_of(due: &[Vec<u8>; 2], bytes: &[u8], client: usize) -> Option<usize> {
    for reply in due {
        let common = reply.len().min(bytes.len());
        if reply[..common] == bytes[..common] {
            return (common == reply.len()).then_some(common);
        }
    }
    let [shown, expected] = [bytes, &due[0]].map(|bytes| bytes[..bytes.len().min(80)].escape_ascii());
    panic!("client {client}: {shown} in place of {expected}");
}
