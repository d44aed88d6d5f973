//! Several threads on one engine under randomised schedules: the scheduler chooses the next thread at each
//! lock and each atomic operation.
//!
//! `SCHEDULES=20000 cargo test -p engine --features shuttle --test schedules` runs more schedules. A failure
//! prints its schedule, which `shuttle::replay` repeats.

use std::sync::Arc;

use engine::{Access, Database, Engine, Expiry, Key, OutOfMemory, Policy, Removals, Saved, Settings};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;

const BYTES_MAX: u64 = 17 << 20;
const NOW_MS: u64 = 1_000_000;

/// Runs `body` under as many schedules as the environment variable `SCHEDULES` sets.
fn try_orders(body: impl Fn() + Send + Sync + 'static) {
    let orders = std::env::var("SCHEDULES").ok().and_then(|orders| orders.parse().ok()).unwrap_or(100);
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    // The scheduler treats every atomic operation as sequentially consistent, so it doesn't test weaker
    // memory orderings.
    config.silence_warnings = true;
    // The random scheduler chooses a thread at every step. The PCT scheduler switches threads only at a few
    // random points.
    let body = Arc::new(body);
    let again = Arc::clone(&body);
    shuttle::Runner::new(RandomScheduler::new(orders), config.clone()).run(move || again());
    shuttle::Runner::new(PctScheduler::new(CHANGES, orders), config).run(move || body());
}

const CHANGES: usize = 3;

/// An engine with two shards, each with its own lock.
fn engine(policy: Policy) -> Arc<Engine> {
    Arc::new(Engine::new(&Settings { bytes_max: BYTES_MAX, policy, seed: 3, threads: 2 }))
}

fn key<'a>(engine: &Engine, name: &'a str) -> Key<'a> {
    engine.key(Database::default(), name.as_bytes())
}

fn number(engine: &Engine, name: &str) -> Option<u64> {
    let key = key(engine, name);
    let mut shard = engine.lock(&key);
    let found = shard.get(Access::Use, NOW_MS)?;
    Some(u64::from_le_bytes(found.value.to_vec()[..8].try_into().expect("a number of eight bytes")))
}

/// Returns a value of `bytes` bytes that begins with a number.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

#[track_caller]
fn check(engine: &Engine) {
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
}

fn together(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

#[test]
fn what_is_read_and_written_under_one_guard_is_never_lost() {
    const TIMES: u64 = 6;
    try_orders(|| {
        let engine = engine(Policy::AllKeysS3Fifo);
        let count = |bytes: usize| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for time in 0..TIMES {
                    let key = key(&engine, if time % 2 == 0 { "one" } else { "other" });
                    let mut shard = engine.lock(&key);
                    let found = shard.get(Access::Use, NOW_MS);
                    let before = found.map_or(0, |found| found.value.to_vec()[0]);
                    let value = value(u64::from(before) + 1, bytes);
                    shard.set(&value, Expiry::Keep, NOW_MS).expect("there is room");
                }
            })
        };
        let around = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                engine.expire(0, 100, NOW_MS);
                engine.set_policy(Policy::AllKeysLru);
                drop(engine.take_removed());
                engine.lend(0, 1000);
                engine.lend(1000, 0);
                engine.expire(0, 1, NOW_MS);
            })
        };
        together(vec![count(8), count(8), count(20_000), around]);
        let total = ["one", "other"].map(|name| number(&engine, name).unwrap_or_default());
        assert_eq!(total.iter().sum::<u64>(), 3 * TIMES);
        check(&engine);
    });
}

/// Two clients and a transaction change the limit.
#[test]
fn a_limit_that_is_changed_by_several_is_the_last_one() {
    try_orders(|| {
        let engine = engine(Policy::AllKeysS3Fifo);
        let before = engine.used_bytes();
        let set = |bytes_max: u64| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.set_bytes_max(bytes_max))
        };
        let stretch = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || drop(engine.stretch(2, 1 << 20)))
        };
        // With the larger limit, the engine keeps memory ready, which counts as used.
        together(vec![set(BYTES_MAX), set(256 << 20), stretch]);
        let is_small = engine.bytes_max() == BYTES_MAX;
        assert!(is_small || engine.bytes_max() == 256 << 20, "{}", engine.bytes_max());
        assert_eq!(engine.used_bytes() == before, is_small, "{}", engine.used_bytes());
    });
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Sets all keys to the same number, and repeats this with other numbers.
fn set_together(engine: &Engine, first: u64) {
    for number in first..first + 3 {
        let value = value(number, 8);
        let mut entries = NAMES.map(|name| (key(engine, name), &value[..], Expiry::Never));
        if number % 2 == 0 {
            entries.reverse();
        }
        let mut locked = engine.lock_all(entries.iter().map(|(key, ..)| *key));
        locked.set_all(&entries, NOW_MS).expect("there is room");
    }
}

