//! Descriptions of a load for its report.

use std::time::Duration;

use super::load::{HttpLoad, Order, Protocol, Reuse};

/// Describes a load: `64 connections, closed loop, 10 s`.
pub(super) fn load(load: &HttpLoad) -> String {
    let mut words = vec![count(load.connections, "connection")];
    if load.threads > 1 {
        words.push(count(load.threads, "thread"));
    }
    match load.protocol {
        Protocol::Http1 { pipelining: 1 } => {}
        Protocol::Http1 { pipelining } => words.push(format!("{pipelining} requests pipelined")),
        Protocol::Http2 { streams } => words.push(format!("HTTP/2 with {}", count(streams, "stream"))),
    }
    if load.reuse == Reuse::OnePerRequest {
        words.push("a connection per request".into());
    }
    words.push(load.pace.to_string());
    if let Some(think) = &load.think {
        words.push(format!("think time {} to {}", seconds(*think.start()), seconds(*think.end())));
    }
    if load.targets.len() > 1 && load.order == Order::Random {
        words.push(format!("random order, seed {}", load.seed));
    }
    words.push(load.until.to_string());
    words.join(", ")
}

/// Describes the targets: the URL, or their number.
pub(super) fn targets(load: &HttpLoad) -> String {
    match &load.targets[..] {
        [] => String::new(),
        [only] => only.url.to_string(),
        [first, rest @ ..] => format!("{} and {}", first.url, count(rest.len(), "other")),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn count(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
