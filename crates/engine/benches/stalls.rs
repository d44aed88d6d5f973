//! The longest time of a single call while an engine grows from 1 M to 20 M keys, and while 1 M keys expire
//! at the same time: `cargo bench -p engine --bench stalls`.
//!
//! A virtual machine occasionally stalls even without load, so the bench also measures a loop that only reads
//! the clock.
#![expect(clippy::print_stdout, reason = "a bench prints what it measures")]

mod names;

use std::hint::black_box;
use std::time::Instant;

use engine::{Access, Database, Engine, Expiry, Policy, Settings};
use names::name;

const NOW_MS: u64 = 1_000_000;
const KEYS: u64 = 1_000_000;
const GROWN_KEYS: u64 = 20_000_000;
/// Items that a worker checks between two batches of commands.
const EXPIRED_AT_ONCE: usize = 500;
const LONG_NS: u64 = 1_000_000;

fn main() {
    let mut calls = Calls::default();
    (0..50_000_000_u64).for_each(|number| calls.time(|| assert!(black_box(number) < u64::MAX)));
    calls.print("nothing");

    let engine =
        Engine::new(&Settings { bytes_max: 8 << 30, policy: Policy::default(), seed: 7, threads: 1 });
    (0..KEYS).for_each(|number| set(&engine, number, Expiry::Never));
    let mut calls = Calls::default();
    (KEYS..GROWN_KEYS).for_each(|number| calls.time(|| set(&engine, number, Expiry::Never)));
    calls.print("SET while 1 M keys become 20 M");
    drop(engine);

    let engine =
        Engine::new(&Settings { bytes_max: 8 << 30, policy: Policy::default(), seed: 7, threads: 1 });
    (0..KEYS).for_each(|number| set(&engine, number, Expiry::Never));
    (KEYS..2 * KEYS).for_each(|number| set(&engine, number, Expiry::At(NOW_MS + 1)));
    let (mut gets, mut steps) = (Calls::default(), Calls::default());
    let mut shard = Some(0);
    for number in 0..5 * KEYS {
        if number % 100 == 0 {
            steps.time(|| shard = engine.expire(shard.unwrap_or(0), EXPIRED_AT_ONCE, NOW_MS + 2));
        }
        gets.time(|| get(&engine, number % KEYS, NOW_MS + 2));
    }
    steps.print("a step of expiring 1 M keys");
    gets.print("GET meanwhile");
    println!("{} keys expired", engine.counts().expired);
}

/// A histogram of call times, in buckets of a hundredth of a decade.
struct Calls {
    counts: Vec<u64>,
    longest_ns: u64,
    long: u64,
    begin: Instant,
}

impl Default for Calls {
    fn default() -> Self {
        Self { counts: vec![0; 1200], longest_ns: 0, long: 0, begin: Instant::now() }
    }
}

impl Calls {
    fn time(&mut self, call: impl FnOnce()) {
        let begin = Instant::now();
        call();
        let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts[((ns.max(1) as f64).log10() * 100.0) as usize] += 1;
        self.longest_ns = self.longest_ns.max(ns);
        self.long += u64::from(ns > LONG_NS);
    }

    fn print(&self, what: &str) {
        let seconds = self.begin.elapsed().as_secs_f64();
        println!(
            "{what}: p50 {:.2}, p99.9 {:.2}, p99.99 {:.2}, longest {:.0} µs; {:.1} above 1 ms in each of {seconds:.1} s",
            self.quantile_us(0.5),
            self.quantile_us(0.999),
            self.quantile_us(0.9999),
            self.longest_ns as f64 / 1000.0,
            self.long as f64 / seconds,
        );
    }

    fn quantile_us(&self, part: f64) -> f64 {
        let all: u64 = self.counts.iter().sum();
        let mut seen = 0;
        let class = self.counts.iter().position(|count| {
            seen += count;
            seen as f64 >= all as f64 * part
        });
        10_f64.powf((class.unwrap_or(0) + 1) as f64 / 100.0) / 1000.0
    }
}

fn set(engine: &Engine, number: u64, expiry: Expiry) {
    let name = name(number);
    let key = engine.key(Database::default(), &name);
    engine.lock(&key).set(b"sixteen bytes ..", expiry, NOW_MS).expect("there is room");
}

fn get(engine: &Engine, number: u64, now_ms: u64) {
    let name = name(number);
    let key = engine.key(Database::default(), &name);
    black_box(engine.lock(&key).get(Access::Use, now_ms).map(|found| found.value.length()));
}
