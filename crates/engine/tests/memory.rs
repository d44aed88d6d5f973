//! Tests all ways in which the engine uses and frees memory, in few enough steps for Miri to run them in
//! minutes (`make miri`).

use std::sync::Arc;

use engine::{Access, Database, Engine, Expiry, Policy, Saved, Settings};

const NOW_MS: u64 = 1_000;
const SETTINGS: Settings =
    Settings { bytes_max: 1 << 20, policy: Policy::AllKeysS3Fifo, seed: 5, threads: 1 };
/// Lengths of values. The last one is stored on the heap, and is large enough to fill the memory soon.
const LENGTHS: [usize; 4] = [5, 700, 15_000, 100_000];

fn set(engine: &Engine, number: usize, expiry: Expiry) {
    let name = format!("key-{number}");
    let key = engine.key(Database::default(), name.as_bytes());
    let value = vec![number as u8; LENGTHS[number % LENGTHS.len()]];
    let set = match number % 3 {
        0 => engine.lock(&key).set_stored(engine.pack(Arc::new(value)), expiry, NOW_MS),
        _ => engine.lock(&key).set(&value, expiry, NOW_MS),
    };
    set.expect("there is room, or something goes for it");
}

/// Returns whether the key exists, and fails if it doesn't have the value that was set.
fn is_there(engine: &Engine, number: usize, now_ms: u64) -> bool {
    let name = format!("key-{number}");
    let mut batch = engine.batch();
    let key = engine.key(Database::default(), name.as_bytes());
    let mut hint = batch.prefetch(&key);
    batch.prefetch_item(&key, &mut hint);
    let seen = batch.at(&key).get_seen(hint, now_ms).map(<[u8]>::to_vec);
    let mut located = batch.at(&key);
    let found = located.get(Access::Use, now_ms);
    let found = found.map(|found| found.value.to_vec());
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
    // The first limit results in the same number of shards, the second in more.
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

/// The count includes the allocator's overhead: up to an eighth, a page and two small allocations.
#[test]
fn what_large_values_give_back_is_counted() {
    let engine = Engine::new(&SETTINGS);
    let large = |count: u64| count * 100_000..count * 119_000 + 1;
    let key = engine.key(Database::default(), b"key");
    let set = |length: usize| {
        let value = vec![7; length];
        engine.lock(&key).set(&value, Expiry::Never, NOW_MS).expect("there is room");
    };
    for (name, length, freed) in [
        ("nothing was there", 100_000, 0),
        ("another was there", 100_000, 1),
        ("a small one comes", 10, 2),
        ("a small one was there", 100_000, 2),
    ] {
        set(length);
        assert!(large(freed).contains(&engine.freed_bytes()), "{name}: {}", engine.freed_bytes());
    }
    assert!(engine.lock(&key).remove(NOW_MS));
    assert!(large(3).contains(&engine.freed_bytes()), "it is removed");
    set(100_000);
    drop(engine.clear());
    assert!(large(4).contains(&engine.freed_bytes()), "all is removed");
    engine.lend(0, 100_000);
    engine.lend(100_000, 0);
    assert!(large(5).contains(&engine.freed_bytes()), "what was lent comes back");
    let before = engine.freed_bytes();
    (0..12).for_each(|number| {
        let name = number.to_string();
        let key = engine.key(Database::default(), name.as_bytes());
        engine.lock(&key).set(&[7; 100_000], Expiry::Never, NOW_MS).expect("something goes for it");
    });
    assert!(engine.freed_bytes() > before, "some were evicted");
}

#[test]
fn an_index_that_grows_finds_every_key() {
    // Several times the number of keys for which the first buckets have room.
    const KEYS: usize = 3_000;
    let engine = Engine::new(&Settings { bytes_max: 4 << 20, ..SETTINGS });
    let name = |number: usize| format!("{number}");
    for number in 0..KEYS {
        let name = name(number);
        let key = engine.key(Database::default(), name.as_bytes());
        engine.lock(&key).set(b"v", Expiry::Never, NOW_MS).expect("there is room");
    }
    let is_there = |number: &usize| {
        let name = name(*number);
        let key = engine.key(Database::default(), name.as_bytes());
        engine.lock(&key).contains(NOW_MS)
    };
    assert_eq!((0..KEYS).filter(is_there).count(), KEYS);
    for number in (0..KEYS).step_by(2) {
        let name = name(number);
        let key = engine.key(Database::default(), name.as_bytes());
        assert!(engine.lock(&key).remove(NOW_MS));
    }
    assert_eq!((0..KEYS).filter(is_there).count(), KEYS / 2);
    check(&engine);
}

/// Client buffers take a sixth of the memory. The engine evicts as many keys as necessary, and none under the
/// policy `noeviction`.
#[test]
fn keys_make_room_for_what_was_lent() {
    const LENT_BYTES: usize = 3 << 20;
    for (policy, is_evicting) in [(Policy::AllKeysS3Fifo, true), (Policy::NoEviction, false)] {
        let engine = Engine::new(&Settings { bytes_max: 17 << 20, policy, ..SETTINGS });
        let mut numbers = (3..).step_by(LENGTHS.len());
        let last = numbers.find(|number| {
            set(&engine, *number, Expiry::Never);
            engine.used_bytes() + (LENT_BYTES / 4) as u64 > engine.bytes_max()
        });
        last.expect("there is an end of memory");
        let keys = || engine.counts().keys.iter().sum::<u64>();
        let before = keys();
        engine.make_up(NOW_MS);
        assert_eq!(keys(), before, "{policy}: nothing was lent");
        engine.lend(0, LENT_BYTES);
        engine.make_up(NOW_MS);
        let left_bytes = engine.bytes_max().checked_sub(engine.used_bytes());
        if is_evicting {
            assert!(keys() < before && left_bytes.is_some_and(|left| left < 120_000), "{left_bytes:?}");
        } else {
            assert_eq!((keys(), left_bytes), (before, None));
        }
        check(&engine);
    }
}
