//! Tests an engine whose memory is full, with all kinds of keys, under every policy, with one shard and with
//! many. Other tests use keys that are chosen to collide.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use engine::{Access, Counts, Database, Edited, Engine, Expiry, OutOfMemory, Policy, Settings, Stored};

const NOW_MS: u64 = 1_000;
const LATER: Expiry = Expiry::At(1_000_000);
/// Maximum usage that the engine takes regardless of the limit, for segments being emptied and growing
/// tables.
const LENT_BYTES: u64 = 1 << 20;
/// Expected number of shards, with the limit in bytes and the number of threads.
const SIZES: [(usize, u64, usize); 4] =
    [(1, 4 << 20, 1), (2, 16 << 20, 1), (8, 64 << 20, 1), (16, 128 << 20, 4)];

/// The keys that have an expiry.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expiring {
    None,
    All,
    Half,
}

fn engine(policy: Policy, bytes_max: u64, threads: usize) -> Engine {
    Engine::new(&Settings { bytes_max, policy, seed: 5, threads })
}

fn is_volatile(policy: Policy) -> bool {
    policy.name().starts_with("volatile")
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().sum()
}

/// Sets a key. The number of attempts is bounded.
fn set(engine: &Engine, number: usize, value: &[u8], expiry: Expiry) -> Result<(), OutOfMemory> {
    let name = number.to_be_bytes();
    let key = engine.key(Database::default(), &name);
    let attempts = Cell::new(0);
    let set = engine.with_room(&key, NOW_MS, || {
        attempts.set(attempts.get() + 1);
        engine.lock(&key).set(value, expiry, NOW_MS)
    });
    let attempts_max = engine.bytes_max() / (256 << 10) + 2;
    assert!(attempts.get() <= attempts_max, "{} attempts", attempts.get());
    set
}

fn check_invariants(engine: &Engine) {
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
}

/// Writes a quarter more than fits, and returns the refused keys.
fn overfill(engine: &Engine, value_bytes: usize, expiring: Expiring) -> Vec<usize> {
    let value = vec![b'v'; value_bytes];
    let count = engine.bytes_max() as usize / (value_bytes + 30) * 5 / 4;
    let expiry = |number: usize| match expiring {
        Expiring::None => Expiry::Never,
        Expiring::All => LATER,
        Expiring::Half if number.is_multiple_of(2) => LATER,
        Expiring::Half => Expiry::Never,
    };
    (0..count).filter(|number| set(engine, *number, &value, expiry(*number)).is_err()).collect()
}

fn check_full(
    policy: Policy,
    (shards, bytes_max, threads): (usize, u64, usize),
    value_bytes: usize,
    expiring: Expiring,
) {
    let case = format!("{policy}, {shards} shards, values of {value_bytes}, expiring: {expiring:?}");
    let engine = engine(policy, bytes_max, threads);
    assert_eq!(engine.shards_count(), shards, "{case}");
    let refused = overfill(&engine, value_bytes, expiring);
    let counts: Counts = engine.counts();
    let is_full = policy == Policy::NoEviction || is_volatile(policy) && expiring == Expiring::None;
    if is_full {
        assert!(!refused.is_empty() && counts.evicted == 0, "{case}: {} refused, {counts:?}", refused.len());
    } else {
        assert!(counts.evicted > 0, "{case}");
        // If half of the keys have an expiry, these are evicted first, and the other half needs more than
        // half of the room.
        assert!(
            refused.is_empty() || is_volatile(policy) && expiring == Expiring::Half,
            "{case}: {}",
            refused.len()
        );
    }
    let used_bytes = engine.used_bytes();
    assert!(used_bytes <= bytes_max + LENT_BYTES, "{case}: {used_bytes} of {bytes_max}");
    assert!(used_bytes >= bytes_max / 10 * 8, "{case}: only {used_bytes} of {bytes_max}");
    check_invariants(&engine);
}

fn check_all_full(value_bytes: usize, sizes: &[(usize, u64, usize)]) {
    for policy in Policy::ALL {
        for size in sizes {
            for expiring in [Expiring::None, Expiring::All, Expiring::Half] {
                check_full(policy, *size, value_bytes, expiring);
            }
        }
    }
}

#[test]
fn small_values_are_set_or_refused_and_every_write_ends() {
    check_all_full(400, &SIZES[..2]);
}

#[test]
fn values_of_ten_thousand_bytes_are_set_or_refused_and_every_write_ends() {
    check_all_full(10_000, &SIZES[..3]);
}

#[test]
fn large_values_are_set_or_refused_and_every_write_ends() {
    check_all_full(100_000, &SIZES);
}

/// If a key is evicted while its value is being sent, the value stays in memory until it is sent, but no
/// longer counts as the engine's memory.
#[test]
fn values_that_are_being_sent_are_evicted_like_others() {
    for (_, bytes_max, threads) in SIZES {
        let engine = engine(Policy::AllKeysLru, bytes_max, threads);
        let mut sent: Vec<Stored> = Vec::new();
        for number in 0..bytes_max as usize / 80_000 {
            set(&engine, number, &[7; 100_000], Expiry::Never).expect("something is evicted");
            let name = number.to_be_bytes();
            let key = engine.key(Database::default(), &name);
            let mut located = engine.lock(&key);
            let Some(found) = located.get(Access::Use, NOW_MS) else { continue };
            let engine::Value::Large(stored) = found.value else { panic!("it is large") };
            sent.push(stored.clone());
        }
        assert!(sent.iter().all(|stored| stored.plain()[..] == [7; 100_000]));
        check_invariants(&engine);
    }
}

