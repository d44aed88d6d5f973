//! OBJECT and MEMORY: metadata of keys, and memory usage.

use engine::{Access, Found, Policy};

use super::arguments::parse_integer;
use super::{Call, Outcome, Refusal};
use crate::reply::Reply;
use crate::system;

/// Longest value that Redis stores in the `embstr` encoding.
const EMBEDDED_BYTES_MAX: usize = 44;

pub(super) fn encoding(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    with_found(call, reply, |found, reply| {
        let encoding = match found.value.length() {
            _ if found.value.plain().is_some_and(|value| parse_integer(value).is_ok()) => "int",
            0..=EMBEDDED_BYTES_MAX => "embstr",
            _ => "raw",
        };
        reply.bulk(encoding.as_bytes());
    })
}

pub(super) fn freq(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let policy = call.engine().policy();
    if !policy.is_lfu() && policy != Policy::AllKeysS3Fifo {
        return Err(Refusal::Other(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    with_found(call, reply, |found, reply| reply.integer(i64::from(found.frequency)))
}

pub(super) fn idletime(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    with_found(call, reply, |found, reply| reply.integer(i64::from(found.idle_s)))
}

pub(super) fn refcount(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    with_found(call, reply, |_, reply| reply.integer(1))
}

fn with_found(
    call: &Call<'_>,
    reply: &mut Reply<'_>,
    tell: impl FnOnce(&Found<'_>, &mut Reply<'_>),
) -> Outcome {
    let key = call.key(2);
    let mut shard = call.engine().lock(&key);
    match shard.get(Access::Peek, call.now_ms) {
        Some(found) => tell(&found, reply),
        None => reply.null(),
    }
    Ok(())
}

/// MEMORY USAGE key [SAMPLES count]
pub(super) fn memory_usage(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match call.length() {
        3 => {}
        5 if call.is_word(3, "samples") => {
            if call.integer(4)? < 0 {
                return Err(Refusal::Syntax);
            }
        }
        _ => return Err(Refusal::Syntax),
    }
    let key = call.key(2);
    match call.engine().lock(&key).memory_bytes(call.now_ms) {
        Some(bytes) => reply.count(bytes),
        None => reply.null(),
    }
    Ok(())
}

pub(super) fn memory_stats(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let engine = call.engine();
    let (used, counts) = (engine.used_bytes(), engine.counts());
    let keys: u64 = counts.keys.iter().sum();
    let resident = system::resident_bytes().unwrap_or(used);
    let databases: Vec<_> = counts.keys.iter().enumerate().filter(|(_, keys)| **keys > 0).collect();
    reply.map(12 + databases.len());
    let mut number = |name: &str, value: u64| {
        reply.bulk(name.as_bytes());
        reply.integer(value as i64);
    };
    number("peak.allocated", used);
    number("total.allocated", used);
    number("startup.allocated", 0);
    number("replication.backlog", 0);
    number("clients.slaves", 0);
    number("clients.normal", call.shared.buffers_bytes() as u64);
    number("aof.buffer", 0);
    number("keys.count", keys);
    number("keys.bytes-per-key", used.checked_div(keys).unwrap_or_default());
    number("dataset.bytes", used.saturating_sub(call.shared.buffers_bytes() as u64));
    number("allocator.resident", resident);
    reply.bulk(b"fragmentation");
    reply.double(resident as f64 / used.max(1) as f64);
    for (number, keys) in databases {
        reply.bulk(format!("db.{number}").as_bytes());
        reply.map(2);
        reply.bulk(b"overhead.hashtable.main");
        reply.integer(*keys as i64 * INDEX_BYTES_PER_KEY);
        reply.bulk(b"overhead.hashtable.expires");
        reply.integer(0);
    }
    Ok(())
}

/// A bucket of 64 bytes for 4.5 keys.
const INDEX_BYTES_PER_KEY: i64 = 14;

pub(super) fn memory_doctor(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (used, max) = (call.engine().used_bytes(), call.engine().bytes_max());
    let resident = system::resident_data_bytes().unwrap_or(used);
    let text = match () {
        () if resident > used.saturating_mul(2) && resident > DOCTOR_BYTES_MIN => {
            "Resident memory is more than twice the memory used. Possible causes: client buffers, or a maxmemory that was lowered.\n"
        }
        () if used > max => {
            "Memory usage exceeds maxmemory. Keys are being evicted as far as maxmemory-policy permits.\n"
        }
        () => "No memory problems found.\n",
    };
    reply.text(text);
    Ok(())
}

/// Below this size, the memory of threads and buffers dominates.
const DOCTOR_BYTES_MIN: u64 = 64 << 20;

pub(super) fn memory_malloc_stats(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let used = call.engine().used_bytes();
    reply.text(&format!("Engine segments: {used} bytes in use.\n"));
    Ok(())
}

pub(super) fn memory_purge(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.shared.trimming.trim(0);
    reply.ok();
    Ok(())
}
