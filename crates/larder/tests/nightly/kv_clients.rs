//! Clients of Redis as they exist, with `larder kv`: each plays its script against redis-server 7.0, which shows that the script is right,
//! and against Larder. What a script is made of stands in `conformance/clients/README.md`.

mod cluster;
mod redis_rs;
mod redis_tools;
mod script;
mod server;

use script::{JAVA, Script, play};

#[test]
fn redis_py_passes_its_script() {
    play(&Script {
        command: &["python3", "{}/python/redis_py.py"],
        parts: &["password", "caching"],
        needs_newer_redis: &["caching"],
    });
}

#[test]
fn node_redis_passes_its_script() {
    play(&Script {
        command: &["node", "{}/node/node_redis.mjs"],
        parts: &["password", "caching"],
        needs_newer_redis: &[],
    });
}

#[test]
fn ioredis_passes_its_script() {
    play(&Script { command: &["node", "{}/node/ioredis.mjs"], parts: &["password"], needs_newer_redis: &[] });
}

#[test]
fn go_redis_passes_its_script() {
    play(&Script {
        command: &["{}/go/bin/goredis"],
        parts: &["password", "caching"],
        needs_newer_redis: &[],
    });
}

/// Its handshake always has CLIENT TRACKING.
#[test]
fn rueidis_passes_its_script() {
    play(&Script {
        command: &["{}/go/bin/rueidis"],
        parts: &["password", "caching"],
        needs_newer_redis: &[],
    });
}

#[test]
fn jedis_passes_its_script() {
    let [java, tier, collector, option, path] = JAVA;
    play(&Script {
        command: &[java, tier, collector, option, path, "JedisScript"],
        parts: &["password", "caching"],
        needs_newer_redis: &["caching"],
    });
}

#[test]
fn lettuce_passes_its_script() {
    let [java, tier, collector, option, path] = JAVA;
    play(&Script {
        command: &[java, tier, collector, option, path, "LettuceScript"],
        parts: &["password", "caching"],
        needs_newer_redis: &[],
    });
}
