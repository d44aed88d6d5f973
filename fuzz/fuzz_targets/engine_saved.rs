//! Any bytes as a save file: an error, or an engine whose invariants hold. Never a panic.

#![no_main]

use std::sync::Arc;

use engine::{Access, Database, Engine, Policy, Saved, Settings};
use libfuzzer_sys::fuzz_target;

const NOW_MS: u64 = 1_000_000;

fuzz_target!(|input: &[u8]| {
    let Ok(saved) = Saved::open(input.to_vec()) else { return };
    let saved = Arc::new(saved);
    for shard in 0..saved.shards() {
        let _ = saved.verify(shard);
    }
    let settings = Settings { bytes_max: 4 << 20, policy: Policy::default(), seed: 7, threads: 1 };
    let engine = Engine::restored(&settings, &saved, NOW_MS);
    let key = engine.key(Database::default(), b"key-1");
    engine.lock(&key).get(&key, Access::Use, NOW_MS);
    for number in 0..engine.shards_count() {
        engine.load(number);
    }
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
});