/// Every key accepts a new expiry, and keeps its value. Adding expiries takes a bounded amount of memory.
#[test]
fn an_expiry_needs_no_room() {
    // The large engine gets large values, because a test with many small ones would take too long.
    for policy in Policy::ALL {
        check_expiries(&engine(policy, SIZES[0].1, SIZES[0].2), 400);
        check_expiries(&engine(policy, SIZES[3].1, SIZES[3].2), 100_000);
    }
    for policy in [Policy::NoEviction, Policy::AllKeysS3Fifo, Policy::AllKeysLru, Policy::VolatileTtl] {
        check_expiries(&engine(policy, SIZES[1].1, SIZES[1].2), 4_000);
        check_expiries(&engine(policy, SIZES[2].1, SIZES[2].2), 14_000);
    }
}

fn check_expiries(engine: &Engine, value_bytes: usize) {
    let value = vec![b'v'; value_bytes];
    let mut numbers = 0..;
    // Writes keys until memory is full: until a write is refused or evicts a key.
    numbers.find(|number| {
        let is_set = set(engine, *number, &value, Expiry::Never).is_ok();
        !is_set || engine.counts().evicted > 0
    });
    let keys = sum(&engine.counts().keys);
    let limit = engine.bytes_max() + LENT_BYTES + (engine.shards_count() << 18) as u64 + 8 * keys;
    for expiry in [LATER, Expiry::At(5_000_000), Expiry::Never] {
        // The order of these writes differs from the order in which the keys were set.
        for number in (0..numbers.start).map(|at| at * 7919 % numbers.start) {
            let name = number.to_be_bytes();
            let key = engine.key(Database::default(), &name);
            let mut located = engine.lock(&key);
            if !located.contains(NOW_MS) {
                continue;
            }
            assert_eq!(located.set_expiry(expiry, NOW_MS), Ok(true), "{}", engine.policy());
            drop(located);
            let used_bytes = engine.used_bytes();
            assert!(used_bytes <= limit, "{}: {used_bytes} above {limit}", engine.policy());
        }
    }
    let evicted = engine.counts().evicted;
    assert!(engine.policy() != Policy::NoEviction || evicted == 0);
    assert!(sum(&engine.counts().keys) >= keys * 3 / 4, "{}: {evicted} of {keys} evicted", engine.policy());
    check_invariants(engine);
}

/// Cleared memory is available for writes, whether or not it has been freed yet.
#[test]
fn what_was_cleared_is_room_at_once() {
    for policy in Policy::ALL {
        for (_, bytes_max, threads) in SIZES {
            for value_bytes in [10_000, 100_000] {
                let engine = engine(policy, bytes_max, threads);
                overfill(&engine, value_bytes, Expiring::All);
                let evicted = engine.counts().evicted;
                let cleared = engine.clear();
                assert!(engine.could_hold(bytes_max as usize / 10 * 8), "{policy}");
                let value = vec![b'w'; value_bytes];
                let count = bytes_max as usize / (value_bytes + 30) / 2;
                for number in 0..count {
                    set(&engine, number, &value, Expiry::Never).expect("half of the memory is free");
                    assert!(engine.used_bytes() <= bytes_max + LENT_BYTES, "{policy}");
                }
                let counts = engine.counts();
                assert_eq!((sum(&counts.keys), counts.evicted), (count as u64, evicted), "{policy}");
                drop(cleared);
                check_invariants(&engine);
            }
        }
    }
}

/// Growing a value copies each byte only a few times, however long the value becomes. The engine counts the
/// memory of the value.
#[test]
fn a_value_grows_where_it_lies() {
    let engine = engine(Policy::default(), 64 << 20, 1);
    let key = engine.key(Database::default(), b"key");
    let mut value = vec![0; 100_000];
    engine.lock(&key).set(&value, LATER, NOW_MS).expect("there is room");
    let mut copies = 0;
    let mut place = None;
    for number in 0..30_000_u32 {
        let more = number.to_be_bytes().repeat(16);
        value.extend_from_slice(&more);
        let append = |value: &mut Vec<u8>| value.extend_from_slice(&more);
        let edited = engine.lock(&key).edit(value.len(), append, NOW_MS);
        assert_eq!(edited, Ok(Edited::Yes));
        let mut located = engine.lock(&key);
        let found = located.get(Access::Use, NOW_MS).expect("it is there");
        let bytes = found.value.plain().expect("it is not packed");
        copies += usize::from(place.replace(bytes.as_ptr()) != Some(bytes.as_ptr()));
    }
    let mut located = engine.lock(&key);
    let found = located.get(Access::Use, NOW_MS).expect("it is there");
    assert!(found.value.plain() == Some(&value[..]) && found.expires_at_ms == Some(1_000_000));
    assert!(copies < 20, "{copies} copies");
    let taken = located.memory_bytes(NOW_MS).expect("it is there");
    assert!((value.len()..value.len() * 3 / 2).contains(&taken), "{taken} for {}", value.len());
    drop(located);
    check_invariants(&engine);
    // No change in place is possible for a value that has another owner, is small or doesn't exist.
    let mut located = engine.lock(&key);
    let found = located.get(Access::Use, NOW_MS).expect("it is there");
    let engine::Value::Large(sent) = found.value else { panic!("it is large") };
    let sent = sent.clone();
    assert_eq!(located.edit(value.len(), |_| panic!("it is being sent"), NOW_MS), Ok(Edited::No));
    drop(sent);
    located.set(b"short", Expiry::Never, NOW_MS).expect("there is room");
    assert_eq!(located.edit(6, |_| panic!("it is short"), NOW_MS), Ok(Edited::No));
    located.remove(NOW_MS);
    assert_eq!(located.edit(1, |_| panic!("there is none"), NOW_MS), Ok(Edited::No));
}

