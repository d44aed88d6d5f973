//! Gateways that share a store, for the tests of fleets.

use std::net::SocketAddr;

use testkit::{Kv, Larder, Redis, Response, Setup, wait};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// Starts gateways in front of an origin, and waits until each knows all others. `settings` are lines of `[store.remote]`.
#[track_caller]
pub(crate) fn gateways(count: usize, store: SocketAddr, origin: &str, settings: &str) -> Vec<Larder> {
    let config = format!(
        "[[site]]\nname = \"default\"\norigin = \"{origin}\"\n[store.remote]\nurl = \"redis://{store}/0\"\n{settings}\n"
    );
    let gateways: Vec<_> = (0..count).map(|_| Setup::config(LARDER, &config).start()).collect();
    for gateway in &gateways {
        wait::until_true("all know each other", || {
            gateway.metric("larder_tier_instances", &[]) == count as f64
        });
    }
    gateways
}

/// Waits until the store knows what a gateway has stored.
#[track_caller]
pub(crate) fn is_written(gateway: &Larder) {
    wait::until_true("the store knows", || gateway.metric("larder_tier_pending_keys", &[]) == 0.0);
}

pub(crate) fn status(response: &Response) -> &str {
    response.field("cache-status")
}

/// Both servers that a store is tested on.
pub(crate) fn on_each_store(check: impl Fn(SocketAddr)) {
    let redis = Redis::start("");
    check(redis.address());
    let kv = Kv::start(LARDER, &[]);
    check(kv.address());
}
