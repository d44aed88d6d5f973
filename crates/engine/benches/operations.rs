//! Nanoseconds per operation of one thread, and bytes per key: `cargo bench -p engine`.
#![expect(clippy::print_stdout, reason = "a bench prints what it measures")]

mod names;
mod scattered;

use std::hint::black_box;
use std::time::Instant;

use engine::{Access, Database, Engine, Expiry, Policy, Settings};
use names::name;
use scattered::scattered;

const NOW_MS: u64 = 1_000_000;
const AT_ONCE: u64 = 32;

fn main() {
    for keys in [10_000, 1_000_000, 20_000_000] {
        measure(keys);
    }
}

fn measure(keys: u64) {
    let engine =
        Engine::new(&Settings { bytes_max: 4 << 30, policy: Policy::default(), seed: 7, threads: 1 });
    let empty_bytes = engine.used_bytes();
    let preparer = engine.preparer();
    let preparing = std::thread::spawn(move || preparer.run());
    let value = [b'v'; 16];
    let set = |number: u64| {
        let name = name(number);
        let key = engine.key(Database::default(), &name);
        engine.lock(&key).set(&value, Expiry::Never, NOW_MS).expect("there is room");
    };
    let get = |number: u64| {
        let name = name(number);
        let key = engine.key(Database::default(), &name);
        let mut shard = engine.lock(&key);
        black_box(shard.get(Access::Use, NOW_MS).map(|found| found.value.length()));
    };
    time(&format!("{keys} keys: SET new"), keys, set);
    let bytes = (engine.used_bytes() - empty_bytes) as f64 / keys as f64 - 32.0;
    println!("{keys} keys: {bytes:.1} bytes in addition to key and value");
    time(&format!("{keys} keys: SET again"), 3_000_000, |step| set(scattered(step, keys)));
    time(&format!("{keys} keys: GET"), 5_000_000, |step| get(scattered(step, keys)));
    let begin = Instant::now();
    (0..5_000_000 / AT_ONCE).for_each(|round| get_together(&engine, round * AT_ONCE, keys));
    println!("{keys} keys: GET, {AT_ONCE} at a time: {:.1} ns", begin.elapsed().as_nanos() as f64 / 5e6);
    drop(engine);
    preparing.join().expect("it ends with the engine");
}

/// Gets several keys in one batch, as a worker does with pipelined commands.
fn get_together(engine: &Engine, begin: u64, keys: u64) {
    let names: [_; AT_ONCE as usize] = std::array::from_fn(|step| name(scattered(begin + step as u64, keys)));
    let keys = names.each_ref().map(|name| engine.key(Database::default(), name));
    let mut batch = engine.batch();
    let mut hints = keys.each_ref().map(|key| batch.prefetch(key));
    keys.iter().zip(&mut hints).for_each(|(key, hint)| batch.prefetch_item(key, hint));
    for key in &keys {
        let mut located = batch.at(key);
        let found = located.get(Access::Use, NOW_MS);
        black_box(found.map(|found| found.value.length()));
    }
}

/// Prints the mean, the 99.9th percentile and the maximum, because growth should happen in small steps.
fn time(what: &str, count: u64, mut run: impl FnMut(u64)) {
    let begin = Instant::now();
    let mut before = begin;
    let mut each_ns = Vec::with_capacity(count as usize);
    for number in 0..count {
        run(number);
        let now = Instant::now();
        each_ns.push((now - before).as_nanos().min(u128::from(u32::MAX)) as u32);
        before = now;
    }
    let mean_ns = begin.elapsed().as_nanos() as f64 / count as f64;
    each_ns.sort_unstable();
    let slow_ns = each_ns[each_ns.len() - each_ns.len() / 1000 - 1];
    println!("{what}: {mean_ns:.1} ns, p99.9 {slow_ns} ns, at most {} us", each_ns[each_ns.len() - 1] / 1000);
}