/// The engine may have to evict the growing value itself, and the value can't become larger than the memory
/// limit.
#[test]
fn a_value_grows_up_to_what_there_is() {
    for policy in Policy::ALL {
        let engine = engine(policy, 16 << 20, 1);
        let key = engine.key(Database::default(), b"key");
        engine.lock(&key).set(&vec![0; 1 << 20], LATER, NOW_MS).expect("there is room");
        let mut length = 1 << 20;
        let end = (0..100).find_map(|_| {
            length += 1 << 20;
            let edited = engine.lock(&key).edit(length, |value| value.resize(length, 1), NOW_MS);
            assert!(engine.used_bytes() <= engine.bytes_max() + LENT_BYTES, "{policy}");
            check_invariants(&engine);
            (edited != Ok(Edited::Yes)).then_some(edited)
        });
        assert!(length > 5 << 20 && end.is_some(), "{policy}: {length}");
    }
}

/// Keys that collided under foldhash for every seed: a factor becomes zero, which cancels all preceding
/// bytes.
fn colliding() -> impl Iterator<Item = Vec<u8>> {
    const SHORT: u64 = 0x3f84_d5b5_b547_0917;
    const LONG: u64 = 0xc0ac_29b7_c97c_50dd;
    let short = (0..10_000_u64).map(|number| [number.to_be_bytes(), SHORT.to_ne_bytes()].concat());
    let long = (0..10_000_u64)
        .map(|number| [&number.to_be_bytes()[..], &LONG.to_ne_bytes(), &LONG.to_ne_bytes()].concat());
    short.chain(long)
}

#[test]
fn keys_that_are_chosen_to_collide_do_not() {
    for seed in [0, 1, 0x1234_5678_9abc_def0] {
        let state = foldhash::quality::FixedState::with_seed(seed);
        let hash = |key: Vec<u8>| {
            let mut hasher = state.build_hasher();
            std::hash::Hasher::write(&mut hasher, &key);
            std::hash::Hasher::finish(&hasher)
        };
        assert_eq!(
            colliding().map(hash).collect::<BTreeSet<_>>().len(),
            1,
            "they do not show what was wrong"
        );
        let engine =
            Engine::new(&Settings { bytes_max: 64 << 20, policy: Policy::default(), seed, threads: 1 });
        for name in colliding() {
            let key = engine.key(Database::default(), &name);
            engine.lock(&key).set(b"v", Expiry::Never, NOW_MS).expect("there is room");
        }
        let searches: Vec<usize> = engine.shards().map(|shard| shard.longest_search()).collect();
        assert!(searches.iter().all(|buckets| *buckets <= 4), "{searches:?}");
        let keys: Vec<u64> = engine.shards().map(|shard| sum(&shard.counts().keys)).collect();
        assert!(keys.iter().all(|keys| (2_000..3_000).contains(keys)), "{keys:?}");
    }
}

/// Saves and clients decompress a value without holding a lock.
#[test]
fn a_packed_value_tells_its_length_and_changes_its_expiry_as_it_is() {
    let engine = engine(Policy::default(), 16 << 20, 1);
    engine.set_pack_from_bytes(20_000);
    let key = engine.key(Database::default(), b"key");
    let value = engine.pack(Arc::new(b"again ".repeat(10_000)));
    assert!(matches!(value, Stored::Packed(_)) && value.value_bytes() == 60_000);
    let mut located = engine.lock(&key);
    located.set_stored(value.clone(), LATER, NOW_MS).expect("there is room");
    for expiry in [Expiry::Never, LATER, Expiry::At(3_000)] {
        assert_eq!(located.set_expiry(expiry, NOW_MS), Ok(true));
        let found = located.get(Access::Use, NOW_MS).expect("it is there");
        let engine::Value::Large(stored) = found.value else { panic!("it is large") };
        assert!(stored.is(&value), "it is not the same, only like it");
        assert_eq!((found.value.length(), found.value.plain()), (60_000, None));
    }
}
