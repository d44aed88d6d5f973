//! Runs any operations on an engine and on a sorted map as its model, and checks all invariants after each operation.
//! At the end, saves and loads the data set. Each operation consumes a few bytes of the input.

#![no_main]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use engine::{Access, Cause, Database, Engine, Expiry, OutOfMemory, Policy, Removals, Saved, Settings};
use libfuzzer_sys::fuzz_target;

/// Limits for one shard and for two: small, so that memory is soon full.
const BYTES_MAX: [u64; 2] = [2 << 20, 17 << 20];

fuzz_target!(|input: &[u8]| {
    let Some((&[policy, size], mut steps)) = input.split_first_chunk::<2>() else { return };
    let policy = Policy::ALL[usize::from(policy) % Policy::ALL.len()];
    let bytes_max = BYTES_MAX[usize::from(size) % BYTES_MAX.len()];
    let mut beside = Beside::new(&Settings { bytes_max, policy, seed: 42, threads: 1 });
    while let Some((step, rest)) = steps.split_first_chunk::<4>() {
        beside.take(*step);
        steps = rest;
    }
    beside.compare_all();
    beside.save_and_restore();
    beside.give_everything_back();
});

type Name = (Database, Vec<u8>);

#[derive(Clone, PartialEq)]
struct Entry {
    value: Vec<u8>,
    expires_at_ms: Option<u64>,
}

impl fmt::Debug for Entry {
    /// Writes the length and the first byte of the value, because all its bytes are equal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {:?}, {:?}", self.value.len(), self.value.first(), self.expires_at_ms)
    }
}

/// The engine, its expected contents, and the time.
struct Beside {
    settings: Settings,
    engine: Engine,
    model: BTreeMap<Name, Entry>,
    now_ms: u64,
    /// Memory that the empty engine uses.
    empty_bytes: u64,
}

/// Returns keys of several lengths in two databases, one of them longer than a segment allows.
fn name(number: u8) -> Name {
    let database = Database::new(usize::from(number) % 2).expect("it is below 16");
    let mut key = vec![b'k', number];
    key.resize([2, 3, 9, 16, 40, 300, 20_000][usize::from(number) % 7], b'k');
    (database, key)
}

/// Returns the length of a value: below, at or above the limit for a segment with its key.
fn length(byte: u8) -> usize {
    match byte {
        0..=199 => usize::from(byte),
        200..=239 => usize::from(byte - 199) * 400,
        _ => usize::from(byte - 239) * 4096 + usize::from(byte),
    }
}

impl Beside {
    fn new(settings: &Settings) -> Self {
        let engine = Engine::new(settings);
        engine.collect_removals(Removals::Collected);
        let empty_bytes = engine.used_bytes();
        Self { settings: *settings, engine, model: BTreeMap::new(), now_ms: 1000, empty_bytes }
    }

    fn expiry(&self, byte: u8) -> Expiry {
        match byte % 4 {
            0 => Expiry::Keep,
            1 => Expiry::At(self.now_ms + u64::from(byte) * 8),
            _ => Expiry::Never,
        }
    }

    fn take(&mut self, [what, key, a, b]: [u8; 4]) {
        match what % 16 {
            0..=6 => self.set(key, length(a), self.expiry(b)),
            7..=9 => self.get(key),
            10 => self.remove(key),
            11 => self.set_expiry(key, self.expiry(a)),
            12 => self.now_ms += u64::from(a) * 16,
            13 => self.engine.shards().for_each(|mut shard| {
                shard.expire(usize::from(a) + 1, self.now_ms);
            }),
            14 => {
                let name = name(key);
                let key = self.engine.key(name.0, &name.1);
                let mut outcomes = [Err(OutOfMemory), Ok(())].into_iter();
                let write = || outcomes.next().expect("it is not called again");
                let _ = self.engine.with_room(&key, self.now_ms, write);
                self.engine.make_up(self.now_ms);
            }
            // The limit leaves room for the initial tables.
            _ => self.engine.set_bytes_max((1 << 20) + (u64::from(a) << 16)),
        }
        self.follow_removals();
        self.engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
    }

