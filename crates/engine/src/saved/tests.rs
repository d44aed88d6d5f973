//! Crafted files with valid checksums and invalid contents.

use std::sync::Arc;

use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::Saved;
use super::format::{
    Checksum, HEADER_BYTES, Header, PART_BYTES, Part, SHARD_BYTES, ShardEntry, TRAILER_BYTES, Trailer,
};
use crate::hash::Database;
use crate::item::{Body, Content};
use crate::{Access, Engine, Expiry, Policy, Settings};

const NOW_MS: u64 = 1_000_000;

fn settings(bytes_max: u64) -> Settings {
    Settings { bytes_max, policy: Policy::AllKeysLru, seed: 7, threads: 1 }
}

fn sample() -> Vec<u8> {
    let engine = Engine::new(&settings(20 << 20));
    for number in 0..60_usize {
        let name = format!("key-{number}");
        let key = engine.key(Database::default(), name.as_bytes());
        let value = vec![number as u8; if number.is_multiple_of(20) { 17_000 } else { number }];
        let expiry = if number.is_multiple_of(3) { Expiry::At(NOW_MS + 1) } else { Expiry::Never };
        engine.lock(&key).set(&value, expiry, NOW_MS).expect("there is room");
    }
    let mut bytes = Vec::new();
    engine.export(5, NOW_MS, &|| 0, &mut bytes).expect("a vector takes all");
    bytes
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("it is long enough")
}

/// Recomputes all checksums: those of the parts that can be found, of the table, the header and the trailer.
fn mend(bytes: &mut [u8]) {
    let Ok(header) = Header::decode(&array(bytes, 0)) else { return };
    let table_at = bytes.len() - TRAILER_BYTES - header.shards as usize * SHARD_BYTES;
    let mut at = HEADER_BYTES;
    while at + PART_BYTES <= table_at {
        let head: [u8; PART_BYTES] = array(bytes, at);
        let Ok((part, _)) = Part::decode(&head) else { break };
        let begin = at + PART_BYTES;
        let Some(body) = bytes[..table_at].get(begin..begin + part.body_bytes() as usize) else { break };
        let checksum = Checksum::of_part(header.id, &head).add(body).finish();
        bytes[at..at + 8].copy_from_slice(&checksum.to_le_bytes());
        at = begin + part.body_bytes() as usize;
    }
    let trailer_at = bytes.len() - TRAILER_BYTES;
    let table_checksum = Checksum::new(header.id).add(&bytes[table_at..trailer_at]).finish();
    let trailer = Trailer { table_offset: table_at as u64, table_checksum, note: 0 }.encode(header.id);
    bytes[trailer_at..].copy_from_slice(&trailer);
}

/// Opens, verifies and loads the data in every supported way.
fn exercise(bytes: Vec<u8>, bytes_max: u64) {
    let Ok(saved) = Saved::open(bytes) else { return };
    let saved = Arc::new(saved);
    let engine = Engine::restored(&settings(bytes_max), &saved, NOW_MS);
    let keys: u64 = engine.counts().keys.iter().sum();
    assert!(keys < 10_000);
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
    for number in 0..2000_u32 {
        let name = format!("key-{number}");
        let key = engine.key(Database::default(), name.as_bytes());
        let mut shard = engine.lock(&key);
        shard.get(Access::Use, NOW_MS);
        let _ = shard.set(&[1; 900], Expiry::Never, NOW_MS);
    }
    engine.shards().for_each(|mut shard| {
        shard.expire(usize::MAX, NOW_MS + 10);
        while shard.relieve(0, NOW_MS) {}
    });
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
}

#[test]
fn what_was_mended_without_need_is_as_before() {
    let bytes = sample();
    let mut mended = bytes.clone();
    mend(&mut mended);
    assert!(bytes == mended);
}

#[test]
fn a_table_that_promises_too_much_is_refused() {
    let mut bytes = sample();
    let table_at = bytes.len() - TRAILER_BYTES - 2 * SHARD_BYTES;
    let entry = ShardEntry::decode(&bytes[table_at..table_at + SHARD_BYTES]);
    let entry = ShardEntry { keys: [u64::MAX; Database::COUNT], ..entry };
    bytes[table_at..table_at + SHARD_BYTES].copy_from_slice(&entry.encode());
    mend(&mut bytes);
    let error = Saved::open(bytes).expect_err("there can't be so many keys");
    assert!(error.to_string().ends_with("more keys than bytes"), "{error}");
}

