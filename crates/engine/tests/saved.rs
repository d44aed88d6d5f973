//! Tests that saved data is restored, and that no other data is ever restored.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use engine::{Access, Database, Engine, Expiry, Policy, Saved, SavedError, Settings, Source};
use proptest::prelude::*;

const NOW_MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

type Model = BTreeMap<(Database, Vec<u8>), (Vec<u8>, Option<u64>)>;

fn settings(bytes_max: u64, policy: Policy) -> Settings {
    Settings { bytes_max, policy, seed: 7, threads: 1 }
}

fn database(number: usize) -> Database {
    Database::new(number % Database::COUNT).expect("it is below 16")
}

fn set(engine: &Engine, name: &(Database, Vec<u8>), value: &[u8], expires_at_ms: Option<u64>) {
    let key = engine.key(name.0, &name.1);
    let expiry = expires_at_ms.map_or(Expiry::Never, Expiry::At);
    engine.lock(&key).set(value, expiry, NOW_MS).expect("there is room");
}

/// Keys in three databases: every seventh expires, every 50th is large, every 400th has a large key.
fn fill(engine: &Engine, keys: usize) -> Model {
    let mut model = Model::new();
    for number in 0..keys {
        let mut name = format!("key-{number}").into_bytes();
        if number % 400 == 1 {
            name.resize(20_000, b'k');
        }
        let value_bytes = if number % 50 == 2 { 17_000 + number } else { number * 13 % 300 };
        let value: Vec<u8> = (0..value_bytes).map(|at| (at * 7 + number) as u8).collect();
        let expires_at_ms = (number % 7 == 3).then_some(NOW_MS + 1 + number as u64);
        let name = (database(number % 3 * 5), name);
        set(engine, &name, &value, expires_at_ms);
        model.insert(name, (value, expires_at_ms));
    }
    // Removes and rewrites some keys, so that segments have gaps.
    for number in (0..keys).step_by(5) {
        let name = (database(number % 3 * 5), format!("key-{number}").into_bytes());
        let key = engine.key(name.0, &name.1);
        engine.lock(&key).remove(NOW_MS);
        model.remove(&name);
        if number % 2 == 0 {
            set(engine, &name, b"again", None);
            model.insert(name, (b"again".to_vec(), None));
        }
    }
    model
}

/// A server's note, which the engine returns.
const NOTE: u64 = 0xFEDC_BA98_7654_3201;

fn exported(engine: &Engine) -> Vec<u8> {
    let mut bytes = Vec::new();
    let exported = engine.export(99, NOW_MS, &|| NOTE, &mut bytes).expect("a vector takes all");
    assert_eq!(exported.bytes, bytes.len() as u64);
    bytes
}

fn restored(bytes: &[u8], settings: &Settings) -> (Engine, Arc<Saved>) {
    let saved = Arc::new(Saved::open(bytes.to_vec()).expect("it is in order"));
    (Engine::restored(settings, &saved, NOW_MS), saved)
}

fn found(engine: &Engine, name: &(Database, Vec<u8>)) -> Option<(Vec<u8>, Option<u64>)> {
    let key = engine.key(name.0, &name.1);
    let mut shard = engine.lock(&key);
    shard.get(Access::Peek, NOW_MS).map(|found| (found.value.to_vec(), found.expires_at_ms))
}

fn check(engine: &Engine) {
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
}

fn keys(engine: &Engine) -> u64 {
    engine.counts().keys.iter().sum()
}

#[test]
fn what_was_written_comes_back() {
    for policy in Policy::ALL {
        let settings = settings(64 * MIB, policy);
        let before = Engine::new(&settings);
        let model = fill(&before, 5000);
        let (after, saved) = restored(&exported(&before), &settings);
        assert_eq!((saved.keys(), keys(&after)), (model.len() as u64, model.len() as u64));
        assert_eq!(saved.note(), NOTE);
        (0..saved.shards()).try_for_each(|shard| saved.verify(shard)).expect("it is in order");
        assert!(model.iter().all(|(name, entry)| found(&after, name).as_ref() == Some(entry)));
        check(&after);
        assert_eq!(after.counts(), before.counts());
        let progress = saved.progress();
        assert_eq!((progress.keys, progress.failure), (model.len() as u64, None));
        // Saves and restores the data once more.
        let (again, _) = restored(&exported(&after), &settings);
        assert!(model.iter().all(|(name, entry)| found(&again, name).as_ref() == Some(entry)));
    }
}

