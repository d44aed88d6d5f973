//! Clients that must be notified of every change: one caches values (CLIENT TRACKING), one watches keys (WATCH).

use std::collections::BTreeMap;

use kv::{Offline, OfflineClient};
use resp::{Limits, Scanner, Value};

/// The observed keys, all in database 0.
const KEYS: [&str; 3] = ["a", "b", "key"];

pub struct Observer {
    /// Reads the actual values, without notifications.
    reader: OfflineClient,
    tracker: OfflineClient,
    watcher: OfflineClient,
    /// Values that the tracker may cache, by key.
    believed: BTreeMap<&'static str, Vec<u8>>,
    watched: Vec<Vec<u8>>,
}

impl Observer {
    pub fn new(server: &Offline, now_ms: u64) -> Self {
        let [reader, mut tracker, watcher] = [(); 3].map(|()| server.connect(now_ms));
        let begun = ask(&mut tracker, "HELLO 3\r\nCLIENT TRACKING ON", now_ms);
        assert!(begun.is_some_and(|replies| replies.last().is_some_and(|reply| reply == b"+OK\r\n")));
        Self { reader, tracker, watcher, believed: BTreeMap::new(), watched: Vec::new() }
    }

    /// Compares the notifications of tracker and watcher with the actual values. Returns `None` if one of the clients
    /// was disconnected.
    pub fn look(&mut self, now_ms: u64) -> Option<()> {
        let values = self.values(now_ms)?;
        self.check_watcher(&values, now_ms)?;
        self.check_tracker(&values, now_ms)
    }

    /// Returns value and expiry of each key, as the server reports them.
    fn values(&mut self, now_ms: u64) -> Option<Vec<Vec<u8>>> {
        let mut value = |key: &str| {
            Some(ask(&mut self.reader, &format!("GET {key}\r\nPEXPIRETIME {key}"), now_ms)?.concat())
        };
        KEYS.iter().map(|key| value(key)).collect()
    }

    fn check_watcher(&mut self, values: &[Vec<u8>], now_ms: u64) -> Option<()> {
        let request = format!("MULTI\r\nEXEC\r\nWATCH {}", KEYS.join(" "));
        let replies = ask(&mut self.watcher, &request, now_ms)?;
        let was_executed = replies.get(1).is_some_and(|reply| reply == b"*0\r\n");
        if was_executed && !self.watched.is_empty() {
            assert_eq!(texts(values), texts(&self.watched), "EXEC went through after a change");
        }
        self.watched = values.to_vec();
        Some(())
    }

    fn check_tracker(&mut self, values: &[Vec<u8>], now_ms: u64) -> Option<()> {
        for reply in ask(&mut self.tracker, "", now_ms)? {
            self.hear_of_change(&reply);
        }
        for (key, truth) in KEYS.into_iter().zip(values) {
            if let Some(believed) = self.believed.get(key) {
                assert!(
                    truth.starts_with(believed) || is_null(believed) && is_missing(truth),
                    "{key} has changed without a notification"
                );
                continue;
            }
            for reply in ask(&mut self.tracker, &format!("GET {key}"), now_ms)? {
                if !self.hear_of_change(&reply) {
                    self.believed.insert(key, reply);
                }
            }
        }
        Some(())
    }

    /// Returns whether the received value is a message, not a reply.
    fn hear_of_change(&mut self, reply: &[u8]) -> bool {
        let Ok(Value::Push(message)) = Value::parse(reply, &Limits::default()) else { return false };
        match message.get(1) {
            Some(Value::Array(keys)) => {
                self.believed.retain(|key, _| !keys.contains(&Value::Bulk(key.as_bytes())))
            }
            _ => self.believed.clear(),
        }
        true
    }
}

fn texts(values: &[Vec<u8>]) -> Vec<String> {
    values.iter().map(|value| value.escape_ascii().to_string()).collect()
}

fn is_null(reply: &[u8]) -> bool {
    reply == b"_\r\n"
}

fn is_missing(value: &[u8]) -> bool {
    value.starts_with(b"$-1\r\n")
}

/// Sends a request, and returns the replies and messages separately.
fn ask(client: &mut OfflineClient, request: &str, now_ms: u64) -> Option<Vec<Vec<u8>>> {
    let mut told = Vec::new();
    client.hear(format!("{request}\r\n").as_bytes(), now_ms, &mut told)?;
    let (mut rest, mut replies) = (told.as_slice(), Vec::new());
    while !rest.is_empty() {
        let length = Scanner::new(Limits::default()).scan(rest).expect("replies are RESP");
        let (reply, others) = rest.split_at(length.expect("replies are whole"));
        replies.push(reply.to_vec());
        rest = others;
    }
    Some(replies)
}
