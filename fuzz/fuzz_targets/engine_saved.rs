//! Loads any bytes as a save file, or a valid save file with some bytes changed. The result is an error or an engine
//! whose invariants hold, never a panic. Checksums are corrected after every change; otherwise they would reject
//! every change.

#![no_main]

use std::sync::{Arc, LazyLock};

use engine::{Access, Database, Engine, Expiry, Policy, Saved, Settings};
use libfuzzer_sys::fuzz_target;

const NOW_MS: u64 = 1_000_000;
/// Limits for one shard and for two.
const BYTES_MAX: [u64; 2] = [4 << 20, 17 << 20];

fuzz_target!(|input: &[u8]| {
    let Some((&first, input)) = input.split_first() else { return };
    let bytes = if first & 1 == 0 { input.to_vec() } else { changed(input) };
    let Ok(saved) = Saved::open(bytes) else { return };
    let saved = Arc::new(saved);
    for shard in 0..saved.shards() {
        let _ = saved.verify(shard);
    }
    let bytes_max = BYTES_MAX[usize::from(first >> 1 & 1)];
    let policy = Policy::ALL[usize::from(first >> 2) % Policy::ALL.len()];
    let settings = Settings { bytes_max, policy, seed: 7, threads: 1 };
    let engine = Engine::restored(&settings, &saved, NOW_MS);
    let key = engine.key(Database::default(), b"key-1");
    engine.lock(&key).get(Access::Use, NOW_MS);
    for number in 0..engine.shards_count() {
        engine.load(number);
    }
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
    exercise(&engine);
});

/// A file as an engine writes it: some keys with an expiry, some large values, two databases.
static SAMPLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let settings = Settings { bytes_max: 17 << 20, policy: Policy::default(), seed: 7, threads: 1 };
    let engine = Engine::new(&settings);
    for number in 0..24_usize {
        let name = format!("key-{number}");
        let database = Database::new(number % 2).expect("it is below 16");
        let key = engine.key(database, name.as_bytes());
        let value = vec![number as u8; if number % 8 == 7 { 17_000 } else { number }];
        let expiry = if number % 3 == 0 { Expiry::At(NOW_MS + 1) } else { Expiry::Never };
        engine.lock(&key).set(&value, expiry, NOW_MS).expect("there is room");
    }
    let mut bytes = Vec::new();
    engine.export(5, NOW_MS, &|| 0, &mut bytes).expect("a vector takes all");
    bytes
});

/// Changes bytes of a file. Three bytes of the input are a number, which selects the offset, and the new byte. Even
/// numbers select an offset near the beginning of the first shard, which contains lengths; odd numbers select any
/// offset.
fn changed(input: &[u8]) -> Vec<u8> {
    let mut bytes = SAMPLE.clone();
    for &[low, high, value] in input.as_chunks::<3>().0 {
        let number = usize::from(u16::from_le_bytes([low, high]));
        let at = if number % 2 == 0 { number / 2 % 2048 } else { number / 2 * 7919 };
        let length = bytes.len();
        // Some offsets count from the end, where the table and the trailer are.
        let at = if number & 2 == 0 { at % length } else { length - 1 - at % length };
        bytes[at] = value;
    }
    bytes
}

/// Uses the loaded data, and removes it.
fn exercise(engine: &Engine) {
    for number in 0..30 {
        let name = format!("key-{number}");
        let key = engine.key(Database::new(number % 2).expect("it is below 16"), name.as_bytes());
        let mut shard = engine.lock(&key);
        shard.get(Access::Use, NOW_MS);
        let _ = shard.set(&[1; 900], Expiry::Keep, NOW_MS);
    }
    engine.shards().for_each(|mut shard| {
        shard.expire(usize::MAX, NOW_MS + 10);
    });
    // The limit leaves room for the initial tables.
    engine.set_bytes_max(1 << 20);
    let key = engine.key(Database::default(), b"another");
    let _ = engine.lock(&key).set(&[1; 900], Expiry::Never, NOW_MS);
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
}