/// Changes the header to the header of a file whose keys were hashed with another function. A header of the
/// older format doesn't contain the function.
fn of_other_hashing(mut bytes: Vec<u8>, format: u32, hashing: u32) -> Vec<u8> {
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    bytes[40..44].copy_from_slice(&hashing.to_le_bytes());
    let checksum = XxHash3_64::oneshot(&bytes[..HEADER_BYTES - 8]);
    bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn keys_that_were_hashed_otherwise_are_sorted_anew() {
    for (format, hashing) in [(2, 0), (3, 0), (3, 1), (3, 2)] {
        for bytes_max in [5 << 20, 20 << 20, 128 << 20] {
            let saved = Saved::open(of_other_hashing(sample(), format, hashing)).expect("it is in order");
            let saved = Arc::new(saved);
            let engine = Engine::restored(&settings(bytes_max), &saved, NOW_MS);
            engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
            for number in 0..60_usize {
                let name = format!("key-{number}");
                let key = engine.key(Database::default(), name.as_bytes());
                let mut located = engine.lock(&key);
                let found = located.get(Access::Peek, NOW_MS).expect("it was saved");
                let length = if number.is_multiple_of(20) { 17_000 } else { number };
                assert_eq!(found.value.to_vec(), vec![number as u8; length], "{format} {hashing}");
                assert_eq!(found.expires_at_ms.is_some(), number.is_multiple_of(3));
            }
            let progress = saved.progress();
            assert_eq!((progress.keys, progress.left_out_keys, progress.failure), (60, 0, None));
            assert_eq!(progress.shards, engine.shards_count() as u64);
        }
    }
    let of_none = Saved::open(of_other_hashing(sample(), 3, 3));
    assert!(of_none.is_err_and(|error| error.to_string().ends_with("unknown hash function")));
}

#[test]
fn nothing_of_a_damaged_file_is_used_where_keys_are_sorted_anew() {
    let mut bytes = of_other_hashing(sample(), 2, 0);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let saved = Arc::new(Saved::open(bytes).expect("begin and end are in order"));
    let engine = Engine::restored(&settings(20 << 20), &saved, NOW_MS);
    assert!(saved.is_refused() && engine.counts().keys.iter().all(|keys| *keys == 0));
}

#[test]
fn an_item_looks_as_format_3_says() {
    let content = Content {
        database: Database::new(3).expect("it is below 16"),
        body: Body::Inline { key: b"key", value: b"value" },
        expires_at_ms: Some(0x3344_5566_7788),
        used_s: 0x2A_BBCC,
        frequency: 7,
    };
    let mut bytes = vec![0; content.item_bytes()];
    content.write(&mut bytes);
    // The fields of the header: key length, seconds, database, expiry bit, frequency, value length.
    let header: u64 = 3 | 0x2A_BBCC << 14 | 3 << 36 | 1 << 40 | 7 << 42 | 5 << 50;
    let expected = [&header.to_le_bytes()[..], &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33], b"keyvalue"];
    assert_eq!(bytes, expected.concat(), "another layout of items is another FORMAT");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_file_says_brings_the_engine_down(
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        bytes_max in prop::sample::select(vec![20_u64 << 20, 5 << 20, 50 << 20]),
    ) {
        let mut bytes = sample();
        let parts_at = HEADER_BYTES..bytes.len() - TRAILER_BYTES;
        for (at, value) in changes {
            // Half of the changes are near the beginnings of parts, which contain the lengths.
            let at = if at % 2 == 0 { at / 2 % 400 } else { at / 2 };
            bytes[parts_at.start + at % parts_at.len()] = value;
        }
        mend(&mut bytes);
        exercise(bytes, bytes_max);
    }
}

/// A client may lower the limit before all shards are loaded.
#[test]
fn a_limit_that_is_lowered_during_the_load_costs_no_key_that_stays() {
    const KEYS: u64 = 40_000;
    let settings = |policy| Settings { bytes_max: 64 << 20, policy, seed: 7, threads: 2 };
    let full = Engine::new(&settings(Policy::NoEviction));
    for number in 0..KEYS {
        let name = format!("key-{number}");
        let key = full.key(Database::default(), name.as_bytes());
        full.lock(&key).set(&[7; 1000], Expiry::Never, NOW_MS).expect("there is room");
    }
    let mut bytes = Vec::new();
    full.export(5, NOW_MS, &|| 0, &mut bytes).expect("a vector takes all");
    for policy in [Policy::NoEviction, Policy::VolatileLru] {
        let saved = Arc::new(Saved::open(bytes.clone()).expect("it is in order"));
        let engine = Engine::restored(&settings(policy), &saved, NOW_MS);
        engine.set_bytes_max(16 << 20);
        (0..engine.shards_count()).for_each(|number| engine.load(number));
        let progress = saved.progress();
        assert_eq!((progress.keys, progress.left_out_keys), (KEYS, 0), "{policy:?}");
        engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
    }
}
