//! Keys that are added, change their sizes and are removed, for a given time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Kv, Random, wait};

use crate::LARDER;

const CLIENTS: u64 = 2;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes sent before replies are read.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum deviation of resident memory from the limit.
const TOLERANCE: f64 = 0.1;
/// Sizes of the values that initially fill memory.
const FILL_BYTES: Range<usize> = 12_000..16_000;
/// Maximum memory of a process without keys.
const EMPTY_BYTES_MAX: u64 = 40 << 20;

/// Runs random traffic, and measures the memory of the process repeatedly once it has filled up.
pub(crate) fn run(duration: Duration, bytes_max: u64) {
    let kv = Kv::start(LARDER, &["--maxmemory", &bytes_max.to_string(), "--workers", "2"]);
    let empty = kv.service.resident_bytes();
    assert!(empty < EMPTY_BYTES_MAX, "{empty} bytes without a key");
    // Fills memory with few large values: on a busy machine, the clients alone would take too long.
    fill(&kv, bytes_max as usize / FILL_BYTES.start, FILL_BYTES);
    let mut seen: Vec<u64> = Vec::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Stops the clients even if this thread panics. Otherwise they would run for ever.
        let over = Over(&is_over);
        for seed in 0..CLIENTS {
            let (kv, is_over) = (&kv, &is_over);
            scope.spawn(move || churn(kv, seed, is_over));
        }
        wait::until_true("it is full", || !kv.ask(&["INFO stats"]).contains("\nevicted_keys:0\r"));
        let end = Instant::now() + duration;
        while Instant::now() < end {
            seen.push(kv.service.resident_bytes());
            thread::park_timeout(LOOK_EVERY);
        }
        drop(over);
    });
    seen.sort_unstable();
    let of = |part: usize| seen[(seen.len() - 1) * part / 100];
    let (least, middle, most) = (of(5), of(50), of(100));
    eprintln!(
        "limit {bytes_max}: {least} to {most} bytes, half the time less than {middle}, {empty} without a key"
    );
    // The memory of the empty process doesn't count.
    let limit = bytes_max as f64;
    assert!((most - empty) as f64 <= limit * (1.0 + TOLERANCE), "{most} of {bytes_max}");
    assert!(least as f64 >= limit * (1.0 - TOLERANCE), "{least} of {bytes_max}");
}

/// Stops the clients when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Writes small, medium and large values in turn, to keys that are reused with different sizes.
fn churn(kv: &Kv, seed: u64, is_over: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut connection = Connection::open(kv);
    let kinds = [(1..300, 30_000), (1..300, 30_000), (300..16_000, 1500), (16_000..300_000, 150)];
    while !is_over.load(Relaxed) {
        let (sizes, count) = kinds[random.below(kinds.len())].clone();
        for _ in 0..count {
            let key = random.below(400_000);
            match random.below(20) {
                0 => connection.send(&format!("DEL key-{key}\r\n"), &[]),
                1 => connection.send(&format!("APPEND key-{} 0123456789\r\n", random.below(1000)), &[]),
                _ => connection.set(key, &value(&mut random, &sizes)),
            }
        }
    }
    connection.finish();
}

/// Sets a number of keys to values of these sizes.
pub(crate) fn fill(kv: &Kv, keys: usize, sizes: Range<usize>) {
    let mut random = Random::new(1);
    let mut connection = Connection::open(kv);
    (0..keys).for_each(|key| connection.set(key, &value(&mut random, &sizes)));
    connection.finish();
}

fn value(random: &mut Random, sizes: &Range<usize>) -> Vec<u8> {
    vec![b'v'; sizes.start + random.below(sizes.len())]
}

/// A connection that sends commands in batches and counts replies.
struct Connection {
    stream: TcpStream,
    batch: Vec<u8>,
    unanswered: usize,
}

impl Connection {
    fn open(kv: &Kv) -> Self {
        Self { stream: wait::connect(kv.address()), batch: Vec::new(), unanswered: 0 }
    }

    fn set(&mut self, key: usize, value: &[u8]) {
        let key = format!("key-{key}");
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
        self.batch.extend_from_slice(head.as_bytes());
        self.send("\r\n", value);
    }

    /// Queues a value followed by text.
    fn send(&mut self, text: &str, value: &[u8]) {
        self.batch.extend_from_slice(value);
        self.batch.extend_from_slice(text.as_bytes());
        self.unanswered += 1;
        if self.batch.len() > BATCH_BYTES {
            self.finish();
        }
    }

    /// Sends the batch and reads its replies, each of which is one line.
    fn finish(&mut self) {
        self.stream.write_all(&self.batch).expect("it reads");
        self.batch.clear();
        let mut replies = [0; 64 << 10];
        while self.unanswered > 0 {
            let length = self.stream.read(&mut replies).expect("it answers");
            assert!(length > 0, "it has closed");
            assert!(!replies[..length].contains(&b'-'), "{}", String::from_utf8_lossy(&replies[..length]));
            self.unanswered -= replies[..length].iter().filter(|byte| **byte == b'\n').count();
        }
    }
}
