//! Real Redis clients with `larder kv`: each runs its script against redis-server 7.0, to verify the script, and then against Larder.
//! `conformance/clients/README.md` describes the parts of a script.

mod cluster;
mod redis_rs;
mod redis_tools;
mod script;
mod server;

use script::{java, play};

const ALL: &[&str] = &["password", "caching"];

#[test]
fn redis_py_passes_its_script() {
    play(&["python3", "{}/python/redis_py.py"], ALL, &["caching"]);
}

#[test]
fn node_redis_passes_its_script() {
    play(&["node", "{}/node/node_redis.mjs"], ALL, &[]);
}

#[test]
fn ioredis_passes_its_script() {
    play(&["node", "{}/node/ioredis.mjs"], &["password"], &[]);
}

#[test]
fn go_redis_passes_its_script() {
    play(&["{}/go/bin/goredis"], ALL, &[]);
}

/// rueidis always sends CLIENT TRACKING in its handshake.
#[test]
fn rueidis_passes_its_script() {
    play(&["{}/go/bin/rueidis"], ALL, &[]);
}

#[test]
fn jedis_passes_its_script() {
    play(&java("JedisScript"), ALL, &["caching"]);
}

#[test]
fn lettuce_passes_its_script() {
    play(&java("LettuceScript"), ALL, &[]);
}
