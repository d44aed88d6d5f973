//! Servers that shared stores are tested with.

use std::net::SocketAddr;

use testkit::{Kv, Redis};

use crate::LARDER;

/// Runs a check with each server.
pub(crate) fn on_each_store(check: impl Fn(SocketAddr)) {
    let redis = Redis::start("");
    check(redis.address());
    let kv = Kv::start(LARDER, &[]);
    check(kv.address());
}
