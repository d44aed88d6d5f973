//! Parsers of a node's replies about its cluster.

use redis::Value;
use resp::SLOTS;

use super::reply;
use super::settings::Host;
use crate::backing::BackingError;

/// The slots that each master serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    /// `None` if the node doesn't know its own address: then it is the one that was connected.
    pub(super) master: Option<Host>,
    pub(super) replicas: u32,
}

/// State of a cluster, as a node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClusterInfo {
    /// Whether the node serves requests.
    pub(super) is_ok: bool,
    /// Highest configuration epoch that the node knows: it grows with each fail-over and with each slot that moves.
    pub(super) epoch: u64,
}

/// Where a node sends a request for another node's slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) kind: RedirectKind,
    pub(super) slot: u16,
    /// `None` for the same address with another port.
    pub(super) host: Option<Box<str>>,
    pub(super) port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    /// The slot belongs to the other node.
    Moved,
    /// The slot is moving to the other node, which already has this key.
    Ask,
}

impl Redirect {
    /// Parses the text after `MOVED` or `ASK`: a slot and an address.
    pub(super) fn parse(kind: RedirectKind, text: &str) -> Option<Self> {
        let (slot, address) = text.trim().split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let host = match host.trim_matches(['[', ']']) {
            "" | "?" => None,
            name => Some(Host::reported(name, port)?.name),
        };
        Some(Self { kind, slot, host, port })
    }
}

/// Parses the reply to CLUSTER INFO.
pub(super) fn cluster_info(answer: Value) -> Result<ClusterInfo, BackingError> {
    let text = match reply::of(answer)? {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } => text,
        other => return Err(reply::unexpected(&other)),
    };
    let of = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    Ok(ClusterInfo {
        is_ok: of("cluster_state") == Some("ok"),
        epoch: of("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
    })
}

/// Parses the reply to CLUSTER SLOTS. Ranges without a master that can be reached are left out.
pub(super) fn slot_ranges(answer: Value) -> Result<Vec<SlotRange>, BackingError> {
    let Value::Array(ranges) = reply::of(answer)? else { return Err(reply::unexpected(&Value::Nil)) };
    Ok(ranges.into_iter().filter_map(slot_range).collect())
}

fn slot_range(value: Value) -> Option<SlotRange> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), replicas @ ..] = &parts[..] else {
        return None;
    };
    let [first, last] = [*first, *last].map(|slot| u16::try_from(slot).ok().filter(|slot| *slot < SLOTS));
    let (name, port) = match &master[..] {
        [Value::BulkString(name), Value::Int(port), ..] => (std::str::from_utf8(name).ok()?, *port),
        [Value::Nil, Value::Int(port), ..] => ("", *port),
        _ => return None,
    };
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let master = match name {
        "?" => return None,
        "" => None,
        name => Some(Host::reported(name, port)?),
    };
    let replicas = u32::try_from(replicas.len()).unwrap_or(u32::MAX);
    let range = SlotRange { first: first?, last: last?, master, replicas };
    (range.first <= range.last).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.into(), port }
    }

    #[test]
    fn ranges_are_read() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let node = |name: Value, port| Value::Array(vec![name, Value::Int(port), bulk("id")]);
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let answer = Value::Array(vec![
            range(0, 5460, vec![node(bulk("10.0.0.1"), 6379), node(bulk("10.0.0.4"), 6379)]),
            range(5461, 10922, vec![node(Value::Nil, 7001)]),
            range(10923, 16383, vec![node(bulk("?"), 7002)]),
            range(10923, 16384, vec![node(bulk("a"), 7002)]),
            range(16383, 10923, vec![node(bulk("a"), 7002)]),
        ]);
        let expected = [
            SlotRange { first: 0, last: 5460, master: Some(host("10.0.0.1", 6379)), replicas: 1 },
            SlotRange { first: 5461, last: 10922, master: None, replicas: 0 },
        ];
        assert_eq!(slot_ranges(answer).unwrap(), expected);
        assert!(slot_ranges(Value::Nil).is_err());
    }

    #[test]
    fn redirects_are_read() {
        let parse = |text| Redirect::parse(RedirectKind::Moved, text);
        let to = |slot, host: Option<&str>, port| {
            Some(Redirect { kind: RedirectKind::Moved, slot, host: host.map(Into::into), port })
        };
        for (text, expected) in [
            ("3999 127.0.0.1:6381", to(3999, Some("127.0.0.1"), 6381)),
            ("0 :6381", to(0, None, 6381)),
            ("16383 2001:db8::1:7000", to(16383, Some("2001:db8::1"), 7000)),
            ("1 cache.internal:7000", to(1, Some("cache.internal"), 7000)),
            ("16384 a:1", None),
            ("1 a:0", None),
            ("1", None),
            ("x a:1", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn the_state_is_read() {
        let info = |text: &str| cluster_info(Value::BulkString(text.into())).unwrap();
        let text =
            "cluster_state:ok\r\ncluster_slots_ok:16384\r\ncluster_current_epoch:7\r\ncluster_my_epoch:3\r\n";
        assert_eq!(info(text), ClusterInfo { is_ok: true, epoch: 7 });
        assert_eq!(info("cluster_state:fail\r\n"), ClusterInfo { is_ok: false, epoch: 0 });
    }
}
