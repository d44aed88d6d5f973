//! The engine compared with a trivially correct model: a sorted map.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Access, Cause, Database, Engine, Expiry, Hint, OutOfMemory, Policy, Removals, Settings};
use proptest::prelude::*;

const SEGMENT_BYTES: u64 = 256 << 10;

#[derive(Clone, Debug)]
enum Step {
    Set { key: usize, value_bytes: usize, expiry: Expiry },
    Get(usize),
    Remove(usize),
    SetExpiry { key: usize, expiry: Expiry },
    Wait(u64),
    Expire,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    value: Vec<u8>,
    expires_at_ms: Option<u64>,
}

type Name = (Database, Vec<u8>);

/// The engine, its expected contents, and the time.
struct Beside {
    engine: Engine,
    model: BTreeMap<Name, Entry>,
    /// Hints from earlier lookups.
    hints: BTreeMap<usize, Hint>,
    now_ms: u64,
    steps: u64,
}

/// Keys of several lengths in two databases, one of them too long for a segment.
fn name(number: usize) -> Name {
    let database = Database::new(number % 2).expect("it is below 16");
    let length = [0, 1, 7, 8, 30, 300, 20_000][number % 7];
    let mut key = format!("{}", number / 2).into_bytes();
    key.resize(key.len() + length, b'k');
    (database, key)
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..60_usize;
    let value_bytes = prop_oneof![8 => 0..100_usize, 2 => 100..5000_usize, 1 => 16_000..70_000_usize];
    let expiry = || prop_oneof![4 => Just(Expiry::Never), 1 => Just(Expiry::Keep), 2 => (0..20_000_u64).prop_map(Expiry::At)];
    prop_oneof![
        6 => (key.clone(), value_bytes, expiry()).prop_map(|(key, value_bytes, expiry)| Step::Set { key, value_bytes, expiry }),
        4 => key.clone().prop_map(Step::Get),
        2 => key.clone().prop_map(Step::Remove),
        1 => (key, expiry()).prop_map(|(key, expiry)| Step::SetExpiry { key, expiry }),
        1 => (1..2000_u64).prop_map(Step::Wait),
        1 => Just(Step::Expire),
    ]
}

impl Beside {
    fn new(policy: Policy, bytes_max: u64, threads: usize) -> Self {
        let engine = Engine::new(&Settings { bytes_max, policy, seed: 42, threads });
        engine.collect_removals(Removals::Collected);
        Self { engine, model: BTreeMap::new(), hints: BTreeMap::new(), now_ms: 1, steps: 0 }
    }

