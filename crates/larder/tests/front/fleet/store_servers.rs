//! Servers that shared stores are tested with.

use std::net::SocketAddr;

use testkit::{Kv, Redis};

use crate::LARDER;

pub(crate) fn on_each_store(check: impl Fn(SocketAddr)) {
    let redis = Redis::start("");
    check(redis.address());
    let kv = Kv::start(LARDER, &[]);
    check(kv.address());
}
