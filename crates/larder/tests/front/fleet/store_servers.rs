//! The servers that a store is tested on.

use std::net::SocketAddr;

use testkit::{Kv, Redis};

use crate::LARDER;

/// With each of them, on its own.
pub(crate) fn on_each_store(check: impl Fn(SocketAddr)) {
    let redis = Redis::start("");
    check(redis.address());
    let kv = Kv::start(LARDER, &[]);
    check(kv.address());
}
