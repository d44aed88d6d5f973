//! Every way in which memory is used and given back, in so few steps that Miri plays it in minutes (`make miri`).

use std::sync::Arc;

use engine::{Access, Database, Engine, Expiry, Policy, Saved, Settings};

const NOW_MS: u64 = 1_000;
const SETTINGS: Settings =
    Settings { bytes_max: 1 << 20, policy: Policy::AllKeysS3Fifo, seed: 5, threads: 1 };
/// In place; several to a segment; on their own, so that what they fill is full soon.
const LENGTHS: [usize; 4] = [5, 700, 15_000, 100_000];

fn set(engine: &Engine, number: usize, expiry: Expiry) {
    let name = format!("key-{number}");
    let key = engine.key(Database::default(), name.as_bytes());
    let value = vec![number as u8; LENGTHS[number % LENGTHS.len()]];
    let set = match number % 3 {
        0 => engine.lock(&key).set_shared(&key, Arc::new(value), expiry, NOW_MS),
        _ => engine.lock(&key).set(&key, &value, expiry, NOW_MS),
    };
    set.expect("there is room, or something goes for it");
}

/// Whether it is there, and as it was set.
fn is_there(engine: &Engine, number: usize, now_ms: u64) -> bool {
    let name = format!("key-{number}");
    let mut batch = engine.batch();
    let key = engine.key(Database::default(), name.as_bytes());
    let mut hint = batch.prefetch(&key);
    batch.prefetch_item(&key, &mut hint);
    let seen = batch.shard(&key).get_seen(&key, hint, now_ms).map(<[u8]>::to_vec);
    let found = batch.shard(&key).get(&key, Access::Use, now_ms);
    let found = found.map(|found| found.value.bytes().to_vec());
    assert!(seen.is_none() || seen == found);
    if let Some(value) = &found {
        let ends = [value.first(), value.last()].map(|byte| byte.copied());
        assert_eq!((value.len(), ends), (LENGTHS[number % LENGTHS.len()], [Some(number as u8); 2]));
    }
    found.is_some()
}

fn count(engine: &Engine, numbers: usize, now_ms: u64) -> usize {
    (0..numbers).filter(|number| is_there(engine, *number, now_ms)).count()
}

#[track_caller]
fn check(engine: &Engine) {
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
}

fn restored(engine: &Engine, bytes_max: u64) -> Engine {
    let mut bytes = Vec::new();
    engine.export(1, NOW_MS, &|| 0, &mut bytes).expect("a vector takes all");
    let saved = Arc::new(Saved::open(bytes).expect("it was written whole"));
    Engine::restored(&Settings { bytes_max, ..SETTINGS }, &saved, NOW_MS)
}

#[test]
fn all_memory_is_used_and_given_back() {
    const KEYS: usize = 40;
    let engine = Engine::new(&SETTINGS);
    let empty_bytes = engine.used_bytes();
    (0..KEYS).for_each(|number| set(&engine, number, Expiry::Never));
    let left = count(&engine, KEYS, NOW_MS);
    assert!((5..KEYS).contains(&left), "some were evicted: {left}");
    check(&engine);
    // The same number of shards, and more of them.
    for bytes_max in [SETTINGS.bytes_max, 17 << 20] {
        let after = restored(&engine, bytes_max);
        assert!(count(&after, KEYS, NOW_MS) <= left);
        check(&after);
    }
    (0..10).for_each(|number| set(&engine, number, Expiry::At(NOW_MS + 5)));
    engine.expire(0, usize::MAX, NOW_MS + 5);
    assert_eq!(count(&engine, 10, NOW_MS + 5), 0);
    check(&engine);
    drop(engine.clear());
    assert_eq!((count(&engine, KEYS, NOW_MS), engine.used_bytes()), (0, empty_bytes));
}

#[test]
fn an_index_that_grows_finds_every_key() {
    // More than the first buckets take, several times over.
    const KEYS: usize = 3_000;
    let engine = Engine::new(&Settings { bytes_max: 4 << 20, ..SETTINGS });
    let name = |number: usize| format!("{number}");
    for number in 0..KEYS {
        let name = name(number);
        let key = engine.key(Database::default(), name.as_bytes());
        engine.lock(&key).set(&key, b"v", Expiry::Never, NOW_MS).expect("there is room");
    }
    let is_there = |number: &usize| {
        let name = name(*number);
        let key = engine.key(Database::default(), name.as_bytes());
        engine.lock(&key).contains(&key, NOW_MS)
    };
    assert_eq!((0..KEYS).filter(is_there).count(), KEYS);
    for number in (0..KEYS).step_by(2) {
        let name = name(number);
        let key = engine.key(Database::default(), name.as_bytes());
        assert!(engine.lock(&key).remove(&key, NOW_MS));
    }
    assert_eq!((0..KEYS).filter(is_there).count(), KEYS / 2);
    check(&engine);
}
