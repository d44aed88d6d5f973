//! Miss ratios of eviction policies on the same traces, with room for the same number of keys.
//!
//! Each client gets a key and, on a miss, sets it. Misses in the first half of a trace aren't counted. All servers have room for
//! as many keys as Larder held with S3-FIFO: the memory per key beyond its bytes is measured elsewhere.

use std::path::Path;
use std::thread;

use anyhow::{Context as _, anyhow, ensure};
use bench::resp::Client;
use bench::trace::{Scans, Trace, TraceSettings};
use serde::Serialize;

use super::Wish;
use super::store::{Running, Store, Wanted};
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{self, BOTH_CORES};

/// A server and its eviction policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Eviction {
    LarderS3Fifo,
    LarderLru,
    LarderLfu,
    RedisLru,
    RedisLfu,
}

/// Policies that run with the memory of the case. The first determines the number of keys of the others.
const OWN: [Eviction; 3] = [Eviction::LarderS3Fifo, Eviction::LarderLru, Eviction::LarderLfu];
const RIVALS: [Eviction; 2] = [Eviction::RedisLru, Eviction::RedisLfu];

impl Eviction {
    /// Title, server, and the server's name for the policy.
    fn parts(self) -> (&'static str, Store, &'static str) {
        match self {
            Self::LarderS3Fifo => ("Larder, allkeys-s3fifo", Store::Larder, "allkeys-s3fifo"),
            Self::LarderLru => ("Larder, allkeys-lru", Store::Larder, "allkeys-lru"),
            Self::LarderLfu => ("Larder, allkeys-lfu", Store::Larder, "allkeys-lfu"),
            Self::RedisLru => ("Redis, allkeys-lru", Store::Redis, "allkeys-lru"),
            Self::RedisLfu => ("Redis, allkeys-lfu", Store::Redis, "allkeys-lfu"),
        }
    }

    pub(crate) fn title(self) -> &'static str {
        self.parts().0
    }

    pub(crate) fn store(self) -> Store {
        self.parts().1
    }
}

/// A trace, and the share of its keys that fit.
#[derive(Clone, Copy)]
struct Case {
    title: &'static str,
    exponent: f64,
    scans: Scans,
    memory_mib: u32,
}

const KEYS: u64 = 1_000_000;
const REQUESTS: usize = 2_000_000;
const VALUE: [u8; 1000] = [b'v'; 1000];
/// Keys per batch of GETs. The misses are then set in one batch.
const BATCH: usize = 50;
/// Room for about 1 % and 10 % of the keys.
const SMALL_MIB: u32 = 10;
const LARGE_MIB: u32 = 100;

const fn case(title: &'static str, exponent: f64, scans: Scans, memory_mib: u32) -> Case {
    Case { title, exponent, scans, memory_mib }
}

const CASES: [Case; 12] = [
    case("kv: misses, Zipf 0.8, room for 1 %", 0.8, Scans::None, SMALL_MIB),
    case("kv: misses, Zipf 0.8, room for 10 %", 0.8, Scans::None, LARGE_MIB),
    case("kv: misses, Zipf 0.8 and scans, room for 1 %", 0.8, Scans::Some, SMALL_MIB),
    case("kv: misses, Zipf 0.8 and scans, room for 10 %", 0.8, Scans::Some, LARGE_MIB),
    case("kv: misses, Zipf 1.0, room for 1 %", 1.0, Scans::None, SMALL_MIB),
    case("kv: misses, Zipf 1.0, room for 10 %", 1.0, Scans::None, LARGE_MIB),
    case("kv: misses, Zipf 1.0 and scans, room for 1 %", 1.0, Scans::Some, SMALL_MIB),
    case("kv: misses, Zipf 1.0 and scans, room for 10 %", 1.0, Scans::Some, LARGE_MIB),
    case("kv: misses, Zipf 1.2, room for 1 %", 1.2, Scans::None, SMALL_MIB),
    case("kv: misses, Zipf 1.2, room for 10 %", 1.2, Scans::None, LARGE_MIB),
    case("kv: misses, Zipf 1.2 and scans, room for 1 %", 1.2, Scans::Some, SMALL_MIB),
    case("kv: misses, Zipf 1.2 and scans, room for 10 %", 1.2, Scans::Some, LARGE_MIB),
];

pub(super) fn is_one(title: &str) -> bool {
    CASES.iter().any(|case| case.title == title)
}

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    let cases = CASES.iter().filter(|case| wish.has(case.title));
    cases.map(|case| case.measure(wish.larder)).collect()
}

/// Result of a trace.
#[derive(Clone, Copy)]
struct Played {
    missed_percent: f64,
    /// Keys stored in the middle of the second half.
    keys: usize,
}

impl Case {
    fn measure(self, larder: &Path) -> anyhow::Result<Row> {
        let mut row = Row::new(What::MissRatio, self.title, &[("missed", "%"), ("keys", "")]);
        let own = self.played_by_all(&OWN, larder, None)?;
        let keys = own[0].1.keys;
        for (eviction, played) in own.into_iter().chain(self.played_by_all(&RIVALS, larder, Some(keys))?) {
            let figures = vec![played.missed_percent, played.keys as f64];
            row.add(Subject::Eviction(eviction), figures, 0);
        }
        Ok(row)
    }

