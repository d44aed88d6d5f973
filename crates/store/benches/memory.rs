//! Benchmarks of the memory tier: `cargo bench -p store`. `benches/README.md` has results with date and machine.
#![expect(clippy::print_stdout, reason = "a bench reports to the terminal")]

use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use mimalloc::MiMalloc;
use store::sample::SampleRecord;
use store::{Change, Memory, MemoryConfig, Placement, Segment};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Interface of a measured cache, so that the same code can measure other caches.
trait Subject: Sync {
    fn new(bytes_max: u64, entry_bytes: u64) -> Self;
    fn get(&self, key: &[u8]) -> bool;
    fn put(&self, key: &[u8], body_bytes: usize);
    fn counted_bytes(&self) -> u64;
}

impl Subject for Memory<SampleRecord> {
    fn new(bytes_max: u64, entry_bytes: u64) -> Self {
        let config = MemoryConfig::with_bytes_max(bytes_max);
        Self::new(MemoryConfig { entry_bytes_expected: entry_bytes, ..config })
    }

    fn get(&self, key: &[u8]) -> bool {
        black_box(Self::get(self, key)).is_some()
    }

    fn put(&self, key: &[u8], body_bytes: usize) {
        let Ok(record) = SampleRecord::new(self.budget(), &vec![b'x'; body_bytes]) else { return };
        self.update(key, |_| Change::Put(record));
    }

    fn counted_bytes(&self) -> u64 {
        self.budget().live_bytes()
    }
}

/// Runs each part in its own process, so that no part measures memory left over from another.
fn main() {
    let parts: [(&str, fn()); 4] = [
        ("overhead", overhead::<Memory<SampleRecord>>),
        ("speed", speed::<Memory<SampleRecord>>),
        ("hits", hits::<Memory<SampleRecord>>),
        ("limit", resident_at_the_limit),
    ];
    let asked = std::env::args().nth(1);
    if let Some((_, part)) = parts.iter().find(|(name, _)| Some(*name) == asked.as_deref()) {
        return part();
    }
    let this = std::env::current_exe().expect("a running program has a path");
    for (name, _) in parts {
        let status = Command::new(&this).arg(name).status().expect("this program starts");
        assert!(status.success(), "{name} failed");
    }
}

fn speed<S: Subject>() {
    println!(
        "hot get {:.0} ns; one hot key on two cores {:.0} ns",
        hot_get_ns::<S>(),
        one_hot_key_two_cores_ns::<S>()
    );
    println!("miss at the limit (get, build, put, evict) {:.0} ns", churn_ns::<S>());
}

fn hits<S: Subject>() {
    let ratios = [0.0, 0.25, 0.5].map(|scan_share| format!("{:.2} %", 100.0 * hit_ratio::<S>(scan_share)));
    println!("hits of Zipf(0.9) in 2 % of the keys, scan share 0, 1/4, 1/2: {}", ratios.join(", "));
}

fn overhead<S: Subject>() {
    let (resident, counted) = overhead_bytes::<S>();
    println!("overhead per entry of 1 KiB: resident {resident:.0}, counted {counted:.0} bytes");
}

const GETS: u64 = 5_000_000;

/// Returns a key as the gateway builds it: scheme, authority and path, each with its length.
fn key(number: u64) -> Vec<u8> {
    format!("\x05https\x0fwww.example.com\x18/assets/item/{number:016x}").into_bytes()
}

/// Measures one core that reads 1,000 hot keys.
fn hot_get_ns<S: Subject>() -> f64 {
    let subject = S::new(64 << 20, 1 << 10);
    let keys: Vec<_> = (0..1000).map(key).collect();
    keys.iter().for_each(|key| subject.put(key, 1000));
    best_of_three(|| {
        let start = Instant::now();
        (0..GETS).for_each(|n| assert!(subject.get(&keys[n as usize % keys.len()])));
        start.elapsed().as_nanos() as f64 / GETS as f64
    })
}

/// Measures both cores reading one key; the time is per read on one core.
fn one_hot_key_two_cores_ns<S: Subject>() -> f64 {
    let subject = S::new(64 << 20, 1 << 10);
    let key = key(1);
    subject.put(&key, 1000);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                black_box(subject.get(&key));
            }
        });
        let best = best_of_three(|| {
            let start = Instant::now();
            (0..GETS).for_each(|_| assert!(subject.get(&key)));
            start.elapsed().as_nanos() as f64 / GETS as f64
        });
        done.store(true, Ordering::Relaxed);
        best
    })
}