#[test]
fn a_server_of_another_size_takes_what_fits() {
    let before = Engine::new(&settings(64 * MIB, Policy::default()));
    let model = fill(&before, 5000);
    let bytes = exported(&before);
    for bytes_max in [256 * MIB, 512 * MIB, 24 * MIB, 3 * MIB] {
        for policy in [Policy::default(), Policy::NoEviction, Policy::VolatileLfu] {
            let (after, saved) = restored(&bytes, &settings(bytes_max, policy));
            (0..after.shards_count()).for_each(|number| after.load(number));
            check(&after);
            let there = model.iter().filter(|(name, _)| found(&after, name).is_some()).count();
            let wrong =
                model.iter().find(|(name, entry)| found(&after, name).is_some_and(|found| found != **entry));
            assert_eq!(wrong, None);
            assert_eq!(keys(&after), there as u64);
            assert!(after.used_bytes() <= bytes_max + 2 * MIB, "{} of {bytes_max}", after.used_bytes());
            let progress = saved.progress();
            assert_eq!((progress.shards, progress.keys), (after.shards_count() as u64, there as u64));
            assert_eq!(progress.keys + progress.left_out_keys, model.len() as u64, "{bytes_max} {policy}");
            assert!(if bytes_max > 20 * MIB { there == model.len() } else { there > 100 });
        }
    }
}

/// Fills the engine with keys without an expiry and returns their names. A third of the keys that it sets
/// have an expiry, and aren't returned.
fn fill_up(engine: &Engine, value_bytes: usize) -> Vec<String> {
    let is_set = |name: &String| {
        let key = engine.key(database(0), name.as_bytes());
        let expiry = if name.starts_with("expires") { Expiry::At(NOW_MS + 1) } else { Expiry::Never };
        let write = || engine.lock(&key).set(&vec![b'v'; value_bytes], expiry, NOW_MS);
        engine.with_room(&key, NOW_MS, write).is_ok()
    };
    let most = engine.bytes_max() as usize * 5 / 4 / (value_bytes + 24);
    for number in (0..most).step_by(2) {
        is_set(&format!("expires-{number}"));
    }
    let names: Vec<_> = (0..most).map(|number| format!("stays-{number}")).filter(is_set).collect();
    assert!(names.len() < most, "memory is full");
    names
}

/// Restored keys may take more memory than before, because they are stored in a different order.
#[test]
fn keys_that_stay_come_back_although_memory_was_full() {
    for policy in [Policy::NoEviction, Policy::VolatileLru] {
        for (threads, value_bytes) in [([1, 4], 100), ([4, 1], 3000), ([4, 4], 17_000), ([1, 1], 300_000)] {
            let settings = |threads| Settings { threads, ..settings(16 * MIB, policy) };
            let mut engine = Engine::new(&settings(threads[0]));
            let names = fill_up(&engine, value_bytes);
            let mut used = Vec::new();
            for threads in [threads[1], threads[0], threads[1]] {
                let (after, saved) = restored(&exported(&engine), &settings(threads));
                (0..after.shards_count()).for_each(|number| after.load(number));
                check(&after);
                let is_there =
                    |name: &&String| found(&after, &(database(0), name.as_bytes().to_vec())).is_some();
                let what = format!("{policy} {threads} {value_bytes} {:?}", saved.progress());
                assert_eq!(names.iter().filter(is_there).count(), names.len(), "{what}");
                assert!(policy != Policy::NoEviction || saved.progress().left_out_keys == 0, "{what}");
                used.push(after.used_bytes());
                engine = after;
            }
            assert!(
                used[2] <= used[0] && used[2] <= 18 * MIB,
                "{policy} {threads:?} {value_bytes}: {used:?}"
            );
        }
    }
}

