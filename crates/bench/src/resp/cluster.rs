//! Checks before the load: whether the server answers, and which nodes a cluster has.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use resp::{Limits, Value, hash_slot};

use super::client::Client;
use super::dialect::{Dialect, Due};
use super::load::{RespError, RespLoad, Topology};

/// The nodes that own the keys. A single one without a cluster.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    addresses: Vec<SocketAddr>,
    /// Node of each slot. `None` if there is a single node.
    slots: Option<Vec<u8>>,
    key: Vec<u8>,
}

impl Nodes {
    /// Maximum number of masters that a load connects to.
    pub(super) const MAX: usize = 128;

    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.slots.is_some()
    }

    pub(super) fn address(&self, node: usize) -> SocketAddr {
        self.addresses[node]
    }

    /// The node that owns the key of a command.
    #[inline]
    pub(super) fn of(&mut self, dialect: &Dialect, due: Due) -> usize {
        let Some(slots) = &self.slots else { return 0 };
        self.key.clear();
        dialect.write_key_of(&mut self.key, due);
        usize::from(slots[usize::from(hash_slot(&self.key))])
    }

    /// The index of the node at an address, which is added if it is new. `None` if there are too many.
    pub(super) fn index(&mut self, address: SocketAddr) -> Option<usize> {
        if let Some(known) = self.addresses.iter().position(|known| *known == address) {
            return Some(known);
        }
        if self.addresses.len() == Self::MAX {
            return None;
        }
        self.addresses.push(address);
        Some(self.addresses.len() - 1)
    }

    /// Records the new owner of a slot.
    pub(super) fn moved(&mut self, slot: u16, to: SocketAddr) -> Option<usize> {
        let node = self.index(to)?;
        if let Some(slots) = &mut self.slots {
            slots[usize::from(slot)] = u8::try_from(node).expect("there are at most 128");
        }
        Some(node)
    }
}

/// Sends the greeting, and asks for the nodes of the cluster.
pub(super) fn find_nodes(load: &RespLoad, dialect: &Dialect) -> Result<Nodes, RespError> {
    let address = load.address;
    let unreachable = |source| RespError::Unreachable { address, source };
    let mut client = Client::connect_within(address, load.timeout).map_err(unreachable)?;
    if !dialect.greeting.is_empty() {
        ask(&mut client, address, "the greeting", &dialect.greeting)?;
    }
    let mut nodes = Nodes { addresses: vec![address], slots: None, key: Vec::new() };
    if load.topology == Topology::Single {
        return Ok(nodes);
    }
    let mut command = Vec::new();
    resp::encode_command(&mut command, &[b"CLUSTER", b"SLOTS"]);
    let reply = ask(&mut client, address, "CLUSTER SLOTS", &command)?;
    nodes.addresses.clear();
    nodes.slots = Some(vec![0; usize::from(resp::SLOTS)]);
    match read_slots(&value(&reply, address)?, address, &mut nodes) {
        Some(()) if nodes.count() > 0 => Ok(nodes),
        _ => {
            let reply = reply.escape_ascii().to_string();
            Err(RespError::Refused { address, command: "CLUSTER SLOTS", reply })
        }
    }
}

/// Sends a command and waits for its reply. An error reply is an error.
fn ask(
    client: &mut Client,
    address: SocketAddr,
    command: &'static str,
    bytes: &[u8],
) -> Result<Vec<u8>, RespError> {
    let reply = client.exchange(bytes).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => RespError::Malformed { address, source },
        _ => RespError::Unreachable { address, source },
    })?;
    match value(&reply, address)?.error() {
        None => Ok(reply),
        Some(text) => {
            Err(RespError::Refused { address, command, reply: String::from_utf8_lossy(text).into_owned() })
        }
    }
}

fn value(reply: &[u8], address: SocketAddr) -> Result<Value<'_>, RespError> {
    Value::parse(reply, &Limits::default())
        .map_err(|error| RespError::Malformed { address, source: io::Error::other(error) })
}

/// Parses the reply to CLUSTER SLOTS: ranges of slots, each with its nodes, the master first.
fn read_slots(value: &Value<'_>, asked: SocketAddr, nodes: &mut Nodes) -> Option<()> {
    let Value::Array(ranges) = value else { return None };
    for range in ranges {
        let (slots, master) = read_range(range, asked)?;
        let node = u8::try_from(nodes.index(master)?).ok()?;
        nodes.slots.as_mut()?.get_mut(slots)?.fill(node);
    }
    Some(())
}

fn read_range(range: &Value<'_>, asked: SocketAddr) -> Option<(RangeInclusive<usize>, SocketAddr)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Integer(first), Value::Integer(last), Value::Array(master), ..] = &parts[..] else {
        return None;
    };
    let [host, Value::Integer(port), ..] = &master[..] else { return None };
    let ip = match host {
        // A node that doesn't know its own address has the address that was asked.
        Value::Bulk(b"") => asked.ip(),
        host if host.is_null() => asked.ip(),
        Value::Bulk(host) => str::from_utf8(host).ok()?.parse().ok()?,
        _ => return None,
    };
    let slots = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
    Some((slots, SocketAddr::new(ip, u16::try_from(*port).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Nodes {
        Nodes { addresses: Vec::new(), slots: Some(vec![0; 16384]), key: Vec::new() }
    }

    #[test]
    fn slots_are_read() {
        let asked = "127.0.0.1:7000".parse().expect("an address");
        let reply = b"*3\r\n*4\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:7001\r\n$2\r\nid\r\n*3\r\n$9\r\n127.0.0.1\r\n:7009\r\n\
                      $2\r\nid\r\n*3\r\n:5461\r\n:16382\r\n*2\r\n$0\r\n\r\n:7002\r\n*3\r\n:16383\r\n:16383\r\n*2\r\n$3\r\n::1\r\n:7003\r\n";
        let value = Value::parse(reply, &Limits::default()).expect("it is a value");
        let mut nodes = nodes();
        read_slots(&value, asked, &mut nodes).expect("it is an answer");
        let expected: Vec<SocketAddr> = ["127.0.0.1:7001", "127.0.0.1:7002", "[::1]:7003"]
            .map(|text| text.parse().expect("an address"))
            .into();
        assert_eq!(nodes.addresses, expected);
        let slots = nodes.slots.expect("it is a cluster");
        assert_eq!([slots[0], slots[5460], slots[5461], slots[16382], slots[16383]], [0, 0, 1, 1, 2]);
    }

    #[test]
    fn other_answers_are_refused() {
        let asked = "127.0.0.1:7000".parse().expect("an address");
        let range = |first, last| format!("*1\r\n*3\r\n:{first}\r\n:{last}\r\n*2\r\n$0\r\n\r\n:7002\r\n");
        for reply in
            [":1\r\n".to_owned(), "*1\r\n*0\r\n".to_owned(), range(0, 16384), range(9, 3), range(-1, 3)]
        {
            let value = Value::parse(reply.as_bytes(), &Limits::default()).expect("it is a value");
            assert_eq!(read_slots(&value, asked, &mut nodes()), None, "{reply:?}");
        }
    }
}