/// Measures a miss at the limit: look up, build a record of 1 KiB, store it, evict another.
fn churn_ns<S: Subject>() -> f64 {
    const ROUNDS: u64 = 300_000;
    let subject = S::new(32 << 20, 1 << 10);
    let start = Instant::now();
    for number in 0..ROUNDS {
        let key = key(number);
        if !subject.get(&key) {
            subject.put(&key, 1000);
        }
    }
    start.elapsed().as_nanos() as f64 / ROUNDS as f64
}

/// Returns the hit ratio of the Zipf requests. A share of `scan_share` of all requests is for keys that are requested only once.
fn hit_ratio<S: Subject>(scan_share: f64) -> f64 {
    const KEYS: u64 = 500_000;
    const REQUESTS: u64 = 1_500_000;
    let subject = S::new(KEYS / 50 * ENTRY_BYTES, ENTRY_BYTES);
    let (mut random, zipf) = (Random(7), Zipf::new(KEYS, 0.9));
    let (mut hits, mut asked, mut scanned) = (0u64, 0u64, KEYS);
    for number in 0..REQUESTS {
        let scan = random.fraction() < scan_share;
        scanned += u64::from(scan);
        let key = key(if scan { scanned } else { zipf.draw(&mut random) });
        let hit = subject.get(&key);
        if !hit {
            subject.put(&key, 700);
        }
        if !scan && number > REQUESTS / 3 {
            asked += 1;
            hits += u64::from(hit);
        }
    }
    hits as f64 / asked as f64
}

/// Weight of an entry in the hit ratio runs: a body of 700 bytes, with its record, key and table entry.
const ENTRY_BYTES: u64 = 1000;

/// Returns the overhead per entry in bytes beyond a body of 1 KiB, with 100,000 entries: as resident memory, and as counted.
fn overhead_bytes<S: Subject>() -> (f64, f64) {
    const ENTRIES: u64 = 100_000;
    let before = resident_bytes();
    let subject = S::new(1 << 30, 4 << 10);
    (0..ENTRIES).for_each(|number| subject.put(&key(number), 1024));
    let per_entry = |bytes: u64| bytes as f64 / ENTRIES as f64 - 1024.0;
    (per_entry(resident_bytes() - before), per_entry(subject.counted_bytes()))
}

/// Stores twenty times the capacity in records and segments on two cores, in phases with different sizes, and prints resident memory
/// relative to the limit after each phase. The threads run through all phases, as those of a server do.
fn resident_at_the_limit() {
    const BYTES_MAX: u64 = 256 << 20;
    let before = resident_bytes();
    let memory: Memory<SampleRecord> = Memory::new(MemoryConfig::with_bytes_max(BYTES_MAX));
    let phases = [("small", 300), ("mixed", 20_000), ("large", 900_000), ("small", 300)];
    let (start, end) = (Barrier::new(3), Barrier::new(3));
    let work = &|core| {
        for (_, body_bytes) in phases {
            start.wait();
            load(&memory, core, 5 * BYTES_MAX / (body_bytes + 400), body_bytes);
            end.wait();
        }
    };
    thread::scope(|scope| {
        (0..2).for_each(|core| drop(scope.spawn(move || work(core))));
        for (name, _) in phases {
            start.wait();
            end.wait();
            memory.sweep();
            let share = 100.0 * (resident_bytes() - before) as f64 / BYTES_MAX as f64;
            println!("at the limit, {name} bodies: resident {share:.1} % of bytes_max, {:?}", memory.usage());
        }
    });
}

fn load(memory: &Memory<SampleRecord>, core: u64, rounds: u64, body_bytes: u64) {
    let mut random = Random(core + 1);
    let body = vec![b'x'; body_bytes as usize];
    for number in 0..rounds {
        let bytes = (random.fraction() * body_bytes as f64) as usize;
        let key = key(number * 2 + core);
        if bytes < 64 << 10 {
            Subject::put(memory, &key, bytes);
            continue;
        }
        let Ok(segment) = Segment::copy(memory.budget(), Placement::Heap, &body[..bytes]) else { continue };
        let group = Arc::new(memory.open_group());
        group.put(0, segment);
        std::mem::forget(group);
        Subject::put(memory, &key, 300);
    }
}

fn best_of_three(mut measure: impl FnMut() -> f64) -> f64 {
    (0..3).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has /proc");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second field is the resident set") * 4096
}

/// A small random number generator with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Draws ranks by inverting the cumulative weights.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Self((1..=keys).map(weight).collect())
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let point = random.fraction() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|&sum| sum < point) as u64
    }
}
