//! Measures whether two threads on one engine do twice the work of one: `cargo bench -p engine --bench
//! threads`, on two idle cores.
//!
//! The bench has no network and no protocol, so it isolates the contention of a server's workers. Like a
//! worker, each thread processes batches of keys with prefetching, so that it takes locks as often as a
//! worker does.
#![expect(clippy::print_stdout, reason = "a bench prints what it measures")]

mod names;
mod scattered;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use engine::{Access, Database, Engine, Expiry, Key, Policy, Settings};
use names::name;
use scattered::scattered;

const NOW_MS: u64 = 1_000_000;
const KEYS: u64 = 100_000;
const BATCH: usize = 100;
/// Number of keys to prefetch before the first operation.
const AHEAD: usize = 32;
const ROUNDS: usize = 9;

fn main() {
    // Cargo passes this argument to benches, and not to tests.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let batches = if is_bench { 50_000 } else { 50 };
    for work in [Work::Get, Work::Set, Work::Mixed] {
        let (one, other, shared) = (engine(1), engine(1), engine(8));
        let (mut alone, mut apart, mut together, mut in_turn) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let ns = nanoseconds(&[&one], work, batches);
            alone.push(ns);
            apart.push(2.0 * ns / nanoseconds(&[&one, &other], work, batches));
            together.push(2.0 * ns / nanoseconds(&[&shared, &shared], work, batches));
            in_turn.push(2.0 * ns / nanoseconds(&[&one, &one], work, batches));
        }
        println!(
            "{work:?}: {:.1} ns by one thread; two do {:.2} times as many on an engine each, {:.2} times on one \
             engine with many locks, {:.2} times with one",
            median(&mut alone),
            median(&mut apart),
            median(&mut together),
            median(&mut in_turn),
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Get,
    Set,
    /// One operation in ten is a SET.
    Mixed,
}

fn engine(threads: usize) -> Engine {
    let engine = Engine::new(&Settings { bytes_max: 1 << 30, policy: Policy::default(), seed: 7, threads });
    for number in 0..KEYS {
        let name = name(number);
        let key = engine.key(Database::default(), &name);
        engine.lock(&key).set(b"twelve bytes", Expiry::Never, NOW_MS).expect("there is room");
    }
    engine
}

/// Returns nanoseconds per call, with one thread for each engine in `engines`.
fn nanoseconds(engines: &[&Engine], work: Work, batches: usize) -> f64 {
    let begin = Barrier::new(engines.len());
    let run = |thread: usize| {
        begin.wait();
        let started = Instant::now();
        (0..batches).for_each(|batch| play(engines[thread], work, (thread * batches + batch) as u64));
        started.elapsed().as_nanos() as f64
    };
    let longest = thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..engines.len()).map(|thread| scope.spawn(move || run(thread))).collect();
        running.into_iter().map(|one| one.join().expect("it does not panic")).fold(0.0, f64::max)
    });
    longest / (batches * BATCH) as f64
}

fn play(engine: &Engine, work: Work, number: u64) {
    let names: [[u8; 16]; BATCH] =
        std::array::from_fn(|at| name(scattered(number * BATCH as u64 + at as u64, KEYS)));
    let keys: [Key<'_>; BATCH] = std::array::from_fn(|at| engine.key(Database::default(), &names[at]));
    let mut batch = engine.batch();
    for (at, key) in keys.iter().enumerate() {
        if at % AHEAD == 0 {
            let ahead = &keys[at..BATCH.min(at + AHEAD)];
            let mut hints: Vec<_> = ahead.iter().map(|key| batch.prefetch(key)).collect();
            ahead.iter().zip(&mut hints).for_each(|(key, hint)| batch.prefetch_item(key, hint));
        }
        let mut shard = batch.at(key);
        if work == Work::Set || (work == Work::Mixed && at % 10 == 0) {
            shard.set(b"twelve bytes", Expiry::Never, NOW_MS).expect("there is room");
        } else {
            black_box(shard.get(Access::Use, NOW_MS).map(|found| found.value.length()));
        }
    }
}