fn assert_same(engine: &Engine) {
    let keys = NAMES.map(|name| key(engine, name));
    let mut locked = engine.lock_all(keys);
    let values = keys.map(|key| {
        let mut located = locked.at(&key);
        let found = located.get(Access::Use, NOW_MS);
        found.map(|found| found.value.to_vec())
    });
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
}

/// Visits one shard after the other, and holds one lock at a time.
fn go_through(engine: &Engine) {
    let mut batch = engine.batch();
    for name in NAMES.iter().chain(NAMES.iter().rev()) {
        let key = key(engine, name);
        batch.prefetch(&key);
        batch.at(&key).get(Access::Use, NOW_MS);
    }
}

#[test]
fn nobody_sees_half_of_what_is_set_together() {
    try_orders(|| {
        let engine = engine(Policy::AllKeysS3Fifo);
        let spawn = |work: fn(&Engine)| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || work(&engine))
        };
        together(vec![
            spawn(|engine| set_together(engine, 0)),
            spawn(|engine| set_together(engine, 10)),
            spawn(|engine| (0..4).for_each(|_| assert_same(engine))),
            spawn(go_through),
        ]);
        let keys: Vec<u64> = engine.shards().map(|shard| shard.counts().keys[0]).collect();
        assert!(keys.iter().all(|keys| *keys > 0), "each shard has some: {keys:?}");
        check(&engine);
    });
}

#[test]
fn memory_stays_within_its_limit_while_all_fill_it() {
    try_orders(|| {
        let engine = engine(Policy::AllKeysS3Fifo);
        engine.collect_removals(Removals::Collected);
        let fill = |who: usize| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for number in 0..12_usize {
                    let name = format!("{who}-{number}");
                    let key = key(&engine, &name);
                    let value = value(0, if number % 3 == 0 { 2_000_000 } else { 15_000 });
                    let expiry = Expiry::At(NOW_MS + 10);
                    let set = || engine.lock(&key).set(&value, expiry, NOW_MS);
                    let _ = engine.with_room(&key, NOW_MS, set);
                }
            })
        };
        let around = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                engine.expire(0, 10, NOW_MS + 10);
                engine.set_bytes_max(BYTES_MAX / 2);
                engine.make_up(NOW_MS);
                drop(engine.take_removed());
                engine.set_bytes_max(BYTES_MAX);
                drop(engine.clear());
                engine.expire(0, 1000, NOW_MS + 10);
            })
        };
        together(vec![fill(0), fill(1), around]);
        check(&engine);
        // Maximum usage that the engine takes regardless of the limit, for a segment being emptied and for
        // tables.
        assert!(engine.used_bytes() <= BYTES_MAX + (1 << 20), "{}", engine.used_bytes());
        drop(engine.clear());
        let rest = engine.used_bytes();
        drop(engine.clear());
        assert_eq!(engine.used_bytes(), rest, "all was given back the first time");
    });
}

#[test]
fn whoever_makes_chunks_ready_ends_with_the_engine() {
    try_orders(|| {
        // The limit is large enough for huge pages.
        let settings = Settings { bytes_max: 1 << 30, policy: Policy::AllKeysS3Fifo, seed: 3, threads: 2 };
        let engine = Arc::new(Engine::new(&settings));
        let preparer = engine.preparer();
        let preparing = thread::spawn(move || preparer.run());
        let fill = |who: usize| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for number in 0..4 {
                    let name = format!("{who}-{number}");
                    let key = key(&engine, &name);
                    engine.lock(&key).set(&value(0, 100), Expiry::Never, NOW_MS).expect("there is room");
                }
                drop(engine.clear());
            })
        };
        together(vec![fill(0), fill(1)]);
        check(&engine);
        drop(engine);
        together(vec![preparing]);
    });
}

const SAVED_KEYS: u64 = 40;

fn saved() -> Arc<Saved> {
    let before = engine(Policy::AllKeysS3Fifo);
    for at in 0..SAVED_KEYS {
        let name = format!("key-{at}");
        let key = key(&before, &name);
        let value = value(at, if at % 10 == 0 { 20_000 } else { 100 });
        before.lock(&key).set(&value, Expiry::Never, NOW_MS).expect("there is room");
    }
    let mut bytes = Vec::new();
    before.export(1, NOW_MS, &|| 0, &mut bytes).expect("a vector takes all");
    Arc::new(Saved::open(bytes).expect("it was written whole"))
}

