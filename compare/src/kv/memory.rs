//! Memory per key beyond the bytes of key and value.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use anyhow::Context as _;
use bench::resp::{self, Client, Preload, RespLoad, Until, Workload};

use super::Wish;
use super::store::{Running, Store};
use crate::memory::settled_bytes;
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 16;
/// The row measures three numbers of keys, because the load factor of a hash table depends on the number.
const KEYS: [u64; 3] = [3_000_000, 4_000_000, 5_500_000];
/// Keys that are set before the first measurement, so that pools, buffers and the first segments aren't counted.
const KEYS_BEFORE: u64 = 10_000;

pub(super) const NO_TTL: &str = "kv: memory per key beyond key and value, 16 + 16 bytes, no TTL";
pub(super) const TTL: &str = "kv: memory per key beyond key and value, 16 + 16 bytes, TTL";

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    let cases = [(NO_TTL, None), (TTL, Some(86_400))];
    let wanted = cases.into_iter().filter(|(title, _)| wish.has(title));
    wanted.map(|(title, ttl_s)| row(wish.larder, title, ttl_s)).collect()
}

fn row(larder: &Path, title: &str, ttl_s: Option<u32>) -> anyhow::Result<Row> {
    let mut row =
        Row::new(What::KvMemory, title, &[("resident memory", "bytes"), ("as the server counts", "bytes")]);
    for store in Store::KEEPING {
        output::progress(&format!("{title}: {}", store.title()));
        let Ok(server) = store.start(larder, VALUE_BYTES) else { continue };
        for figures in per_key(&server, ttl_s).with_context(|| store.title())? {
            row.add(Subject::Store(store), figures, 0);
        }
    }
    Ok(row)
}

/// Returns a row of figures for each number of keys.
fn per_key(server: &Running, ttl_s: Option<u32>) -> anyhow::Result<Vec<Vec<f64>>> {
    set_keys(server, KEYS_BEFORE, ttl_s)?;
    let (resident_before, counted_before) = (settled_bytes(server.pid())?, counted_bytes(server)?);
    let mut figures = Vec::new();
    for keys in KEYS {
        set_keys(server, keys, ttl_s)?;
        let each = |after: f64, before: f64| {
            (after - before) / (keys - KEYS_BEFORE) as f64 - (KEY_BYTES + VALUE_BYTES) as f64
        };
        let resident = each(settled_bytes(server.pid())?, resident_before);
        figures.push(vec![resident, each(counted_bytes(server)?, counted_before)]);
    }
    Ok(figures)
}

fn set_keys(server: &Running, keys: u64, ttl_s: Option<u32>) -> anyhow::Result<()> {
    let load = RespLoad {
        workload: Workload::Set,
        key_bytes: KEY_BYTES,
        value_bytes: VALUE_BYTES,
        ttl_s,
        keys,
        preload: Preload::AllKeys,
        until: Until::Requests(1),
        ..server.load()
    };
    Ok(resp::prepare(&load)?)
}

/// Bytes of keys and values, as counted by the server.
fn counted_bytes(server: &Running) -> anyhow::Result<f64> {
    let used = match server.store {
        Store::Memcached => memcached_bytes(server.address)?,
        _ => Client::connect(server.address)?
            .info("memory", "used_memory")?
            .context("INFO has no used_memory")?,
    };
    used.trim().parse().with_context(|| format!("{used:?} isn't a number of bytes"))
}

/// Bytes of memcached's items, without its hash table.
fn memcached_bytes(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"stats\r\nquit\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let found = text.lines().find_map(|line| line.strip_prefix("STAT bytes "));
    found.map(str::to_owned).context("stats has no bytes")
}