/// If restored keys could take even more, they might exceed the memory of the machine.
#[test]
fn a_file_that_is_much_too_large_takes_an_eighth_more() {
    for policy in [Policy::NoEviction, Policy::VolatileLru] {
        for value_bytes in [1000, 100_000] {
            let before = Engine::new(&settings(48 * MIB, policy));
            let names = fill_up(&before, value_bytes);
            let (after, saved) = restored(&exported(&before), &settings(16 * MIB, policy));
            (0..after.shards_count()).for_each(|number| after.load(number));
            check(&after);
            assert!(saved.progress().left_out_keys > names.len() as u64 / 2);
            let expiring: u64 = before.counts().expiring.iter().sum();
            let (used, most) = (after.used_bytes(), 18 * MIB + MIB / 2 + expiring * 6);
            assert!((17 * MIB..=most).contains(&used), "{policy} {value_bytes}: {used} of {most}");
        }
    }
}

/// Writes must not use memory that is reserved for data that isn't loaded yet.
#[test]
fn what_is_to_be_loaded_has_its_room() {
    let settings = settings(32 * MIB, Policy::NoEviction);
    let before = Engine::new(&settings);
    fill_up(&before, 1000);
    let (after, saved) = restored(&exported(&before), &settings);
    assert!(after.used_bytes() > 30 * MIB && saved.progress().shards == 0, "{}", after.used_bytes());
    let key = after.key(database(1), b"large");
    assert!(after.lock(&key).set(&vec![b'v'; 3 << 20], Expiry::Never, NOW_MS).is_err());
    (0..after.shards_count()).for_each(|number| after.load(number));
    assert_eq!((keys(&after), saved.progress().left_out_keys), (keys(&before), 0));
    drop(after.clear());
    assert!(after.used_bytes() < 2 * MIB, "{}", after.used_bytes());
    let (after, _) = restored(&exported(&before), &settings);
    drop(after.clear());
    assert!(after.used_bytes() < 2 * MIB, "what was expected is not: {}", after.used_bytes());
}

type Happens = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A source that runs a callback before the end of the last part is read.
struct Interrupted {
    bytes: Vec<u8>,
    happens: Happens,
}

impl Source for Interrupted {
    fn bytes(&self) -> u64 {
        self.bytes.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset * 10 > self.bytes() * 9 {
            let happens = self.happens.lock().expect("nobody panics meanwhile").take();
            happens.into_iter().for_each(|happens| happens());
        }
        self.bytes.read_at(offset, buffer)
    }
}

/// Restores a single shard with little room in the background, and runs a callback while it is loaded.
fn interrupted(happens: impl FnOnce(&Engine) + Send + 'static) -> (Arc<Engine>, Model) {
    let before = Engine::new(&settings(8 * MIB, Policy::default()));
    let model = fill(&before, 2500);
    let place = Happens::default();
    let source = Interrupted { bytes: exported(&before), happens: Arc::clone(&place) };
    let saved = Arc::new(Saved::open(source).expect("it is in order"));
    let after = Arc::new(Engine::restored(&settings(2 * MIB, Policy::default()), &saved, NOW_MS));
    let engine = Arc::clone(&after);
    *place.lock().expect("nobody panics meanwhile") = Some(Box::new(move || happens(&engine)));
    after.load(0);
    assert!(place.lock().expect("nobody panics meanwhile").is_none(), "it happened");
    check(&after);
    (after, model)
}

/// A thread that serves a client doesn't wait for the background thread, but loads the same shard itself.
#[test]
fn a_shard_that_is_needed_while_it_is_loaded_is_there_whole() {
    let (after, model) = interrupted(|engine| {
        engine.shards().for_each(|shard| assert!(shard.counts().keys[0] > 100));
    });
    assert!(model.iter().all(|(name, entry)| found(&after, name).as_ref() == Some(entry)));
    assert!(after.used_bytes() < 2 * MIB, "{}", after.used_bytes());
    after.shards_as_they_are().for_each(|mut shard| shard.clear());
    assert!(after.used_bytes() < MIB, "{}", after.used_bytes());
}