    fn forget_expired(&mut self) {
        let now_ms = self.now_ms;
        self.model.retain(|_, entry| entry.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms));
    }

    /// Removes from the model the keys that the engine removed without a command. Fails if the engine has no
    /// reason for a removal.
    fn follow_removals(&mut self) {
        for removal in self.engine.take_removed() {
            let entry = self.model.remove(&(removal.database, removal.key));
            let is_expired =
                entry.is_none_or(|entry| entry.expires_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms));
            assert_eq!(removal.cause == Cause::Expired, is_expired);
        }
        assert!(!self.engine.has_removed());
    }

    fn set(&mut self, number: usize, value_bytes: usize, expiry: Expiry) -> Result<(), OutOfMemory> {
        let name = name(number);
        let value = vec![(self.steps % 251) as u8; value_bytes];
        let key = self.engine.key(name.0, &name.1);
        let seen = self.hints.get(&number).filter(|_| expiry == Expiry::Never);
        let is_over =
            seen.is_some_and(|hint| self.engine.lock(&key).overwrite_seen(*hint, &value, self.now_ms));
        let set = if is_over {
            Ok(())
        } else {
            self.engine.with_room(&key, self.now_ms, || match value_bytes.is_multiple_of(2) {
                true => self.engine.lock(&key).set(&value, expiry, self.now_ms),
                false => {
                    let stored = self.engine.pack(Arc::new(value.clone()));
                    self.engine.lock(&key).set_stored(stored, expiry, self.now_ms)
                }
            })
        };
        self.follow_removals();
        set?;
        let kept = self.model.get(&name).and_then(|entry| entry.expires_at_ms);
        let expires_at_ms = resolve(expiry, kept);
        self.model.insert(name, Entry { value, expires_at_ms });
        Ok(())
    }

    fn set_expiry(&mut self, number: usize, expiry: Expiry) {
        let name = name(number);
        let key = self.engine.key(name.0, &name.1);
        let was_there = self.engine.lock(&key).set_expiry(expiry, self.now_ms);
        assert_eq!(was_there, Ok(self.model.contains_key(&name)), "it needs no room");
        // The engine may evict this key to compensate for the memory of the expiry.
        self.follow_removals();
        if let Some(entry) = self.model.get_mut(&name) {
            entry.expires_at_ms = resolve(expiry, entry.expires_at_ms);
        }
    }

    fn get(&mut self, number: usize) {
        let name = name(number);
        let key = self.engine.key(name.0, &name.1);
        let mut batch = self.engine.batch();
        let mut hint = batch.prefetch(&key);
        batch.prefetch_item(&key, &mut hint);
        // An outdated hint has to return correct results, too.
        for hint in self.hints.insert(number, hint).into_iter().chain([hint]) {
            if let Some(value) = batch.at(&key).get_seen(hint, self.now_ms) {
                let seen = Entry { value: value.to_vec(), expires_at_ms: None };
                assert_eq!(Some(&seen), self.model.get(&name));
            }
        }
        let mut located = batch.at(&key);
        let found = located.get(Access::Use, self.now_ms);
        let found =
            found.map(|found| Entry { value: found.value.to_vec(), expires_at_ms: found.expires_at_ms });
        assert_eq!(found.as_ref(), self.model.get(&name));
    }

    fn take(&mut self, step: &Step) -> Result<(), OutOfMemory> {
        self.steps += 1;
        self.forget_expired();
        match *step {
            Step::Set { key, value_bytes, expiry } => self.set(key, value_bytes, expiry)?,
            Step::Get(key) => self.get(key),
            Step::Remove(key) => {
                let name = name(key);
                let key = self.engine.key(name.0, &name.1);
                let was_there = self.engine.lock(&key).remove(self.now_ms);
                assert_eq!(was_there, self.model.remove(&name).is_some());
            }
            Step::SetExpiry { key, expiry } => self.set_expiry(key, expiry),
            Step::Wait(ms) => self.now_ms += ms,
            Step::Expire => {
                self.engine.shards().for_each(|mut shard| {
                    shard.expire(usize::MAX, self.now_ms);
                });
            }
        }
        self.forget_expired();
        self.engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
        self.follow_removals();
        Ok(())
    }
}

fn resolve(expiry: Expiry, kept: Option<u64>) -> Option<u64> {
    match expiry {
        Expiry::Never => None,
        Expiry::Keep => kept,
        Expiry::At(at_ms) => Some(at_ms),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn with_room_for_all_it_is_a_map(steps in prop::collection::vec(step(), 1..300), threads in 1..3_usize) {
        let mut beside = Beside::new(Policy::NoEviction, 1 << 30, threads);
        for step in &steps {
            beside.take(step).expect("there is room");
        }
        beside.forget_expired();
        beside.engine.shards().for_each(|mut shard| { shard.expire(usize::MAX, beside.now_ms); });
        (0..60).for_each(|number| beside.get(number));
    }

    #[test]
    fn without_room_what_is_there_is_right(
        steps in prop::collection::vec(step(), 100..600),
        policy in prop::sample::select(&Policy::ALL[..]),
        (bytes_max, threads, shards) in prop::sample::select(vec![
            (5 * SEGMENT_BYTES, 1, 1),
            (16 << 20, 1, 2),
            (64 << 20, 1, 8),
            (128 << 20, 4, 16),
        ]),
    ) {
        let mut beside = Beside::new(policy, bytes_max, threads);
        prop_assert_eq!(beside.engine.shards_count() as u64, shards);
        // External memory takes all but five segments per shard: one for the index, one for each queue, and
        // two to empty.
        let others = bytes_max.saturating_sub(beside.engine.used_bytes() + shards * 5 * SEGMENT_BYTES);
        beside.engine.lend(0, others as usize);
        for step in &steps {
            if beside.take(step).is_err() {
                prop_assert_ne!(policy, Policy::AllKeysS3Fifo);
            }
            prop_assert!(beside.engine.used_bytes() <= bytes_max + (1 + shards) * SEGMENT_BYTES);
        }
    }
}
