//! Gateways that share a store.

use std::net::SocketAddr;

use testkit::{Larder, Response, Setup, wait};

use crate::LARDER;

/// Configuration of a site and its store. `settings` are lines of `[store.remote]`.
pub(crate) fn config(store: SocketAddr, origin: &str, settings: &str) -> String {
    let site = format!("[[site]]\nname = \"default\"\norigin = \"{origin}\"\n");
    format!("{site}[store.remote]\nurl = \"redis://{store}/0\"\n{settings}\n")
}

/// Starts gateways that share a store, with the configuration from [`config`].
#[track_caller]
pub(crate) fn sharing(count: usize, store: SocketAddr, origin: &str, settings: &str) -> Vec<Larder> {
    start(count, |_| Setup::config(LARDER, &config(store, origin, settings)))
}

/// Starts `count` gateways, and waits until all know each other in all stores that they share.
#[track_caller]
pub(crate) fn start(count: usize, setup: impl Fn(usize) -> Setup) -> Vec<Larder> {
    let gateways: Vec<Larder> = (0..count).map(|index| setup(index).start()).collect();
    for gateway in &gateways {
        wait::until_true("all know each other", || {
            let metrics = gateway.ask_admin("GET", "/metrics", "").text();
            let mut known =
                metrics.lines().filter(|line| line.starts_with("larder_tier_instances")).peekable();
            known.peek().is_some() && known.all(|line| line.ends_with(&format!(" {count}")))
        });
    }
    gateways
}

/// Waits until the store has all writes of a gateway.
#[track_caller]
pub(crate) fn is_written(gateway: &Larder) {
    gateway.wait_for("larder_tier_pending_keys", &[], |pending| pending == 0.0);
}

pub(crate) fn status(response: &Response) -> &str {
    response.field("cache-status")
}