#[test]
fn a_policy_set_while_a_shard_is_loaded_stays_set() {
    let (after, _) = interrupted(|engine| engine.set_policy(Policy::NoEviction));
    let mut writes = 0..100_000;
    let is_refused = writes.any(|number| {
        let name = format!("more-{number}");
        let key = after.key(database(1), name.as_bytes());
        after.lock(&key).set(&[b'a'; 1000], Expiry::Never, NOW_MS).is_err()
    });
    assert!(is_refused);
}

#[test]
fn what_has_expired_meanwhile_does_not_come_back() {
    let settings = settings(64 * MIB, Policy::default());
    let before = Engine::new(&settings);
    let model = fill(&before, 5000);
    let saved = Arc::new(Saved::open(exported(&before)).expect("it is in order"));
    let later_ms = NOW_MS + 10_000;
    let after = Engine::restored(&settings, &saved, later_ms);
    after.load(0);
    (0..after.shards_count()).for_each(|number| after.load(number));
    check(&after);
    let lasting = model.values().filter(|(_, expires_at_ms)| expires_at_ms.is_none()).count() as u64;
    let progress = saved.progress();
    let counts = (keys(&after), progress.expired_keys, progress.left_out_keys);
    assert_eq!(counts, (lasting, model.len() as u64 - lasting, 0));
}

#[test]
fn what_is_flushed_before_it_was_loaded_stays_away() {
    let settings = settings(64 * MIB, Policy::default());
    let before = Engine::new(&settings);
    fill(&before, 500);
    let (after, _) = restored(&exported(&before), &settings);
    after.shards_as_they_are().for_each(|mut shard| shard.clear());
    assert_eq!(keys(&after), 0);
    (0..after.shards_count()).for_each(|number| after.load(number));
    assert_eq!(keys(&after), 0);
}

/// A writer that runs a callback between writes.
struct Meanwhile<F: FnMut()> {
    bytes: Vec<u8>,
    happens: F,
}

impl<F: FnMut()> Write for Meanwhile<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.happens)();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_lives_while_it_is_written_is_written() {
    let settings = settings(20 * MIB, Policy::NoEviction);
    let engine = Engine::new(&settings);
    let names: Vec<_> =
        (0..30_000).map(|number| (database(0), format!("key-{number}").into_bytes())).collect();
    names.iter().for_each(|name| set(&engine, name, &[b'a'; 100], None));
    // Values of different sizes, so that all keys move. The old segments of these keys are emptied and
    // reused.
    let mut writes = 0_usize;
    let happens = || {
        for number in (writes * 1000..).take(1000) {
            let length = 60 + (number / names.len() * 17) % 60;
            set(&engine, &names[number % names.len()], &vec![b'b'; length], None);
        }
        writes += 1;
    };
    let mut to = Meanwhile { bytes: Vec::new(), happens };
    engine.export(1, NOW_MS, &|| 0, &mut to).expect("it takes all");
    let bytes = to.bytes;
    assert!(writes > 30, "each key changed meanwhile");
    let (after, saved) = restored(&bytes, &settings);
    let missing = names.iter().find(|name| found(&after, name).is_none());
    assert_eq!(missing, None);
    check(&after);
    assert_eq!(saved.progress().failure, None);
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip { at: usize, mask: u8 },
    Cut(usize),
    Remove { at: usize, bytes: usize },
    Repeat { at: usize, bytes: usize },
    Append(Vec<u8>),
    Swap { at: usize, with: usize, bytes: usize },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<usize>;
    let bytes = || 1..300_usize;
    prop_oneof![
        6 => (at(), 1..=255_u8).prop_map(|(at, mask)| Mutation::Flip { at, mask }),
        2 => at().prop_map(Mutation::Cut),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Mutation::Remove { at, bytes }),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Mutation::Repeat { at, bytes }),
        1 => prop::collection::vec(any::<u8>(), 1..100).prop_map(Mutation::Append),
        1 => (at(), at(), bytes()).prop_map(|(at, with, bytes)| Mutation::Swap { at, with, bytes }),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let length = bytes.len();
    match *mutation {
        Mutation::Flip { at, mask } => bytes[at % length] ^= mask,
        Mutation::Cut(at) => bytes.truncate(at % length),
        Mutation::Remove { at, bytes: count } => {
            let at = at % length;
            bytes.drain(at..(at + count).min(length));
        }
        Mutation::Repeat { at, bytes: count } => {
            let at = at % length;
            let again = bytes[at..(at + count).min(length)].to_vec();
            bytes.splice(at..at, again);
        }
        Mutation::Append(ref more) => bytes.extend_from_slice(more),
        Mutation::Swap { at, with, bytes: count } => {
            let (at, with) = (at % length, with % length);
            (0..count.min(length - at.max(with))).for_each(|step| bytes.swap(at + step, with + step));
        }
    }
}