    /// Plays the trace on all servers at the same time: misses don't depend on timing, and there is more than one core.
    fn played_by_all(
        self,
        evictions: &[Eviction],
        larder: &Path,
        room: Option<usize>,
    ) -> anyhow::Result<Vec<(Eviction, Played)>> {
        thread::scope(|scope| {
            let play = |eviction| {
                let playing = move || {
                    stage::use_both_cores()?;
                    self.played_by(eviction, larder, room).map(|played| (eviction, played))
                };
                scope.spawn(playing)
            };
            let playing: Vec<_> = evictions.iter().copied().map(play).collect();
            playing.into_iter().map(|one| one.join().map_err(|_| anyhow!("a player panicked"))?).collect()
        })
    }

    fn trace(self) -> Trace {
        Trace::new(TraceSettings { keys: KEYS, exponent: self.exponent, scans: self.scans, seed: 1 })
    }

    fn played_by(self, eviction: Eviction, larder: &Path, room: Option<usize>) -> anyhow::Result<Played> {
        output::progress(&format!("{}: {}", self.title, eviction.title()));
        let wanted = Wanted {
            memory_mib: self.memory_mib,
            policy: Some(eviction.parts().2),
            cores: &BOTH_CORES,
            ..Wanted::default()
        };
        let server = eviction.store().start(larder, &wanted)?;
        let mut client = Client::connect(server.address)?;
        if let Some(keys) = room.filter(|_| server.store == Store::Redis) {
            make_room_for(&mut client, keys)?;
        }
        self.play(&server, &mut client)
    }

    fn play(self, server: &Running, client: &mut Client) -> anyhow::Result<Played> {
        let mut missed = Missed::default();
        let mut keys = 0;
        for (number, batch) in batches(self.trace()).enumerate() {
            let missing = missing_of(client, &batch)?;
            missed.count(batch.len(), missing.len());
            set(client, &missing).with_context(|| server.store.title())?;
            if number == REQUESTS / BATCH * 3 / 4 {
                keys = keys_of(client)?;
            }
        }
        Ok(Played { missed_percent: missed.percent(), keys })
    }
}

/// Counts misses after the first half.
#[derive(Default)]
struct Missed {
    requests: usize,
    counted: usize,
    missed: usize,
}

impl Missed {
    fn count(&mut self, requests: usize, missed: usize) {
        self.requests += requests;
        if self.requests > REQUESTS / 2 {
            self.counted += requests;
            self.missed += missed;
        }
    }

    fn percent(&self) -> f64 {
        100.0 * self.missed as f64 / self.counted as f64
    }
}

fn batches(trace: Trace) -> impl Iterator<Item = Vec<u64>> {
    let mut trace = trace.take(REQUESTS);
    std::iter::from_fn(move || Some(trace.by_ref().take(BATCH).collect::<Vec<u64>>())).take(REQUESTS / BATCH)
}

fn name(key: u64) -> Vec<u8> {
    format!("k{key:015}").into_bytes()
}

fn missing_of(client: &mut Client, keys: &[u64]) -> anyhow::Result<Vec<u64>> {
    let names: Vec<Vec<u8>> = keys.iter().map(|key| name(*key)).collect();
    let commands: Vec<[&[u8]; 2]> = names.iter().map(|name| [&b"GET"[..], name]).collect();
    let commands: Vec<&[&[u8]]> = commands.iter().map(|words| &words[..]).collect();
    let replies = client.ask_all(&commands)?;
    let missing = keys.iter().zip(&replies).filter(|(_, reply)| reply.starts_with(b"$-1"));
    Ok(missing.map(|(key, _)| *key).collect())
}

fn set(client: &mut Client, keys: &[u64]) -> anyhow::Result<()> {
    let names: Vec<Vec<u8>> = keys.iter().map(|key| name(*key)).collect();
    let commands: Vec<[&[u8]; 3]> = names.iter().map(|name| [&b"SET"[..], name, &VALUE]).collect();
    let commands: Vec<&[&[u8]]> = commands.iter().map(|words| &words[..]).collect();
    let replies = client.ask_all(&commands)?;
    let refused = replies.iter().find(|reply| !reply.starts_with(b"+OK"));
    ensure!(
        refused.is_none(),
        "SET was answered with {:?}",
        refused.map(|reply| reply.escape_ascii().to_string())
    );
    Ok(())
}

fn keys_of(client: &mut Client) -> anyhow::Result<usize> {
    let reply = client.ask(&[b"DBSIZE"])?;
    let text = String::from_utf8_lossy(&reply);
    text.trim_start_matches(':').trim().parse().with_context(|| format!("DBSIZE is {text:?}"))
}

/// Sets the memory limit of Redis to the size of this many keys.
fn make_room_for(client: &mut Client, keys: usize) -> anyhow::Result<()> {
    client.ask(&[b"CONFIG", b"SET", b"maxmemory", b"0"])?;
    let all: Vec<u64> = (0..keys as u64).collect();
    all.chunks(BATCH).try_for_each(|batch| set(client, batch))?;
    let used = client.info("memory", "used_memory")?.context("INFO has no used_memory")?;
    client.ask(&[b"FLUSHALL"])?;
    let set = client.ask(&[b"CONFIG", b"SET", b"maxmemory", used.trim().as_bytes()])?;
    ensure!(set.starts_with(b"+OK"), "maxmemory can't be set");
    Ok(())
}
