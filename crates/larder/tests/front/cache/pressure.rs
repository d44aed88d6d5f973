//! Random traffic for far more content than the store can hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, End, Larder, Random, ScriptedOrigin, Setup};

use crate::LARDER;

const CLIENTS: u64 = 4;
const KEYS: usize = 3000;
const ALLOWANCE_BYTES: u64 = 64 << 20;

/// Runs the traffic, and checks that no request fails, every body is right, and resident memory stays within
/// the limit plus 10 % and 64 MiB.
pub(crate) fn run(duration: Duration, memory_bytes: u64) {
    let origin = ScriptedOrigin::start(|exchange| {
        let body = body_of(exchange.request.target());
        let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
        match (body.len() % 2, exchange.request.method()) {
            (0, _) => exchange.respond("200 OK", fields, body),
            (_, "HEAD") => exchange.chunked_head(fields),
            _ => exchange.chunked_head(fields).chunk(body).last_chunk(""),
        };
    });
    let memory = memory_bytes.to_string();
    let larder = Setup::origin(LARDER, &origin.url()).arguments(&["--memory", &memory]).start();
    let stopped = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| {
            let (stopped, asked, address) = (Arc::clone(&stopped), Arc::clone(&asked), larder.address());
            thread::spawn(move || {
                let mut visitor =
                    Visitor { random: Random::new(seed), client: Client::connect(address), address };
                while !stopped.load(Ordering::Acquire) {
                    visitor.ask();
                    asked.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    let peak = watch(&larder, duration, memory_bytes);
    stopped.store(true, Ordering::Release);
    clients.into_iter().for_each(|client| client.join().expect("every answer was right"));
    let evictions = larder.metric("larder_store_evictions_total", &[]);
    assert!(evictions > 0.0, "the traffic was too small to prove anything");
    eprintln!(
        "{} requests, {evictions} evictions, peak of {} MiB at a limit of {} MiB",
        asked.load(Ordering::Acquire),
        peak >> 20,
        memory_bytes >> 20
    );
}

/// Watches the memory for `duration`, and returns the highest value.
fn watch(larder: &Larder, duration: Duration, memory_bytes: u64) -> u64 {
    let limit = memory_bytes + memory_bytes / 10 + ALLOWANCE_BYTES;
    let end = Instant::now() + duration;
    let mut peak = 0;
    while Instant::now() < end {
        let resident = larder.resident_bytes();
        assert!(resident <= limit, "{resident} bytes are resident, {limit} are allowed");
        peak = peak.max(resident);
        thread::park_timeout(Duration::from_millis(20));
    }
    let held = larder.metric("larder_store_bytes", &[]);
    let held_max = larder.metric("larder_store_max_bytes", &[]);
    assert!(held <= held_max, "the store holds {held} bytes of {held_max}");
    peak
}

struct Visitor {
    random: Random,
    client: Client,
    address: std::net::SocketAddr,
}

impl Visitor {
    fn ask(&mut self) {
        // Some keys are requested far more often than others.
        let bound = 1 + self.random.below(KEYS);
        let target = format!("/{}", self.random.below(bound));
        let body = body_of(&target);
        match self.random.below(20) {
            0 => self.ask_for_part(&target, &body),
            1 => self.leave_early(&target),
            2 => assert_eq!(self.client.ask("HEAD", &target, "").status(), 200),
            _ => {
                let response = self.client.get(&target);
                let seen = (response.status(), response.end);
                assert_eq!(seen, (200, End::Complete), "{target}: {:?}", response.head);
                assert!(response.body == body, "{target} has the wrong body: {:?}", response.head);
            }
        }
    }

    fn ask_for_part(&mut self, target: &str, body: &[u8]) {
        let first = self.random.below(body.len());
        let response = self.client.ask("GET", target, &format!("Range: bytes={first}-\r\n"));
        let is_right = match response.status() {
            206 => response.body == body[first..],
            // As long as the complete length is unknown, the response is a 200.
            200 => response.body == body,
            _ => false,
        };
        assert!(is_right, "{target}: {:?}", response.head);
    }

    fn leave_early(&mut self, target: &str) {
        self.client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        self.client = Client::connect(self.address);
    }
}

/// The body of a target: the target repeated, 100 bytes to 300 KB long.
fn body_of(target: &str) -> Vec<u8> {
    let number: u64 = target[1..].parse().expect("targets are numbers");
    let mut random = Random::new(number);
    let size = if random.below(4) == 0 { 300_000 } else { 20_000 };
    let size = 100 + random.below(size);
    let unit = random.bytes(1024);
    unit.iter().copied().cycle().take(size).collect()
}