/// A data set with several shards, parts and large values.
fn sample() -> &'static (Model, Vec<u8>) {
    static SAMPLE: std::sync::OnceLock<(Model, Vec<u8>)> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let engine = Engine::new(&settings(20 * MIB, Policy::default()));
        let model = fill(&engine, 300);
        let bytes = exported(&engine);
        (model, bytes)
    })
}

/// Returns whether the data was refused. Fails if accepted data isn't intact.
fn is_refused(bytes: Vec<u8>) -> bool {
    let (model, _) = sample();
    let Ok(saved) = Saved::open(bytes) else { return true };
    let saved = Arc::new(saved);
    let is_sound = (0..saved.shards()).all(|shard| saved.verify(shard).is_ok());
    for bytes_max in [20 * MIB, 5 * MIB] {
        let engine = Engine::restored(&settings(bytes_max, Policy::default()), &saved, NOW_MS);
        let mut there = 0;
        for (name, entry) in model {
            let found = found(&engine, name);
            there += usize::from(found.is_some());
            assert!(found.is_none_or(|found| found == *entry), "a value that nobody stored");
        }
        check(&engine);
        assert_eq!(keys(&engine), there as u64);
        assert_eq!(saved.progress().failure.is_none(), is_sound);
        assert!(!is_sound || there == model.len());
    }
    !is_sound
}

#[test]
fn every_byte_counts() {
    let (_, bytes) = sample();
    let near_ends = (0..120).step_by(3).chain((bytes.len() - 400..bytes.len()).step_by(5));
    for at in near_ends.chain((0..bytes.len()).step_by(4999)) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(is_refused(flipped), "byte {at}");
        assert!(is_refused(bytes[..at].to_vec()), "cut at {at}");
    }
    assert!(!is_refused(bytes.clone()));
}

#[test]
fn each_kind_of_damage_has_its_words() {
    let (_, bytes) = sample();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let cases = [
        (
            b"REDIS0009 and more, as long as the begin of a file has to be, 64 bytes".to_vec(),
            "not a save file of larder kv",
        ),
        (Vec::new(), "the end is missing"),
        (bytes[..bytes.len() - 1].to_vec(), "the end is missing"),
        (bytes[..70].to_vec(), "the end is missing"),
        (with(8, &[9]), "unsupported format 9: this version of Larder reads formats 2 to 3"),
        (with(20, &[9]), "damaged at byte 0: checksum mismatch at the beginning"),
    ];
    for (bytes, message) in cases {
        let error: SavedError = Saved::open(bytes).expect_err("it is refused");
        assert_eq!(error.to_string(), message);
    }
    let saved = Saved::open(with(500, &[1, 2, 3])).expect("begin and end are in order");
    let error = saved.verify(0).expect_err("it is refused");
    assert!(error.to_string().ends_with("checksum mismatch in a part"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_change_is_noticed(mutations in prop::collection::vec(mutation(), 1..4)) {
        let (_, bytes) = sample();
        let mut changed = bytes.clone();
        for mutation in &mutations {
            if !changed.is_empty() {
                mutate(&mut changed, mutation);
            }
        }
        prop_assert_eq!(is_refused(changed.clone()), changed != *bytes);
    }
}