    /// Removes from the model the keys that the engine has removed, and checks the reason of each.
    fn follow_removals(&mut self) {
        for removal in self.engine.take_removed() {
            if let Some(entry) = self.model.remove(&(removal.database, removal.key)) {
                let is_expired = entry.expires_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms);
                assert_eq!(removal.cause == Cause::Expired, is_expired);
            }
        }
        let now_ms = self.now_ms;
        self.model.retain(|_, entry| entry.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms));
    }

    fn resolve(&self, name: &Name, expiry: Expiry) -> Option<u64> {
        match expiry {
            Expiry::Never => None,
            Expiry::Keep => self.model.get(name).and_then(|entry| entry.expires_at_ms),
            Expiry::At(at_ms) => Some(at_ms),
        }
    }

    fn set(&mut self, number: u8, value_bytes: usize, expiry: Expiry) {
        let name = name(number);
        self.follow_removals();
        let entry = Entry {
            value: vec![number ^ value_bytes as u8; value_bytes],
            expires_at_ms: self.resolve(&name, expiry),
        };
        let key = self.engine.key(name.0, &name.1);
        let set = if value_bytes % 2 == 0 {
            self.engine.lock(&key).set(&entry.value, expiry, self.now_ms)
        } else {
            let value = Arc::new(entry.value.clone());
            self.engine.lock(&key).set_stored(self.engine.pack(value), expiry, self.now_ms)
        };
        // The engine has evicted these keys before it set the value.
        self.follow_removals();
        if set.is_ok() {
            self.model.insert(name, entry);
        }
    }

    fn get(&mut self, number: u8) {
        let name = name(number);
        self.follow_removals();
        let found = found(&self.engine, &name, self.now_ms);
        assert_eq!(found.as_ref(), self.model.get(&name), "{:?}", &name.1[..2]);
    }

    fn remove(&mut self, number: u8) {
        let name = name(number);
        self.follow_removals();
        let key = self.engine.key(name.0, &name.1);
        let was_there = self.engine.lock(&key).remove(self.now_ms);
        assert_eq!(was_there, self.model.remove(&name).is_some());
    }

    fn set_expiry(&mut self, number: u8, expiry: Expiry) {
        let name = name(number);
        self.follow_removals();
        let expires_at_ms = self.resolve(&name, expiry);
        let is_known = self.model.contains_key(&name);
        let key = self.engine.key(name.0, &name.1);
        let was_there = self.engine.lock(&key).set_expiry(expiry, self.now_ms);
        assert_eq!(was_there, Ok(is_known), "it needs no room");
        // An eviction after the change may remove this key.
        self.follow_removals();
        if let Some(entry) = self.model.get_mut(&name) {
            entry.expires_at_ms = expires_at_ms;
        }
    }

    fn compare_all(&mut self) {
        (0..=u8::MAX).for_each(|number| self.get(number));
        let keys: u64 = self.engine.counts().keys.iter().sum();
        assert!(keys >= self.model.len() as u64, "{keys} keys, {} in the model", self.model.len());
    }

    fn give_everything_back(&mut self) {
        drop(self.engine.clear());
        assert_eq!(self.engine.used_bytes(), self.empty_bytes);
    }

    fn save_and_restore(&mut self) {
        let mut bytes = Vec::new();
        self.engine.export(1, self.now_ms, &|| 0, &mut bytes).expect("a vector takes all");
        let saved = Arc::new(Saved::open(bytes).expect("it was written whole"));
        // This limit leaves room for all keys, so that none is evicted while loading.
        let settings = Settings { bytes_max: 64 << 20, ..self.settings };
        let restored = Engine::restored(&settings, &saved, self.now_ms);
        for (name, entry) in &self.model {
            assert_eq!(found(&restored, name, self.now_ms).as_ref(), Some(entry), "{:?}", &name.1[..2]);
        }
        restored.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
        assert_eq!(restored.counts().keys.iter().sum::<u64>(), self.model.len() as u64);
    }
}

fn found(engine: &Engine, name: &Name, now_ms: u64) -> Option<Entry> {
    let key = engine.key(name.0, &name.1);
    let mut shard = engine.lock(&key);
    let found = shard.get(Access::Use, now_ms)?;
    Some(Entry { value: found.value.to_vec(), expires_at_ms: found.expires_at_ms })
}
