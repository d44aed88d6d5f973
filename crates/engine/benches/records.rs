//! Measures the three times that the unit tests of poor-man-s-cache publish, in the same way: in milliseconds
//! of one thread, including the generation of keys and values and the comparison of results. `cargo bench -p
//! engine --bench records` uses 10 M records; as a test, 10,000.
//!
//! A fourth time is for deletes, which poor-man-s-cache doesn't measure.
#![expect(clippy::print_stdout, reason = "a bench prints what it measures")]

use std::time::Instant;

use engine::{Access, Database, Engine, Expiry, Policy, Settings};

const NOW_MS: u64 = 1_000_000;
const RECORDS: u64 = 10_000_000;
const RECORDS_OF_TEST: u64 = 10_000;
/// Sizes of the JSON documents.
const DOCUMENTS: [usize; 5] = [1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20];

fn main() {
    // Cargo passes `--bench` to benches, but not to tests.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let records = if is_bench { RECORDS } else { RECORDS_OF_TEST };
    println!("{records} records; in brackets, the times that poor-man-s-cache published for 10 M");
    time("large JSON (1167 ms)", || Store::new().documents());
    time("add and retrieve (22795 ms)", || {
        let mut store = Store::new();
        store.set_all(records, "value");
        store.compare_all(records, "value");
    });
    // The published time includes a pause of one second.
    time("overwrite and retrieve (45561 ms)", || {
        let mut store = Store::new();
        store.set_all(records, "value");
        store.set_all(records, "new_value");
        store.compare_all(records, "new_value");
    });
    time("add, delete every other, retrieve (none published)", || {
        let mut store = Store::new();
        store.set_all(records, "value");
        store.delete_even(records);
    });
}

fn time(what: &str, run: impl FnOnce()) {
    let begin = Instant::now();
    run();
    println!("{what}: {} ms", begin.elapsed().as_millis());
}

/// An engine, with buffers for the texts of a record.
struct Store {
    engine: Engine,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Store {
    fn new() -> Self {
        let settings = Settings { bytes_max: 4 << 30, policy: Policy::default(), seed: 7, threads: 1 };
        Self { engine: Engine::new(&settings), name: Vec::new(), value: Vec::new() }
    }

    fn documents(mut self) {
        let documents =
            DOCUMENTS.map(|bytes| "{\"temperature\": 21.5, \"city\": \"London\"},\n".repeat(bytes / 43));
        for (number, document) in documents.iter().enumerate() {
            self.set(number as u64, document.as_bytes());
        }
        for (number, document) in documents.iter().enumerate() {
            assert!(self.is(number as u64, Some(document.as_bytes())));
        }
    }

    fn set_all(&mut self, records: u64, word: &str) {
        for number in 0..records {
            let mut value = std::mem::take(&mut self.value);
            write(&mut value, word, number);
            self.set(number, &value);
            self.value = value;
        }
    }

    fn compare_all(&mut self, records: u64, word: &str) {
        for number in 0..records {
            self.compare(number, word);
        }
    }

    fn delete_even(&mut self, records: u64) {
        for number in (0..records).step_by(2) {
            write(&mut self.name, "key", number);
            let key = self.engine.key(Database::default(), &self.name);
            assert!(self.engine.lock(&key).remove(NOW_MS));
        }
        for number in 0..records {
            if number.is_multiple_of(2) {
                assert!(self.is(number, None));
            } else {
                self.compare(number, "value");
            }
        }
    }

    fn compare(&mut self, number: u64, word: &str) {
        let mut value = std::mem::take(&mut self.value);
        write(&mut value, word, number);
        assert!(self.is(number, Some(&value)), "record {number}");
        self.value = value;
    }

    fn set(&mut self, number: u64, value: &[u8]) {
        write(&mut self.name, "key", number);
        let key = self.engine.key(Database::default(), &self.name);
        self.engine.lock(&key).set(value, Expiry::Never, NOW_MS).expect("there is room");
    }

    fn is(&mut self, number: u64, expected: Option<&[u8]>) -> bool {
        write(&mut self.name, "key", number);
        let key = self.engine.key(Database::default(), &self.name);
        let mut shard = self.engine.lock(&key);
        shard.get(Access::Use, NOW_MS).as_ref().and_then(|found| found.value.plain()) == expected
    }
}

/// Writes a word and a number.
fn write(out: &mut Vec<u8>, word: &str, number: u64) {
    out.clear();
    out.extend_from_slice(word.as_bytes());
    let begin = out.len();
    let mut rest = number;
    loop {
        out.push(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out[begin..].reverse();
}