#[test]
fn what_is_written_while_shards_are_loaded_stays() {
    try_orders(|| {
        let saved = saved();
        let settings = Settings { bytes_max: BYTES_MAX, policy: Policy::AllKeysS3Fifo, seed: 3, threads: 2 };
        let engine = Arc::new(Engine::restored(&settings, &saved, NOW_MS));
        let load = |reversed: bool| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let last = engine.shards_count() - 1;
                (0..=last).for_each(|number| engine.load(if reversed { last - number } else { number }));
            })
        };
        let write = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for at in 0..4 {
                    let name = format!("key-{at}");
                    let key = key(&engine, &name);
                    engine.lock(&key).set(&value(at + 100, 8), Expiry::Never, NOW_MS).expect("there is room");
                    assert_eq!(number(&engine, &name), Some(at + 100));
                }
                let key = key(&engine, "key-5");
                assert!(engine.lock(&key).remove(NOW_MS));
            })
        };
        together(vec![load(false), load(true), write]);
        for at in 0..SAVED_KEYS {
            let expected = match at {
                0..=3 => Some(at + 100),
                5 => None,
                _ => Some(at),
            };
            assert_eq!(number(&engine, &format!("key-{at}")), expected, "key-{at}");
        }
        assert_eq!(engine.counts().keys.iter().sum::<u64>(), SAVED_KEYS - 1);
        check(&engine);
    });
}

/// All threads can use cleared memory, whichever thread frees it, even if they need it while it is being
/// freed.
#[test]
fn what_was_cleared_is_room_for_all() {
    try_orders(|| {
        let engine = engine(Policy::NoEviction);
        let set = |engine: &Engine, name: &str| {
            let key = key(engine, name);
            engine.with_room(&key, NOW_MS, || {
                engine.lock(&key).set(&value(0, 2_000_000), Expiry::Never, NOW_MS)
            })
        };
        let is_full = (0..20).any(|number| set(&engine, &format!("before-{number}")).is_err());
        assert!(is_full);
        let mut cleared = engine.clear();
        let write = |who: usize| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                (0..3).for_each(|number| set(&engine, &format!("{who}-{number}")).expect("all was cleared"));
            })
        };
        let free = thread::spawn(move || while cleared.free_some() {});
        together(vec![write(0), write(1), free]);
        check(&engine);
    });
}

#[test]
fn what_lives_all_the_time_is_in_the_file() {
    try_orders(|| {
        let engine = engine(Policy::AllKeysS3Fifo);
        let names: Vec<String> = (0..20).map(|at| format!("key-{at}")).collect();
        let set = |at: usize, number: u64| {
            let key = key(&engine, &names[at]);
            engine.lock(&key).set(&value(number, 100), Expiry::Never, NOW_MS).expect("there is room");
        };
        (0..names.len()).for_each(|at| set(at, 0));
        engine.collect_removals(Removals::Collected);
        let change = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for at in [0, 1, 0, 19, 19] {
                    let name = format!("key-{at}");
                    let key = key(&engine, &name);
                    let before = number(&engine, &name).expect("it lives");
                    let set = engine.lock(&key).set(&value(before + 1, 100), Expiry::Never, NOW_MS);
                    set.expect("there is room");
                }
                let mut outcomes = [Err(OutOfMemory), Ok(())].into_iter();
                let write = || outcomes.next().expect("it is not asked again");
                engine
                    .with_room(&key(&engine, "key-0"), NOW_MS, write)
                    .expect("another shard gave something");
            })
        };
        let mut bytes = Vec::new();
        engine.export(1, NOW_MS, &|| 0, &mut bytes).expect("a vector takes all");
        together(vec![change]);
        let evicted: Vec<_> = engine.take_removed().into_iter().map(|removal| removal.key).collect();
        let saved = Arc::new(Saved::open(bytes).expect("it was written whole"));
        let settings = Settings { bytes_max: BYTES_MAX, policy: Policy::AllKeysS3Fifo, seed: 3, threads: 2 };
        let after = Engine::restored(&settings, &saved, NOW_MS);
        for name in names.iter().filter(|name| !evicted.contains(&name.as_bytes().to_vec())) {
            let now = number(&engine, name).expect("it lives");
            let then = number(&after, name).unwrap_or_else(|| panic!("{name} is missing"));
            assert!(then <= now, "{name}: {then} of {now}");
        }
        check(&after);
    });
}
